"""The step type ``gate``: a person has to approve before the run continues."""

from __future__ import annotations

from pydantic import Field

from kubexm_exec.step import Duration, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed, Undo


class GateParams(Params):
    """Parameters of ``gate``."""

    question: str = Field(min_length=1, description="Question to answer with yes or no.")
    timeout: Duration | None = Field(None, description="How long to wait for an answer; forever by default.")
    default: bool | None = Field(
        None,
        description="Answer without a terminal or after `timeout`. Without a default, no answer is a failure.",
    )


class GateOutputs(Outputs):
    approved: bool = Field(description="Always true: the answer no fails the step.")


class GateStep(Step[GateParams]):
    """Waits for the approval of the person who runs this. It changes nothing.

    The answer no fails the step, and with it its dependents. Without a terminal, or after `timeout`, the `default` is
    used; a gate with a `timeout` and no default waits for `kubexm runs answer` until then.
    With `runOnce` on its task it asks once, not for every host.
    """

    undo = Undo.NEEDLESS
    outputs_model = GateOutputs
    example = """\
- name: approve
  type: gate
  with: {question: "Drain {{ host.name }} now?", timeout: 10m, default: false}
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.unknown(f"needs approval: {self.params.question}")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        if ctx.ask(self.params.question, timeout=self.params.timeout, default=self.params.default):
            return Result(changed=False, message="approved", outputs={"approved": True})
        raise StepFailed(f"not approved: {self.params.question}", hint="answer yes to continue, or set `default: true`")
