"""The executor that only looks: calls every step's precheck, and changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext
from kubexm_exec.engine.failures import caused_by
from kubexm_exec.engine.lifecycle import diff_data
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.errors import ConnectorError, NotYet, StepFailed
from kubexm_exec.model.result import ForecastState, HostResult, RunMode, Status
from kubexm_exec.step import AnyStep, Effect, Forecast, Undo
from kubexm_exec.values.expressions import UnknownValueError


class CheckExecutor(Executor):
    """Shows per host what would change; contacts the hosts, runs only prechecks, changes nothing."""

    name = "check"
    mode = RunMode.LOOK

    def begin(self) -> None:
        """Nothing is fetched or changed, not even on the control node."""
        self.runtime.looks_only = "check fetches nothing; `kubexm resources fetch` does"
        self._open: dict[str, dict[str, Forecast[Any]]] = {}
        """By host, the nodes that would change it, or may."""
        self._names: dict[tuple[str, int | None], list[str]] = {}
        """The hosts by machine: it may have several names."""
        for host in self.runtime.graph.hosts.values():
            self._names.setdefault(host.machine, []).append(host.name)

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Call the precheck, and report its forecast."""
        ctx: ActionContext | None = None
        try:
            unmet = self.lifecycle.unmet(attempt)
            if unmet is not None:
                return self.lifecycle.done(attempt, unmet)
            if attempt.only_if:
                raise UnknownValueError(attempt.node.id, f"runs only if {attempt.only_if} changes something")
            step = self.lifecycle.step(attempt)
            ctx = ActionContext(self.runtime, attempt)
            forecast = self.lifecycle.forecast(step, ctx)
            if forecast.failure is not None and self._would_fail(attempt, forecast.failure, ctx):
                raise forecast.failure
            if forecast.decides:
                self._check_reads(attempt, ctx)
            if forecast.effect is Effect.READS:
                outcome = self._asked(attempt, step, ctx, forecast)
            else:
                outcome = self.found(attempt, step, forecast)
            if (attempt.connected and step.undo is Undo.NEEDLESS) or forecast.effect is Effect.READS:
                self._doubt_outputs(attempt, outcome)
        except NotYet as error:
            outcome = self.would_run(attempt, Forecast.unknown(error.message))
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

    def _check_reads(self, attempt: Attempt, ctx: ActionContext) -> None:
        """Raise UnknownValueError if what a step has read on a host by name would be replaced before it runs."""
        for host, path in ctx.reads:
            before = self._nearest(attempt, host, partial(_would_change, path))
            if before:
                raise UnknownValueError(attempt.node.id, f"depends on {before}")

    def _doubt_outputs(self, attempt: Attempt, outcome: ActionOutcome) -> None:
        """What a step reads on the host as it is now may be something else after a change that comes before it."""
        before = "" if outcome.unknown else self._nearest(attempt, attempt.place, lambda by: True)
        if before:
            outcome.unknown = f"depends on {before}"

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
            self._open.setdefault(attempt.place, {})[attempt.node.id] = forecast
        result = HostResult(
            host_name=attempt.host,
            status=Status.SUCCESS,
            message=forecast.message,
            forecast=forecast.state,
            diffs=diff_data(forecast.diffs) or (),
        )
        return ActionOutcome(result, unknown=f"depends on {attempt.node.id}")

    def unexpanded(self, attempt: Attempt, error: UnknownValueError) -> ActionOutcome:
        """The outcome of a loop whose items are not known: each of them may change something."""
        self._open.setdefault(attempt.place, {})[attempt.node.id] = Forecast.unknown(error.message)
        return super().unexpanded(attempt, error)

    def excuses(self, forecast: Forecast[Any]) -> bool:
        """Whether later steps on the host may fail now only because this one did not run."""
        return forecast.effect is Effect.CHANGES

    def _raised(self, attempt: Attempt, error: BaseException, ctx: ActionContext | None) -> ActionOutcome:
        # A host that does not answer would not do so after a change either.
        before = "" if caused_by(error, ConnectorError) else self._excuse(attempt, error, ctx)
        if before:
            return self.would_run(attempt, Forecast.unknown(f"depends on {before}"))
        return self.lifecycle.broke(attempt, error, ctx)

    def _would_fail(self, attempt: Attempt, failure: StepFailed, ctx: ActionContext) -> bool:
        """Whether nothing before this one may bring what it lacks, under any name of the machine."""
        here = self.runtime.graph.hosts.get(attempt.place)
        names = (attempt.place,) if here is None else self._names[here.machine]
        brings = partial(_may_change, failure.file)
        return not any(self._nearest(attempt, name, brings) for name in names) and not (
            self._excuse(attempt, failure, ctx)
        )

    def _excuse(self, attempt: Attempt, error: BaseException, ctx: ActionContext | None) -> str:
        """The nearest node before this one that may prevent its failure; empty if there is none."""
        file = error.file if isinstance(error, StepFailed) else ""
        places = [(attempt.place, file), *(ctx.reads if ctx is not None else ())]
        found = (self._nearest(attempt, host, partial(_may_change, path)) for host, path in places)
        return next(filter(None, found), "")

    def _nearest(self, attempt: Attempt, host: str, matters: Callable[[Forecast[Any]], bool]) -> str:
        """The nearest node before this one that would change a host, or may, in a way that matters."""
        would_change = {node for node, by in self._open.get(host, {}).items() if matters(by)}
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


def _may_change(path: str, forecast: Forecast[Any]) -> bool:
    """Whether what would be done may change a file, or anything if no file is meant."""
    return not path or forecast.replaces in ("", path)


def _would_change(path: str, forecast: Forecast[Any]) -> bool:
    return any(diff.path == path for diff in forecast.diffs)
