"""The step type ``message``: a text for the people who watch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, Undo
from kubexm_steps.lib.types import Text


class MessageParams(Params):
    """Parameters of ``message``."""

    text: Text = Field(description="The text; it can have several lines.")
    level: Literal["info", "warning"] = Field("info", description="`warning` is also logged as a warning.")


class MessageStep(Step[MessageParams]):
    """Shows a text to the people who watch the run. It changes nothing.

    Use it to say what was created and how to reach it, or what somebody has to know. With `runOnce` on its task it is
    shown once, not for every host.
    """

    undo = Undo.NEEDLESS
    speaks = True
    example = """\
- name: done
  type: message
  with: {text: "Dashboard: https://{{ host.address }}:8443"}
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.tells("only says something")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        if ctx.sensitive:
            return Result(changed=False, message="(hidden: the step is sensitive)")
        text = self.params.text if self.params.text.endswith("\n") else self.params.text + "\n"
        ctx.runner.show(text)
        if self.params.level == "warning":
            ctx.log.warning(self.params.text.rstrip("\n"))
        return Result(changed=False, message=self.params.text.partition("\n")[0], stdout=text)
