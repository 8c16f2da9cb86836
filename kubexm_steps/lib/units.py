"""What the steps that write unit files have in common: checking them, taking them up, and putting back the old ones."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar

from pydantic import AfterValidator

from kubexm_exec.step import Params, Standing, StepContext, StepFailed
from kubexm_exec.step.services import ServiceState, UnitLook, unit_name
from kubexm_steps.lib import edits as _edits
from kubexm_steps.lib.edits import Edit
from kubexm_steps.lib.files import NEW_FILE, SECRET_FILE, RestoringStep, restore
from kubexm_steps.lib.services import do, left_as, put_back, record, service_standing
from kubexm_steps.lib.standing import together
from kubexm_steps.lib.types import shaped

FOLDER: Final = "/etc/systemd/system"
_SECTION: Final = re.compile(r"^\[Install\]\s*?$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


UnitName = Annotated[
    str,
    shaped(r"[A-Za-z0-9:_\\@][A-Za-z0-9:_.\\@-]{0,239}", r"the name of a unit: letters, digits and any of `:-_.\@`"),
    AfterValidator(unit_name),
]
"""The name of a unit; without a kind it is a service."""


def new_mode(ctx: StepContext, text: str) -> int:
    """The mode of a new file: closed if a secret is in it."""
    return SECRET_FILE if ctx.sensitive or ctx.holds_secret(text) else NEW_FILE


def install_section(text: str) -> str:
    """What a unit says about being enabled."""
    return "\n".join(found.strip() for found in _SECTION.findall(text))


def verify(ctx: StepContext, units: Sequence[str], files: Mapping[str, str]) -> str:
    """Ask systemd about the files before they are used: what it would not load is a failure, the rest is shown."""
    verdict = ctx.runner.units.verify(units, files)
    if verdict.fatal:
        raise StepFailed(
            f"unit {units[0]}: systemd would not load it" + ("" if ctx.sensitive else f": {verdict.complaints[0]}"),
            stderr="" if ctx.sensitive else "\n".join(verdict.complaints),
            hint="nothing was changed; correct its content",
        )
    if verdict.complaints:
        ctx.runner.show("".join(f"systemd-analyze: {line}\n" for line in verdict.complaints))
    count = len(verdict.complaints)
    return f"{count} warning{'s' if count > 1 else ''} of systemd-analyze" if count else ""


U = TypeVar("U", bound=Params)


class Seen(NamedTuple):
    """The units, and what is to be done with their files."""

    look: UnitLook
    edits: list[Edit]
    soonest: str | None = None
    """When a timer runs next; None if that was not asked."""


class UnitStep(RestoringStep[U, Seen], Generic[U]):
    """A step that writes unit files, and starts or stops what they define."""

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare the files and the units with what was left."""
        return together(super().standing(ctx, undo), *(service_standing(ctx, unit) for unit in undo["units"]))

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back the old files, and the units to how they were."""
        changed = _is_other(ctx, undo["files"])
        for unit in undo["units"]:
            # Its file is still there, which is what it is stopped and disabled by.
            if not unit["existed"]:
                put_back(ctx, unit)
        if changed:
            for folder in sorted({posixpath.dirname(file["path"]) for file in undo["files"] if file["kind"] == "file"}):
                ctx.runner.mkdir(folder)
            restore(ctx, undo)
            ctx.runner.units.reload()
        for unit in undo["units"]:
            if unit["existed"]:
                put_back(ctx, unit, restart=changed and undo["restarts"])


def save(
    ctx: StepContext,
    edits: Sequence[Edit],
    state: ServiceState,
    *,
    restarts: bool = False,
    left: ServiceState | None = None,
) -> None:
    """Remember what a rollback needs, and what was left as soon as that is known."""
    unit = {**record(state), "existed": state.exists}
    if left is not None:
        unit["left"] = left_as(left)
    _edits.save(ctx, edits, units=[unit], restarts=restarts)


def remove(
    ctx: StepContext,
    state: ServiceState,
    edits: Sequence[Edit],
    wait: float,
    *,
    name: str,
    dropins: str = "",
    stop: bool = True,
) -> None:
    """Remove the files of a unit, once it is stopped and disabled, and its folder of drop-ins if that is empty."""
    save(ctx, edits, state)
    if stop and state.active in ("active", "changing"):
        do(ctx, "stop", state, wait)
    if stop and state.enabled and not state.fixed:
        do(ctx, "disable", state)
    _edits.apply(ctx, edits)
    if dropins:
        ctx.runner.remove_empty([dropins])
    ctx.runner.units.reload()
    save(ctx, edits, state, left=ctx.runner.services.look(name))


def _is_other(ctx: StepContext, files: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any file is not as it was saved: an undo that was done already leaves everything alone."""
    if not files:
        return False
    for state, saved in zip(ctx.runner.inspect_all([file["path"] for file in files]), files, strict=True):
        if saved["kind"] == "absent":
            if state.exists:
                return True
        elif state.sha256 != hashlib.sha256(ctx.kept(saved["content"])).hexdigest():
            return True
    return False
