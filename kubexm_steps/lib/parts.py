"""What the steps that edit a part of a file share: where it goes, what becomes of the file, and how that is undone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from kubexm_exec.step import Forecast, Result, StepContext, StepFailed
from kubexm_steps.lib.files import Content, FileOutputs, RestoringStep, Wanted, forecast_file, write_file
from kubexm_steps.lib.lines import Pattern
from kubexm_steps.lib.types import OneFileParams, located


class PartParams(OneFileParams):
    """The parameters of every step that edits a part of a file."""

    insert_after: Pattern | None = Field(
        None, description="Where something new goes: after the last line that matches this; at the end if none does."
    )
    insert_before: Pattern | None = Field(
        None, description="Where something new goes: before the first line that matches this; at the end if none does."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes it instead.")
    create_file: bool = Field(False, description="Make the file if it is not there; without it that is a failure.")

    @model_validator(mode="after")
    def _place_makes_sense(self) -> PartParams:
        if self.insert_after is not None and self.insert_before is not None:
            raise ValueError("insertAfter and insertBefore exclude each other")
        if self.state == "absent" and (self.insert_after or self.insert_before or self.create_file):
            raise ValueError("insertAfter, insertBefore and createFile go with `state: present` only")
        return self


Q = TypeVar("Q", bound=PartParams)


class PartStep(RestoringStep[Q], Generic[Q]):
    """A step that makes a new text of a file's old one."""

    outputs_model = FileOutputs

    @abstractmethod
    def edited(self, text: str) -> str:
        """The text as it should be; the same text if it is so already."""

    def precheck(self, ctx: StepContext) -> Forecast:
        """Work out the new text, and compare."""
        self.params = located(ctx, self.params, last=True)
        wanted = self._wanted(ctx)
        if wanted is None:
            if self.params.state == "absent":
                return Forecast.satisfied(f"{self.params.path} is not there", self._none())
            return Forecast.unknown(f"the file {self.params.path} is not there yet")
        return forecast_file(ctx, wanted)

    def run(self, ctx: StepContext) -> Result:
        """Write the new text."""
        self.params = located(ctx, self.params, last=True)
        wanted = self._wanted(ctx)
        if wanted is None:
            if self.params.state == "absent":
                return Result(changed=False, message=f"{self.params.path} is not there", outputs=self._none())
            raise StepFailed(
                f"change {self.params.path}: there is no such file", hint="set `createFile: true` to make it"
            )
        return write_file(ctx, wanted)

    def _wanted(self, ctx: StepContext) -> Wanted | None:
        """The file as it should be; None if there is none and none is to be made."""
        params = self.params
        path, text = params.path, ""
        state = ctx.runner.inspect(path, digest=False)
        if state.kind == "link":
            path = ctx.runner.resolve(path)
            state = ctx.runner.inspect(path, digest=False)
        if state.kind == "absent" and not params.create_file:
            return None
        if state.kind == "file":
            # Bytes that are no UTF-8 go through unchanged.
            text = ctx.runner.read_to_edit(path).decode("utf-8", "surrogateescape")
        return Wanted(
            path, Content.of(self.edited(text)), params.mode, params.owner, params.group, params.create_parents
        )

    def _none(self) -> dict[str, Any]:
        return {"path": self.params.path, "sha256": "", "size": 0}
