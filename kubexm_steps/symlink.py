"""The step type ``symlink``: a symbolic link, or none."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kubexm_exec.step import Diff, Forecast, Outputs, Result, StepContext, StepFailed
from kubexm_exec.step.host import FileState
from kubexm_steps.lib.files import Change, RestoringStep, linking, remember, removal
from kubexm_steps.lib.types import FollowParams, InspectedPath, located


class SymlinkParams(FollowParams):
    """Parameters of ``symlink``."""

    path: InspectedPath = Field(description="The link on the host, as an absolute path.")
    target: str | None = Field(
        None, min_length=1, description="Target: absolute, or relative to the folder of the link."
    )
    force: bool = Field(False, description="Replace an existing file; by default that is a failure.")
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the link.")

    def model_post_init(self, context: object) -> None:
        if self.state == "present" and self.target is None:
            raise ValueError("a link needs a target")


class SymlinkOutputs(Outputs):
    path: str = Field(description="The link on the host.")
    target: str = Field("", description="Target; empty if it was removed.")


class SymlinkStep(RestoringStep[SymlinkParams, Change]):
    """A symbolic link, or its absence.

    A link with another target is replaced atomically, without a moment in which it is missing. Use it to switch
    between versions, such as `/opt/app/current`.

    - The target need not exist.
    - A file of that name is replaced only with `force: true`; a folder never.
    - Undo restores the old link or file, or removes the new link.
    """

    outputs_model = SymlinkOutputs
    example = """\
- name: current
  type: symlink
  with: {path: /opt/app/current, target: releases/1.4.2}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Change]:
        self.params = located(ctx, self.params)
        before = self._look(ctx)
        path, target = self.params.path, self.params.target
        if before.kind == "absent" if self.params.state == "absent" else before.target == target:
            return Forecast.satisfied(f"{path} is as it should be", self._outputs())
        if target is None or self.params.state == "absent":
            diff = Diff(path, note=f"link to {before.target} removed")
            return Forecast.change(f"would remove {path}", [diff], seen=removal(before))
        match before.kind:
            case "absent":
                note, verb = f"link to {target} created", "create"
            case "link":
                note, verb = f"link to {before.target} -> {target}", "change"
            case _:
                note, verb = f"file replaced by a link to {target}", "replace"
        return Forecast.change(f"would {verb} {path}", [Diff(path, note=note)], seen=linking(before, target))

    def run(self, ctx: StepContext, forecast: Forecast[Change]) -> Result:
        change, path = forecast.seen, self.params.path
        remember(ctx, [change], [])
        if change.becomes == "absent":
            ctx.runner.remove(path)
            return Result(message=f"removed {path}", outputs=self._outputs())
        ctx.runner.symlink(change.target, path)
        return Result(message=f"{path} points to {change.target}", outputs=self._outputs())

    def _look(self, ctx: StepContext) -> FileState:
        state = ctx.runner.inspect(self.params.path, digest=False)
        if state.kind in ("absent", "link") or (
            state.kind == "file" and self.params.force and self.params.state == "present"
        ):
            return state
        thing = {"file": "a file", "directory": "a folder"}.get(state.kind, "a device, pipe or socket")
        hint = (
            "set `force: true` if the link may replace it"
            if state.kind == "file" and self.params.state == "present"
            else "remove it first, or choose another path"
        )
        raise StepFailed(f"link {self.params.path}: it is {thing}, not a link", hint=hint)

    def _outputs(self) -> dict[str, Any]:
        target = self.params.target if self.params.state == "present" else ""
        return {"path": self.params.path, "target": target}
