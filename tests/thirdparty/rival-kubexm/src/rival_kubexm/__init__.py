"""Claims a name that somebody else has."""

from __future__ import annotations

from kubexm_exec.step import Forecast, Params, Result, Step, StepContext


class RivalStep(Step[Params]):
    """Another greeting."""

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        """Greet in another way."""
        return Result(message="good day")
