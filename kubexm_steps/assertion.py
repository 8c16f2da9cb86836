"""The step type ``assert``: conditions that must hold."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from kubexm_exec.step import Expression, Forecast, Params, Step, StepContext, StepFailed, Undo


class AssertParams(Params):
    """Parameters of ``assert``."""

    that: Annotated[str | list[str], Expression()] = Field(
        description="Expression, or a list of them, as in `when` without braces. All must be true."
    )
    message: str = Field("", description="Message if one is false: what it means, and what to do.")

    @field_validator("that")
    @classmethod
    def _something(cls, value: str | list[str]) -> str | list[str]:
        if not value or any(not each.strip() for each in ([value] if isinstance(value, str) else value)):
            raise ValueError("there is nothing to assert")
        return value


class AssertStep(Step[AssertParams]):
    """Fails unless all conditions are true. It changes nothing.

    Use it to report problems before any work begins: too little memory, an even number of members, a
    missing parameter. `check` evaluates it too.
    """

    undo = Undo.NEEDLESS
    example = """\
- name: odd
  type: assert
  with:
    that:
      - params.members % 2 == 1
      - host.roles | length > 0
    message: An etcd cluster needs an odd number of members.
"""

    def precheck(self, ctx: StepContext) -> Forecast:
        that = self.params.that
        conditions = [that] if isinstance(that, str) else that
        for condition in conditions:
            value = ctx.evaluate(condition)
            if not isinstance(value, bool):
                shown = "" if ctx.sensitive else f", but {value!r}"
                raise StepFailed(
                    f"`{condition}` is neither true nor false{shown}", hint="an assertion compares: `a == b`, `x in y`"
                )
            if not value:
                raise StepFailed(
                    self.params.message or f"it is false: {condition}",
                    hint=f"asserted: {condition}" if self.params.message else "",
                )
        count = len(conditions)
        return Forecast.satisfied(f"{count} of {count} hold" if count > 1 else "it holds")
