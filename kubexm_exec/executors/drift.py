"""The executor behind drift: looks whether what a run has made is still so, and changes nothing."""

from __future__ import annotations

from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.history import RunHistory
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.model.result import ForecastState, HostResult, Status
from kubexm_exec.scheduler import Action
from kubexm_exec.step import AnyStep, Forecast


class DriftExecutor(CheckExecutor):
    """As check, but what steps gave is known from the run: so that more can be told."""

    def __init__(self, history: RunHistory, hosts: frozenset[str]) -> None:
        """``hosts``: those that are looked at."""
        self._history = history
        self._hosts = hosts

    def begin(self) -> None:
        """Nothing is fetched or changed, here neither."""
        super().begin()
        self.runtime.looks_only = "drift fetches nothing; `kubexm resources fetch` does"

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Look at it; of a host that is not looked at it is taken to be as it was."""
        if attempt.host in self._hosts:
            return super().perform(attempt)
        told = self._history.actions.get(Action(attempt.node.id, attempt.host))
        outputs = told.result.outputs if told is not None and told.result is not None and not told.hidden else None
        result = HostResult(host_name=attempt.host, status=Status.SUCCESS)
        return self.lifecycle.done(attempt, ActionOutcome(result, outputs))

    def found(self, attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> ActionOutcome:
        """What a forecast comes to; what a step gave in the run is known."""
        outcome = super().found(attempt, step, forecast)
        told = self._history.actions.get(Action(attempt.node.id, attempt.host))
        if outcome.unknown and told is not None and told.result is not None and not told.hidden:
            outcome.outputs, outcome.unknown = told.result.outputs or None, ""
        return outcome

    def excuses(self, forecast: Forecast[Any]) -> bool:
        """It was done once, so that only what differs can be why others fail."""
        return forecast.state is ForecastState.CHANGE
