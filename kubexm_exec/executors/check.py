"""The executor that only looks: calls every step's precheck, and changes nothing."""

from __future__ import annotations

from collections import deque
from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext
from kubexm_exec.engine.failures import caused_by
from kubexm_exec.engine.lifecycle import diff_data
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.result import ForecastState, HostResult, RunMode, Status
from kubexm_exec.step import AnyStep, Effect, Forecast
from kubexm_exec.values.expressions import UnknownValueError


class CheckExecutor(Executor):
    """Shows per host what would change; contacts the hosts, runs only prechecks, changes nothing."""

    name = "check"
    mode = RunMode.LOOK

    def begin(self) -> None:
        """Nothing is fetched or changed, not even on the control node."""
        self.runtime.looks_only = "check fetches nothing; `kubexm resources fetch` does"
        self._open: dict[str, set[str]] = {}
        """By host, the nodes that would change it, or may."""

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Call the precheck, and report its forecast."""
        ctx: ActionContext | None = None
        try:
            unmet = self.lifecycle.unmet(attempt)
            if unmet is not None:
                return self.lifecycle.done(attempt, unmet)
            step = self.lifecycle.step(attempt)
            ctx = ActionContext(self.runtime, attempt)
            forecast = self.lifecycle.forecast(step, ctx)
            if forecast.effect is Effect.READS:
                outcome = self._asked(attempt, step, ctx, forecast)
            else:
                outcome = self.found(attempt, step, forecast)
        except UnknownValueError as error:
            outcome = self.would_run(attempt, Forecast.unknown(error.because or error.message))
        except BaseException as error:  # noqa: BLE001  a precheck may raise anything: it is the action's failure
            outcome = self._raised(attempt, error, ctx)
        if ctx is not None:
            ctx.close()
        outcome = self.lifecycle.done(attempt, outcome)
        result = outcome.result
        if result.forecast is not None:
            self.tell(attempt, result.forecast, result.message, result.diffs)
        return outcome

    def _asked(self, attempt: Attempt, step: AnyStep, ctx: ActionContext, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome of a step that only reads: it is really run, so that its outputs are known."""
        result = step.run(ctx, forecast)
        outcome = self.lifecycle.ran(attempt, step, result, forecast)
        if result.changed:
            raise TypeError(
                f"{type(step).__name__}.run changed something, although its precheck said that it only reads"
            )
        outcome.result.forecast = ForecastState.SATISFIED
        return outcome

    def found(self, attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome for a forecast."""
        if forecast.state is not ForecastState.SATISFIED:
            return self.would_run(attempt, forecast)
        outcome = self.lifecycle.satisfied(attempt, step, forecast)
        if forecast.effect is not Effect.NONE:
            outcome.unknown = f"depends on {attempt.node.id}, which check does not run"
        return outcome

    def would_run(self, attempt: Attempt, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome of a step that would run, or may."""
        if self.excuses(forecast):
            self._open.setdefault(attempt.place, set()).add(attempt.node.id)
        result = HostResult(
            host_name=attempt.host,
            status=Status.SUCCESS,
            message=forecast.message,
            forecast=forecast.state,
            diffs=diff_data(forecast.diffs) or (),
        )
        return ActionOutcome(result, unknown=f"depends on {attempt.node.id}")

    def excuses(self, forecast: Forecast[Any]) -> bool:
        """Whether later steps on the host may fail now only because this one did not run."""
        return forecast.effect is Effect.CHANGES

    def _raised(self, attempt: Attempt, error: BaseException, ctx: ActionContext | None) -> ActionOutcome:
        # A host that does not answer would not do so after a change either.
        before = "" if caused_by(error, ConnectorError) else self._nearest_open(attempt)
        if before:
            return self.would_run(attempt, Forecast.unknown(f"depends on {before}"))
        return self.lifecycle.broke(attempt, error, ctx)

    def _nearest_open(self, attempt: Attempt) -> str:
        """The nearest node before this one that would change the same host, or may."""
        would_change = self._open.get(attempt.place)
        if not would_change:
            return ""
        nodes = self.runtime.nodes
        seen = {attempt.node.id}
        pending = deque([attempt.node])
        while pending:
            for dependency in pending.popleft().dependencies:
                if dependency.node in would_change:
                    return dependency.node
                if dependency.node not in seen and dependency.node in nodes:
                    seen.add(dependency.node)
                    pending.append(nodes[dependency.node])
        return ""
