"""The step type ``set``: values under names, for later steps."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from kubexm_exec.step import Forecast, OutputNames, Outputs, Params, Step, StepContext, Undo


class SetParams(Params):
    """Parameters of ``set``."""

    values: Annotated[dict[str, Any], OutputNames()] = Field(
        min_length=1, description="Values by name; expressions are evaluated."
    )


class SetOutputs(Outputs):
    """The names that were given."""

    model_config = ConfigDict(extra="allow")


class SetStep(Step[SetParams]):
    """Names values for later steps: `steps.NAME.outputs.KEY`. It changes nothing.

    Use it to compute something once from outputs of earlier steps, and use it in several places.
    """

    undo = Undo.NEEDLESS
    outputs_model = SetOutputs
    example = """\
- name: derived
  type: set
  with:
    values:
      endpoint: "https://{{ host.address }}:2379"
      isFirst: "{{ host.name == 'node1' }}"
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.satisfied(f"set {', '.join(self.params.values)}", self.params.values)
