"""The step type ``ready``: the host can be reached, and its facts are known."""

from __future__ import annotations

from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, Undo


class ReadyParams(Params):
    """Parameters of ``ready``: there are none."""


class ReadyStep(Step[ReadyParams]):
    """Connects to the host and gathers its facts: a host that does not answer fails here.

    `readyFirst: true` of a pipeline does this on all hosts before anything else. As a step it stands where a host has
    to answer before other steps begin.

    - It changes nothing. `check` does it too.
    - Facts that are known already are not gathered again.
    """

    undo = Undo.NEEDLESS
    example = """\
- name: answers
  type: ready
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.reads("connects and gathers facts")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        system = ctx.facts["os"]
        return Result(changed=False, message=f"{system['distribution']} {system['version']}".strip())
