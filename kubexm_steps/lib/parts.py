"""What the steps that edit a part of a file share: where it goes, what becomes of the file, and how that is undone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Literal, TypeVar

from msgspec.structs import replace
from pydantic import Field, model_validator

from kubexm_exec.step import Forecast, Result, StepContext, StepFailed
from kubexm_steps.lib.files import Change, Content, FileOutputs, RestoringStep, apply_file, forecast_file, wanted_file
from kubexm_steps.lib.lines import Pattern
from kubexm_steps.lib.types import OneFileParams, located, refuse


class PartParams(OneFileParams):
    """The parameters of every step that edits a part of a file."""

    insert_after: Pattern | None = Field(
        None,
        description="Position of a new line or block: after the last line that matches; at the end if none does.",
    )
    insert_before: Pattern | None = Field(
        None,
        description="Position of a new line or block: before the first line that matches; at the end if none does.",
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes it instead.")
    create_file: bool = Field(False, description="Create the file if it is missing; by default that is a failure.")

    @model_validator(mode="after")
    def _place_makes_sense(self) -> PartParams:
        if self.insert_after is not None and self.insert_before is not None:
            raise ValueError("insertAfter and insertBefore exclude each other")
        if self.state == "absent":
            refuse(self, ("insert_after", "insert_before", "create_file"), "`state: absent`")
        return self


Q = TypeVar("Q", bound=PartParams)


class PartStep(RestoringStep[Q, Change | None], Generic[Q]):
    """A step that makes a new text of a file's old one."""

    outputs_model = FileOutputs

    @abstractmethod
    def edited(self, text: str) -> str:
        """The text as it should be; the same text if it is so already."""

    def precheck(self, ctx: StepContext) -> Forecast[Change | None]:
        """Work out the new text, and compare."""
        params = located(ctx, self.params, last=True)
        path, text = params.path, ""
        before = ctx.runner.inspect(path)
        if before.kind == "link":
            path = ctx.runner.resolve(path)
            before = ctx.runner.inspect(path)
        if before.kind == "absent" and not params.create_file:
            if params.state == "absent":
                return Forecast.satisfied(f"{path} does not exist", {"path": path, "sha256": "", "size": 0})
            return Forecast.unknown(f"the file {path} does not exist yet")
        if before.kind == "file":
            # Bytes that are no UTF-8 go through unchanged.
            text = ctx.runner.read_to_edit(path).decode("utf-8", "surrogateescape")
        wanted = replace(wanted_file(params, Content.of(self.edited(text))), path=path)
        return forecast_file(ctx, wanted, before)

    def run(self, ctx: StepContext, forecast: Forecast[Change | None]) -> Result:
        """Write the new text."""
        if forecast.seen is None:
            raise StepFailed(
                f"change {self.params.path}: there is no such file", hint="set `createFile: true` to create it"
            )
        return apply_file(ctx, forecast.seen)
