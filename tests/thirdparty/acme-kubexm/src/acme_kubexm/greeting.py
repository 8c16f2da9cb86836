"""The step type ``acme-greeting``: a greeting in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed, Undo


class GreetingParams(Params):
    """Parameters of ``acme-greeting``."""

    path: str = Field(pattern="^/", description="File on the host.")
    greeted_name: str = Field("world", description="Who is greeted.")


class GreetingOutputs(Outputs):
    """What later steps can know of the greeting."""

    text: str = Field(description="The greeting.")


class GreetingStep(Step[GreetingParams, str | None]):
    """A greeting in a file.

    It is replaced if somebody else is to be greeted.
    """

    outputs_model = GreetingOutputs
    undo = Undo.REPEATABLE
    example = """\
    - name: welcome
      type: acme-greeting
      with: {path: /tmp/welcome, greetedName: "{{ host.name }}"}
    """

    def precheck(self, ctx: StepContext) -> Forecast[str | None]:
        """Compare the file with what it should say."""
        before = self._before(ctx)
        if before == self._text():
            return Forecast.satisfied("already greeted", outputs={"text": before})
        return Forecast.change(
            f"would greet {self.params.greeted_name}", [Diff(self.params.path, before, self._text())], seen=before
        )

    def run(self, ctx: StepContext, forecast: Forecast[str | None]) -> Result:
        """Write the file."""
        before = forecast.seen
        ctx.save_undo({"path": self.params.path, "before": None if before is None else ctx.keep(before.encode())})
        ctx.runner.write(self.params.path, self._text())
        return Result(message=f"greeted {self.params.greeted_name}", outputs={"text": self._text()})

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        """Bring back what was there, or nothing."""
        if undo["before"] is not None:
            ctx.runner.write(undo["path"], ctx.kept(undo["before"]))
        else:
            ctx.runner.remove(undo["path"])

    def _text(self) -> str:
        return f"hello {self.params.greeted_name}\n"

    def _before(self, ctx: StepContext) -> str | None:
        state = ctx.runner.inspect(self.params.path, digest=False)
        if state.kind == "absent":
            return None
        if state.kind != "file":
            raise StepFailed(f"{self.params.path} is a {state.kind}", hint="choose another path")
        return ctx.runner.read_text(self.params.path)
