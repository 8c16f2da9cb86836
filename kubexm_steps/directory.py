"""The step type ``directory``: a folder, or no folder."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from kubexm_exec.runner import FileState
from kubexm_exec.runner.files.attributes import TAR
from kubexm_exec.safepaths import WAY
from kubexm_exec.step import Diff, Forecast, Outputs, Result, Standing, StepContext, StepFailed
from kubexm_steps.lib.files import KEEP_LIMIT, remove_made
from kubexm_steps.lib.standing import OLDER, LookingStep, files_standing, together
from kubexm_steps.lib.types import InspectedPath, OwnedParams, located, show_mode

_NEW_FOLDER: Final = 0o755
_SECRET_FOLDER: Final = 0o700
# Archives never leave standard input and output: a name with a colon would be taken for another host's.
_SAVE: Final = WAY + TAR + 'go "$1"; archive -czf - -- "./$name"'
_FIRST: Final = WAY + 'reach "$1/."; ls -A . | head -n 1'
_LOAD: Final = (
    WAY
    + TAR
    + """
go "$1"
private "$2" || exit
archive -xzpf - && mv -T -- "./$name" "../$name"
code=$?
leave "$2"
exit $code
"""
)
# The first thing in each folder that is not the next one of them.
_GUESTS: Final = (
    WAY
    + r"""
