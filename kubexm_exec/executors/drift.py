"""The executor behind drift: looks whether what a run has made is still so, and changes nothing."""

from __future__ import annotations

from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.driver import Driver
from kubexm_exec.engine.history import RunHistory
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.executors.check import Check
from kubexm_exec.model.result import ForecastState, GraphExecutionResult, HostResult, Status
from kubexm_exec.scheduler import Action
from kubexm_exec.step import Forecast, Step


class DriftExecutor:
    """As check, but what steps gave is known from the run: so that more can be told."""

    acts = False

    def __init__(self, history: RunHistory, hosts: frozenset[str]) -> None:
        """``hosts``: those that are looked at."""
        self._story = history
        self._hosts = hosts

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Look at every action."""
        runtime.looks_only = "drift fetches nothing; `kubexm resources fetch` does"
        look = _Drift(runtime, self._story, self._hosts)
        return Driver(runtime, look.perform, name="check", forks=max(1, runtime.options.forks), acts=False).run()


class _Drift(Check):
    def __init__(self, runtime: Runtime, history: RunHistory, hosts: frozenset[str]) -> None:
        super().__init__(runtime)
        self._story = history
        self._hosts = hosts

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Look at it; of a host that is not looked at it is taken to be as it was."""
        if attempt.host in self._hosts:
            return super().perform(attempt)
        told = self._story.actions.get(Action(attempt.node.id, attempt.host))
        outputs = told.result.outputs if told is not None and told.result is not None and not told.hidden else None
        result = HostResult(host_name=attempt.host, status=Status.SUCCESS)
        return self._lifecycle.done(attempt, ActionOutcome(result, outputs))

    def found(self, attempt: Attempt, step: Step[Any], forecast: Forecast) -> ActionOutcome:
        """What a forecast comes to; what a step gave in the run is known."""
        outcome = super().found(attempt, step, forecast)
        told = self._story.actions.get(Action(attempt.node.id, attempt.host))
        if outcome.unknown and told is not None and told.result is not None and not told.hidden:
            outcome.outputs, outcome.unknown = told.result.outputs or None, ""
        return outcome

    def excuses(self, forecast: Forecast) -> bool:
        """It was done once, so that only what differs can be why others fail."""
        return forecast.state is ForecastState.CHANGE
