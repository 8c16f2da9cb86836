"""The executor behind drift: checks whether hosts are still as a run left them, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.history import RunHistory
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.model.result import ForecastState, HostResult, Status
from kubexm_exec.scheduler import Action
from kubexm_exec.step import AnyStep, Forecast


class DriftExecutor(CheckExecutor):
    """Like check, but with the outputs of the run, so that more can be checked."""

    def __init__(self, history: RunHistory, hosts: frozenset[str]) -> None:
        """``hosts``: those that are checked."""
        self._history = history
        self._hosts = hosts

    def begin(self) -> None:
        """Nothing is fetched or changed, not even on the control node."""
        super().begin()
        self.runtime.looks_only = "drift fetches nothing; `kubexm resources fetch` does"

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Check it; a host that is not checked is assumed to be unchanged."""
        if attempt.host in self._hosts:
            return super().perform(attempt)
        result = HostResult(host_name=attempt.host, status=Status.SUCCESS)
        return self.lifecycle.done(attempt, ActionOutcome(result, self._outputs(attempt)))

    def found(self, attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome for a forecast, with the outputs of the run."""
        outcome = super().found(attempt, step, forecast)
        outputs = self._outputs(attempt)
        if outcome.unknown and outputs is not None:
            outcome.outputs, outcome.unknown = outputs or None, ""
        return outcome

    def _outputs(self, attempt: Attempt) -> Mapping[str, Any] | None:
        """What the step returned in the run; None if that is not known."""
        told = self._history.actions.get(Action(attempt.node.id, attempt.host))
        return None if told is None or told.result is None or told.hidden else told.result.outputs

    def excuses(self, forecast: Forecast[Any]) -> bool:
        """Only what differs can make later steps fail: all was done once."""
        return forecast.state is ForecastState.CHANGE
