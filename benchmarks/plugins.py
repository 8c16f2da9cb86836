"""Step types that do nothing, or only wait; and a registry that knows them."""

from __future__ import annotations

from typing import Any

from kubexm_exec.plugins import PluginInfo, Registry
from kubexm_exec.step import AnyStep, Duration, Forecast, Params, Result, Step, StepContext


class NoopStep(Step[Params]):
    """Does nothing."""

    def precheck(self, ctx: StepContext) -> Forecast:
        """Always something to do."""
        return _CHANGE

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        """Do nothing."""
        return _RESULT


class NapParams(Params):
    """How long to wait."""

    seconds: dict[str, Duration]


class NapStep(Step[NapParams]):
    """Waits as long as its host is told to."""

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        """Wait."""
        ctx.sleep(self.params.seconds[ctx.host.name])
        return _RESULT


_CHANGE = Forecast.change()
_RESULT = Result(changed=True)
_TYPES: dict[str, type[AnyStep]] = {"noop": NoopStep, "nap": NapStep}


class BenchRegistry(Registry[Any]):
    """The step types above, as if they were installed."""

    def __init__(self) -> None:
        super().__init__("kubexm.steps", "step type")

    def names(self) -> list[str]:
        """All names."""
        return sorted(_TYPES)

    def info(self, name: str) -> PluginInfo:
        """Where a type is from."""
        return PluginInfo(name, "benchmarks.plugins", "benchmarks", "0")

    def load(self, name: str) -> Any:
        """The type."""
        return _TYPES[name]
