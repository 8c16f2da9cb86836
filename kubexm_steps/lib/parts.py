"""What the steps that edit a file share: where a part goes, what becomes of the file, and how that is undone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, Literal, TypeVar

from msgspec.structs import replace
from pydantic import Field, model_validator

from kubexm_exec.step import Forecast, Result, StepContext, StepFailed
from kubexm_steps.lib.files import (
    Change,
    Content,
    NewContentOutputs,
    RestoringStep,
    apply_file,
    forecast_file,
    new_content,
    wanted_file,
)
from kubexm_steps.lib.lines import Pattern
from kubexm_steps.lib.types import NewContentParams, located, refuse


class EditParams(NewContentParams):
    """The parameters of every step that makes a new text of a file's old one."""

    create_file: bool = Field(False, description="Create the file if it is missing; by default that is a failure.")

    def only_removes(self) -> bool:
        """Whether there is nothing to do without a file."""
        return False


class PartParams(EditParams):
    """The parameters of every step that edits some lines of a file."""

    insert_after: Pattern | None = Field(
        None,
        description="Position of a new line or block: after the last line that matches; at the end if none does.",
    )
    insert_before: Pattern | None = Field(
        None,
        description="Position of a new line or block: before the first line that matches; at the end if none does.",
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes it instead.")

    def only_removes(self) -> bool:
        """Whether lines are removed."""
        return self.state == "absent"

    @model_validator(mode="after")
    def _place_makes_sense(self) -> PartParams:
        if self.insert_after is not None and self.insert_before is not None:
            raise ValueError("insertAfter and insertBefore exclude each other")
        if self.state == "absent":
            refuse(self, ("insert_after", "insert_before", "create_file"), "`state: absent`")
        return self


Q = TypeVar("Q", bound=EditParams)


class EditStep(RestoringStep[Q, Change | None], Generic[Q]):
    """A step that makes a new text of a file's old one."""

    outputs_model = NewContentOutputs

    @abstractmethod
    def edited(self, ctx: StepContext, text: str) -> str:
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
            if params.only_removes():
                return Forecast.satisfied(f"{path} does not exist", {"path": path, "sha256": "", "size": 0})
            failure = StepFailed(
                f"change {params.path}: there is no such file", hint="set `createFile: true` to create it", file=path
            )
            return Forecast.unknown(f"the file {path} does not exist yet", seen=None, failure=failure)
        if before.kind == "file":
            # Bytes that are no UTF-8 go through unchanged.
            text = ctx.runner.read_to_edit(path).decode("utf-8", "surrogateescape")
        wanted = new_content(params, wanted_file(params, Content.of(self.edited(ctx, text))))
        return forecast_file(ctx, replace(wanted, path=path), before)

    def run(self, ctx: StepContext, forecast: Forecast[Change | None]) -> Result:
        """Write the new text."""
        if forecast.seen is None:
            assert forecast.failure is not None
            raise forecast.failure
        return apply_file(ctx, forecast.seen)
