"""Things that are no files but have attributes (users, groups, services): how a change of them is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubexm_exec.step import Diff, StepContext

HIDDEN: Final = "values hidden"

Attributes = Mapping[str, str]


def changed(before: Attributes, after: Attributes) -> list[str]:
    """The names of what differs; a name that only one side has does."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def attribute_diff(ctx: StepContext, place: str, before: Attributes | None, after: Attributes | None) -> Diff:
    """The change of a thing for people: one line for each attribute that differs. None: there is no such thing."""
    note = "created" if before is None else "removed" if after is None else ""
    names = changed(before or {}, after or {})
    if ctx.sensitive:
        return Diff(place, note=", ".join([*filter(None, [note]), *names, HIDDEN]))
    return Diff(
        place,
        None if before is None else _lines(before, names),
        None if after is None else _lines(after, names),
        note,
    )


def _lines(attributes: Attributes, names: list[str]) -> str:
    return "".join(f"{name}: {attributes[name]}\n" for name in names if name in attributes)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """A list of names for people."""
    return ", ".join(names) or "none"
