"""What was changed at places of hosts, as unified diffs: while it happens, and of a past run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubexm_exec.console.text import Paint, names, one_line, pad, text_lines
from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import PastChange
from kubexm_spec.diagnostics import plural

UNSURE: Final = "  [it failed in the middle: not all of this may be so]"
"""What is said of the diffs of an action that failed."""
_UNDONE: Final = {
    "undone": "  [undone since]",
    "undoFailed": "  [could not be undone]",
    "leftAlone": "  [changed by others since]",
}
_STYLES: Final = {"+": "ok", "-": "failed", "@": "dim"}
_NODE: Final = 40
_WHERE: Final = 40


def title(diff: Mapping[str, Any]) -> str:
    """The place of a diff, with what is not content."""
    path, note = one_line(str(diff.get("path", ""))), one_line(str(diff.get("note", "")))
    if path and note:
        return f"{path}  {note}" if note.startswith("(") else f"{path}  ({note})"
    return path or note


def diff_lines(diff: Mapping[str, Any], paint: Paint, most: int | None = None, rest: str = "") -> Iterator[str]:
    """The lines of a diff; of more than ``most`` only the first, and where the ``rest`` is."""
    lines = text_lines(str(diff.get("text", "")))
    for line in lines[:most]:
        yield paint(line, _STYLES.get(line[:1], ""))
    if most is not None and len(lines) > most:
        yield f"… {plural(len(lines) - most, 'more line')} of this diff: {rest}"


def render_changes(changes: Sequence[PastChange], paint: Paint) -> Iterator[str]:
    """What was changed where; the same on several hosts once."""
    groups: dict[tuple[Any, ...], list[PastChange]] = {}
    for each in changes:
        told = json.dumps(each.diffs, sort_keys=True, default=str) if each.diffs else each.message
        groups.setdefault((each.node, each.sure, each.undo.partition(":")[0], told), []).append(each)
    wide = min(_NODE, max((len(clean(key[0])) for key in groups), default=0))
    places = min(_WHERE, max((len(_hosts(same)) for same in groups.values()), default=0))
    for (node, sure, undo, _), same in groups.items():
        sign = paint("~", "changed") if sure else paint("?", "warning")
        head = f"{sign} {pad(clean(node), wide)}  {pad(_hosts(same), places)}  "
        yield from _entry(head, same[0], _UNDONE.get(undo, "") if sure else UNSURE, paint)
    hosts = {each.place or each.host for each in changes}
    if not changes:
        yield "nothing was changed"
    else:
        actions = len({(each.node, each.where) for each in changes})
        yield f"Changes: {plural(actions, 'action')} on {plural(len(hosts), 'host')}."


def _hosts(same: Sequence[PastChange]) -> str:
    found = list(dict.fromkeys(each.where for each in same))
    return names(found) if len(found) == 1 else f"{len(found)} hosts: {names(found)}"


def _entry(head: str, each: PastChange, after: str, paint: Paint) -> Iterator[str]:
    if not each.diffs:
        yield f"{head}{one_line(each.message) or 'changed'}{after}  (it has no diff)"
        return
    for index, diff in enumerate(each.diffs):
        yield (f"{head}{title(diff)}{after}" if index == 0 else f"    {title(diff)}").rstrip()
        yield from (f"    {line}" for line in diff_lines(diff, paint))
