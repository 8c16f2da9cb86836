"""The executor that only looks: asks every step's precheck what it would change, and changes nothing."""

from __future__ import annotations

from collections import deque
from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext
from kubexm_exec.engine.driver import Driver
from kubexm_exec.engine.failures import caused_by
from kubexm_exec.engine.lifecycle import Lifecycle, diff_data
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.events import ACTION_FORECAST
from kubexm_exec.model.result import ForecastState, GraphExecutionResult, HostResult, Status
from kubexm_exec.step import Forecast, Step
from kubexm_exec.values.expressions import UnknownValueError


class CheckExecutor:
    """Shows per host what would change; contacts the hosts, runs only prechecks, changes nothing."""

    acts = False

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Look at every action."""
        runtime.looks_only = "check fetches nothing; `kubexm resources fetch` does"
        check = Check(runtime)
        return Driver(runtime, check.perform, name="check", forks=max(1, runtime.options.forks), acts=False).run()


class Check:
    """Asks prechecks, and says what they said."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lifecycle = Lifecycle(runtime)
        self._open: dict[str, set[str]] = {}
        """By host, the nodes that would change it, or of which that is not known."""

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Ask the precheck, and tell what it says."""
        ctx: ActionContext | None = None
        try:
            unmet = self._lifecycle.unmet(attempt)
            if unmet is not None:
                return self._lifecycle.done(attempt, unmet)
            step = self._lifecycle.step(attempt)
            ctx = ActionContext(self._runtime, attempt)
            forecast = self._lifecycle.forecast(step, ctx)
            if forecast.asks:
                outcome = self._asked(attempt, step, ctx, forecast)
            else:
                outcome = self.found(attempt, step, forecast)
        except UnknownValueError as error:
            outcome = self.would_run(attempt, Forecast.unknown(error.because or error.message))
        except BaseException as error:  # noqa: BLE001  a precheck may raise anything: it is its own failure
            outcome = self._raised(attempt, error, ctx)
        if ctx is not None:
            ctx.close()
        outcome = self._lifecycle.done(attempt, outcome)
        result = outcome.result
        if result.forecast is not None:
            self._runtime.bus.emit(
                ACTION_FORECAST,
                attempt.node.id,
                attempt.host,
                state=result.forecast.value,
                message=result.message,
                diffs=result.diffs,
            )
        return outcome

    def _asked(self, attempt: Attempt, step: Step[Any], ctx: ActionContext, forecast: Forecast) -> ActionOutcome:
        """What a step that only asks came to: it was really run, so that its outputs are known."""
        result = step.run(ctx)
        outcome = self._lifecycle.ran(attempt, step, result, forecast)
        if result.changed:
            raise TypeError(f"{type(step).__name__}.run changed something, and its precheck said that it only reads")
        outcome.result.forecast = ForecastState.SATISFIED
        return outcome

    def found(self, attempt: Attempt, step: Step[Any], forecast: Forecast) -> ActionOutcome:
        """What a forecast comes to."""
        if forecast.state is not ForecastState.SATISFIED:
            return self.would_run(attempt, forecast)
        outcome = self._lifecycle.satisfied(attempt, step, forecast)
        if forecast.runs:
            outcome.unknown = f"depends on {attempt.node.id}, which check does not run"
        return outcome

    def would_run(self, attempt: Attempt, forecast: Forecast) -> ActionOutcome:
        """The outcome of a step that would do something, or may."""
        if self.excuses(forecast):
            self._open.setdefault(attempt.place, set()).add(attempt.node.id)
        result = HostResult(
            host_name=attempt.host,
            status=Status.SUCCESS,
            message=forecast.message,
            forecast=forecast.state,
            diffs=diff_data(forecast.diffs),
        )
        return ActionOutcome(result, unknown=f"depends on {attempt.node.id}")

    def excuses(self, forecast: Forecast) -> bool:
        """Whether what comes after it on the host may fail now only because this was not done."""
        return not forecast.runs

    def _raised(self, attempt: Attempt, error: BaseException, ctx: ActionContext | None) -> ActionOutcome:
        # A host that does not answer will not do so after a change either.
        before = "" if caused_by(error, ConnectorError) else self._nearest_open(attempt)
        if before:
            return self.would_run(attempt, Forecast.unknown(f"depends on {before}"))
        return self._lifecycle.broke(attempt, error, ctx)

    def _nearest_open(self, attempt: Attempt) -> str:
        """The nearest node before this one that would change the same host, or may."""
        would_change = self._open.get(attempt.place)
        if not would_change:
            return ""
        nodes = self._runtime.nodes
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
