"""The executor that contacts no host: shows every action in order, with its parameters as far as they are known."""

from __future__ import annotations

from typing import Any, Final

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.sensitive import shown_params
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.result import ForecastState, HostResult, RunMode, Status
from kubexm_exec.step import AnyStep
from kubexm_exec.values.expressions import UnknownValueError

_OFFLINE: Final = "a dry run contacts no host"


class DryRunExecutor(Executor):
    """Shows what would run where, in order, without contacting any host."""

    name = "dry-run"
    mode = RunMode.OFFLINE
    one_by_one = True

    def begin(self) -> None:
        """No host is contacted."""
        self.runtime.offline = _OFFLINE

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Render what can be rendered, and report it."""
        try:
            outcome = self._forecast(attempt)
        except BaseException as error:  # noqa: BLE001  a step type that cannot be loaded or checked is the action's failure
            outcome = self.lifecycle.broke(attempt, error, None)
        return self.lifecycle.done(attempt, outcome)

    def _forecast(self, attempt: Attempt) -> ActionOutcome:
        node = attempt.node
        unknown: list[UnknownValueError] = []
        condition, unmet = "true", None
        try:
            unmet = self.lifecycle.unmet(attempt)
            if unmet is not None:
                condition = "false"
        except UnknownValueError as error:
            condition = "unknown"
            unknown.append(error)
        if attempt.only_if and unmet is None:
            condition = "unknown"
        kind: type[AnyStep] = self.runtime.steps.load(node.step_name)
        params: dict[str, Any] = {}
        if condition != "false":
            params, more = self.runtime.evaluator.partial_params(node, attempt.host, skip=self.lifecycle.raw_keys(kind))
            unknown += more
            if not more:
                attempt.used = kind.params_model.model_validate(params)
            try:
                self.runtime.evaluator.env(node, attempt.host)
            except UnknownValueError as error:
                unknown.append(error)
        names = list(dict.fromkeys(error.name for error in unknown))
        state = ForecastState.UNKNOWN if unknown or attempt.only_if else ForecastState.CHANGE
        message = _message(attempt, condition, names)
        if unmet is not None:
            message = f"would not run: {unmet.result.message}"
        self.tell(
            attempt,
            state,
            attempt.because(message),
            params=shown_params(node, params),
            unknown=names,
            condition=condition,
        )
        if unmet is not None:
            return unmet
        result = HostResult(host_name=attempt.host, status=Status.SUCCESS, message=message, forecast=state)
        return ActionOutcome(result, unknown=f"{node.id} has not run: {_OFFLINE}")


def _message(attempt: Attempt, condition: str, names: list[str]) -> str:
    node = attempt.node
    text = f"would run {node.step_name}"
    if attempt.only_if:
        text += f" if {attempt.only_if} changes something"
    elif condition == "unknown":
        text += f" if {node.when}" if isinstance(node.when, str) else " if its condition holds"
    return f"{text} (not known yet: {', '.join(names)})" if names else text
