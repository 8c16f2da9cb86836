"""Files of the system that a step edits beside what it does to the running system: shown, written and remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.step import Diff, StepContext
from kubexm_exec.step.host import Held
from kubexm_steps.lib.files import HIDDEN, NEW_FILE, as_text, attributes_record
from kubexm_steps.lib.standing import attributes_of, file_left


class Edit(Struct, frozen=True):
    """A file as it is, and the text that it should have; None: no file."""

    held: Held
    after: str | None
    mode: int = NEW_FILE
    """Of a file that is new."""

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return self.held.exists if self.after is None else not self.held.exists or self.held.text != self.after

    def back(self) -> Edit:
        """What undoes it, once it is done."""
        held = self.held
        data = (self.after or "").encode("utf-8", "surrogateescape")
        kind: Literal["absent", "file"] = "absent" if self.after is None else "file"
        now = Held(replace(held.state, kind=kind, above=0, sha256=hashlib.sha256(data).hexdigest()), data)
        return Edit(now, held.text if held.exists else None, held.state.mode if held.exists else self.mode)

    def diff(self, ctx: StepContext) -> Diff:
        """The change for people."""
        notes = ["removed"] if self.after is None else [] if self.held.exists else ["created"]
        before = as_text(self.held.data) if self.held.exists else None
        if ctx.sensitive or ctx.holds_secret(self.held.data) or ctx.holds_secret(self.after or ""):
            return Diff(self.held.path, note=", ".join([*notes, HIDDEN]))
        if self.held.exists and before is None:
            return Diff(self.held.path, note=", ".join([*notes, "not shown: it is no text"]))
        return Diff(self.held.path, before, self.after, "".join(notes))


def diffs(ctx: StepContext, edits: Iterable[Edit]) -> list[Diff]:
    """What would change in the files."""
    return [edit.diff(ctx) for edit in edits if edit.any]


def save(ctx: StepContext, edits: Iterable[Edit], **more: Any) -> None:
    """Remember what ``restore`` of the files needs, and what else the step's own undo does."""
    changing = [edit for edit in edits if edit.any]
    folders = {edit.held.path.rpartition("/")[0] for edit in changing if not edit.held.folder}
    ctx.save_undo({"files": [_record(ctx, edit) for edit in changing], "folders": sorted(folders), **more})


def _record(ctx: StepContext, edit: Edit) -> Mapping[str, Any]:
    held, state = edit.held, edit.held.state
    left: dict[str, Any] = {"kind": "absent"}
    if edit.after is not None:
        text = edit.after.encode("utf-8", "surrogateescape")
        left = file_left(
            ctx, state, sha256=hashlib.sha256(text).hexdigest(), secret=ctx.sensitive or ctx.holds_secret(text),
            mode=state.mode if held.exists else edit.mode, owner=None, group=None,
        )  # fmt: skip
    return held_record(ctx, held, [left])


def held_record(ctx: StepContext, held: Held, left: Sequence[Any]) -> dict[str, Any]:
    """The record of a file whose content is known, for ``restore``."""
    if not held.exists:
        return {"path": held.path, "kind": "absent", "left": left}
    record = {"path": held.path, **attributes_of(held.state), "left": left, "content": ctx.keep(held.data)}
    return record | attributes_record(ctx, held.state)


def apply(ctx: StepContext, edits: Iterable[Edit]) -> None:
    """Write, or remove, those files that are not as they should be."""
    for edit in edits:
        if not edit.any:
            continue
        if edit.after is None:
            ctx.runner.remove(edit.held.path)
            continue
        if not edit.held.folder:
            ctx.runner.mkdir(edit.held.path.rpartition("/")[0])
        mode = None if edit.held.exists else edit.mode
        ctx.runner.write(edit.held.path, edit.after, mode=mode, seen=edit.held.state)