while [ $# -gt 0 ]; do
  (
    to "$1/." || exit 0
    for f in ./* ./.[!.]* ./..?*; do
      if [ "$1/${f#./}" != "${2-}" ] && { [ -e "$f" ] || [ -L "$f" ]; }; then printf '%s\0' "$1/${f#./}"; break; fi
    done
  )
  shift
done
"""
)


class DirectoryParams(OwnedParams):
    """Parameters of ``directory``."""

    path: InspectedPath = Field(description="The folder on the host, as an absolute path.")
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the folder if it is there.")
    parents: bool = Field(
        True, description="Make missing folders above it (0755, belonging to the user that kubexm works as)."
    )
    recursive: bool = Field(
        False, description="With `state: absent`: remove the folder with all that is in it, not only an empty one."
    )

    @model_validator(mode="after")
    def _fits_its_state(self) -> DirectoryParams:
        if self.state == "absent" and (self.mode is not None or self.owner is not None or self.group is not None):
            raise ValueError("a folder that is to be absent has no mode, owner or group")
        if self.state == "present" and self.recursive:
            raise ValueError("recursive goes with `state: absent`: it is about what is removed")
        if self.state == "absent" and self.path == "/":
            raise ValueError("the root folder cannot be removed")
        return self


class DirectoryOutputs(Outputs):
    """What later steps can know of the folder."""

    path: str = Field(description="The folder on the host.")


class DirectoryStep(LookingStep[DirectoryParams]):
    """A folder with given permissions and owner, or no folder.

    Missing folders above it are made too. A link to a folder counts as that folder and is left alone; where others may
    write, it is a failure (`follow`).

    - A new folder is `0755` unless `mode` says otherwise, `0700` if the step is `sensitive`; one that is there keeps
      its mode and owner unless they are given.
    - `state: absent` removes an empty folder; with `recursive: true` also all that is in it.
    - Undo removes the folders that were made, if nothing else is in them by then, or puts back the mode and owner. A
      removed folder comes back with its content, if that was not more than 64 MiB (packed).
    """

    outputs_model = DirectoryOutputs
    example = """\
- name: data
  type: directory
  with:
    path: /var/lib/etcd
    mode: "0700"
    owner: etcd
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        """Compare what is there with what should be."""
        self.params = located(ctx, self.params, last=self.params.state == "present")
        before = self._look(ctx)
        params = self.params
        if params.state == "absent":
            if before.kind == "absent":
                return Forecast.satisfied(f"{params.path} is not there", self._outputs())
            if not params.recursive and ctx.runner.shell(_FIRST, params.path, live=False).stdout:
                return Forecast.unknown(f"{params.path} is not empty, and `recursive` is not set")
            return Forecast.change(f"would remove {params.path}", [Diff(params.path, note="folder removed")])
        if before.kind == "absent":
            missing = ctx.runner.missing_folders(params.path)
            if len(missing) > 1 and not params.parents:
                return Forecast.unknown(f"the folder {posixpath.dirname(params.path)} is not there yet")
            diffs = [Diff(path, note=f"folder created, {show_mode(_NEW_FOLDER)}") for path in missing[:-1]]
            diffs.append(Diff(params.path, note=f"folder created, {show_mode(self._mode(ctx, before))}"))
            return Forecast.change(f"would create {params.path}", diffs)
        notes = self._notes(ctx, before)
        if not notes:
            return Forecast.satisfied(f"{params.path} is as it should be", self._outputs())
        return Forecast.change(f"would change {params.path}", [Diff(params.path, note=", ".join(notes))])

    def run(self, ctx: StepContext) -> Result:
        """Make, change or remove the folder."""
        self.params = located(ctx, self.params, last=self.params.state == "present")
        before = self._look(ctx)
        params = self.params
        if params.state == "absent":
            return self._remove(ctx, before)
        if before.kind == "absent":
            missing = ctx.runner.missing_folders(params.path)
            mode = self._mode(ctx, before)
            own = {"kind": "directory", "mode": mode, "owner": params.owner or "", "group": params.group or ""}
            ctx.save_undo({"made": missing, "left": own})
            ctx.runner.mkdir(
                params.path,
                mode=mode,
                owner=params.owner,
                group=params.group,
                parents=params.parents,
            )
            return Result(message=f"created {params.path}", outputs=self._outputs())
        notes = self._notes(ctx, before)
        if not notes:
            return Result(changed=False, message=f"{params.path} is as it should be", outputs=self._outputs())
        left = {
            "kind": "directory",
            "mode": self._mode(ctx, before),
            "owner": params.owner or str(before.uid),
            "group": params.group or str(before.gid),
        }
        ctx.save_undo({"mode": before.mode, "owner": str(before.uid), "group": str(before.gid), "left": left})
        if not before.owned_by(params.owner, params.group):
            ctx.runner.chown(before.path, params.owner, params.group)
        ctx.runner.chmod(before.path, self._mode(ctx, before))
        return Result(message=f"changed {params.path} ({', '.join(notes)})", outputs=self._outputs())

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        """Compare the folder with what was left, or see whether there is one again."""
        if "left" not in undo:
            return Standing(unknown=OLDER)
        path, left = located(ctx, self.params, last=self.params.state == "present").path, undo["left"]
        if "made" in undo:
            return self._made_standing(ctx, undo["made"], left)
        if "packed" in undo:
            state = ctx.runner.inspect(path, digest=False)
            # A folder may be what could not be removed, or what an undo has brought back.
            part = "a part of the folder is there" if state.kind == "directory" else ""
            gone = state.kind in ("absent", "directory")
            return Standing(unknown=part) if gone else Standing(changed=(f"{path} (it is no folder)",))
        before = {name: undo[name] for name in ("mode", "owner", "group")}
        if "empty" not in undo:
            path = ctx.runner.resolve(path)
        return files_standing(ctx, [{"path": path, "kind": "directory", **before, "left": [left]}])

    def _made_standing(self, ctx: StepContext, made: Sequence[str], left: Mapping[str, Any]) -> Standing:
        """Compare folders that were made, and see whether something else is in them."""
        # Each is closed until it belongs to whom it should.
        closed = {"kind": "directory", "mode": _SECRET_FOLDER, "owner": "", "group": ""}
        lefts = [{**closed, "mode": _NEW_FOLDER}] * (len(made) - 1) + [dict(left)]
        records = [
            {"path": path, "kind": "absent", "left": [each, closed]} for path, each in zip(made, lefts, strict=True)
        ]
        guests = ctx.runner.shell(_GUESTS, *made, live=False).out.split("\0")
        others = [Standing(changed=(f"{guest} (in a folder that was made)",)) for guest in guests if guest]
        return together(files_standing(ctx, records), *others)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Put back what was there."""
        path = located(ctx, self.params, last=self.params.state == "present").path
        if "made" in undo:
            remove_made(ctx, undo["made"])
            return
        if "packed" in undo or "empty" in undo:
            self._clear(ctx, path)
        if "packed" in undo:
            if ctx.runner.inspect(path, digest=False).exists:
                ctx.log.warning("the folder is there already, and stays as it is", path=path)
            else:
                stage = f".kx-{secrets.token_hex(8)}.tree"
                ctx.runner.shell(_LOAD, path, stage, stdin=ctx.kept(undo["packed"]), live=False)
        elif "empty" in undo:
            ctx.runner.mkdir(path, mode=undo["mode"], owner=undo["owner"], group=undo["group"])
        else:
            path = ctx.runner.resolve(path)
            ctx.runner.chown(path, undo["owner"], undo["group"])
            ctx.runner.chmod(path, undo["mode"])

    def _clear(self, ctx: StepContext, path: str) -> None:
        """Remove what is no folder in the place of the one that was removed."""
        if ctx.runner.inspect(path, digest=False).kind in ("file", "link"):
            ctx.runner.remove(path)

    def _look(self, ctx: StepContext) -> FileState:
        """The folder, or the one that a link at its place leads to; something else in its place is a failure."""
        path = self.params.path
        state = ctx.runner.inspect(path, digest=False)
        if state.kind == "link" and self.params.state == "present":
            state = ctx.runner.inspect(ctx.runner.resolve(path), digest=False)
            if state.kind == "absent":
                raise StepFailed(f"folder {path}: it is a link that leads nowhere", hint="remove the link first")
        if state.kind in ("file", "other") or (state.kind == "link" and self.params.state == "absent"):
            thing = "a link" if state.kind == "link" else "not a folder"
            raise StepFailed(
                f"folder {path}: it is {thing}", hint="use a file step with `state: absent` to remove it first"
            )
        return state

    def _mode(self, ctx: StepContext, before: FileState) -> int:
        if self.params.mode is not None:
            return self.params.mode
        if before.exists:
            return before.mode
        return _SECRET_FOLDER if ctx.sensitive else _NEW_FOLDER

    def _notes(self, ctx: StepContext, before: FileState) -> list[str]:
        params = self.params
        mode = self._mode(ctx, before)
        notes = [] if mode == before.mode else [f"{show_mode(before.mode)} -> {show_mode(mode)}"]
        if not before.owned_by(params.owner, params.group):
            owner, group = params.owner or before.owner, params.group or before.group
            notes.append(f"{before.owner}:{before.group} -> {owner}:{group}")
        return notes

    def _remove(self, ctx: StepContext, before: FileState) -> Result:
        params = self.params
        if before.kind == "absent":
            return Result(changed=False, message=f"{params.path} is not there", outputs=self._outputs())
        if params.recursive:
            self._keep_all(ctx)
        else:
            kept = {"mode": before.mode, "owner": str(before.uid), "group": str(before.gid)}
            ctx.save_undo({"empty": True, **kept, "left": {"kind": "absent"}})
        ctx.runner.remove(params.path, recursive=params.recursive)
        return Result(message=f"removed {params.path}", outputs=self._outputs())

    def _keep_all(self, ctx: StepContext) -> None:
        packed = ctx.runner.shell(_SAVE, self.params.path, live=False, max_output=KEEP_LIMIT)
        if packed.dropped:
            ctx.log.warning("cannot be undone: the folder holds too much to be kept", limit=KEEP_LIMIT)
        else:
            ctx.save_undo({"packed": ctx.keep(packed.stdout), "left": {"kind": "absent"}})

    def _outputs(self) -> dict[str, Any]:
        return {"path": self.params.path}
