"""The step type ``fragment``: more steps, decided while the run goes on."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, StepList, Undo


class FragmentParams(Params):
    """Parameters of ``fragment``."""

    steps: Annotated[list[dict[str, Any]], StepList()] = Field(
        min_length=1,
        description="Steps, as under `steps:` of a task. Expressions in them are evaluated when they run.",
    )


class FragmentStep(Step[FragmentParams]):
    """Adds steps during the run, on the same host, before anything that depends on this step.

    Use it with `when` or `forEach` over something known only during the run, such as the output of an earlier step.
    Dependents of this step also wait for the added ones. Write steps that are known from the start directly.
    """

    undo = Undo.NEEDLESS
    example = """\
- name: repair
  type: fragment
  when: steps.probe.outputs.exitCode != 0
  with:
    steps:
      - name: restart
        type: command
        with: {argv: [systemctl, restart, etcd]}
      - name: again
        type: wait
        with: {port: 2379}
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.unknown(f"adds {self._count()} when it runs")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        return Result(changed=False, message=f"adds {self._count()}", fragment=self.params.steps)

    def _count(self) -> str:
        number = len(self.params.steps)
        return f"{number} step{'s' if number > 1 else ''}"
