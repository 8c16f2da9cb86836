"""The executor for debugging: one action at a time, with a person or a script deciding before each."""

from __future__ import annotations

from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext
from kubexm_exec.engine.failures import failed
from kubexm_exec.engine.lifecycle import diff_data, skipped
from kubexm_exec.engine.sensitive import shown_params
from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.debugger import Choice, Debugger, Stop
from kubexm_exec.model.result import HostResult, Status
from kubexm_exec.step import AnyStep, Forecast


class DebugExecutor(Executor):
    """Runs the graph one action at a time and asks before each."""

    name = "debug"
    one_by_one = True
    at_a_terminal = True

    def begin(self) -> None:
        """The debugger's commands come from the runtime's input."""
        self._changed: dict[tuple[str, str], dict[str, object]] = {}
        """Parameters that were set at the prompt: they apply to later attempts, too."""
        self._count = 0
        self.debugger = Debugger(self.runtime, self.driver.scheduler)

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Perform it as the prompt says."""
        if attempt.number == 1:
            self._count += 1
        debugger = self.debugger
        changed = self._changed.get((attempt.node.id, attempt.host))
        if changed is not None:
            attempt.params = changed
        if debugger.has_quit or not debugger.stops_at(attempt.node):
            outcome = self._run(attempt)
        else:
            outcome = self._asked(attempt)
        while not debugger.has_quit and self._wants_answer(attempt, outcome):
            choice = debugger.after_failure(attempt, outcome.result)
            if choice is Choice.SKIP:
                return self._skipped(attempt, f"skipped by hand after a failure: {outcome.result.message}")
            if choice is not Choice.RETRY:
                break
            outcome = self._run(attempt)
        return outcome

    def _run(self, attempt: Attempt) -> ActionOutcome:
        attempt.begin()
        outcome = self.lifecycle.perform(attempt)
        # Events report a success; a failure only when it is settled what becomes of it.
        if not self.debugger.has_quit and outcome.result.status is Status.FAILED:
            self.debugger.show_failure(attempt, outcome.result)
        return outcome

    def _wants_answer(self, attempt: Attempt, outcome: ActionOutcome) -> bool:
        """When stepping every failure is asked about; otherwise only the last attempt's."""
        if outcome.result.status is not Status.FAILED:
            return False
        retry = attempt.node.policy.retry
        kind = outcome.result.kind
        is_tried_again = attempt.number < retry.attempts and kind is not None and kind.value in retry.on
        return self.debugger.stepping or not is_tried_again

    def _asked(self, attempt: Attempt) -> ActionOutcome:
        try:
            unmet = self.lifecycle.unmet(attempt)
            if unmet is not None:
                outcome = self.lifecycle.done(attempt, unmet)
                self.debugger.show_skip(self._position(), attempt, outcome.result.message)
                return outcome
        except BaseException as error:  # noqa: BLE001  a condition that cannot be evaluated is the action's failure
            outcome = self.lifecycle.done(attempt, self.lifecycle.broke(attempt, error, None))
            self.debugger.show_failure(attempt, outcome.result)
            return outcome
        while True:
            stop = self._look(attempt)
            choice = self.debugger.before(stop)
            if choice is Choice.CHANGED:
                self._changed[attempt.node.id, attempt.host] = dict(attempt.params or {})
                continue
            if choice is Choice.SKIP:
                return self._skipped(attempt, "skipped by hand")
            if choice is Choice.QUIT:
                result = HostResult(
                    host_name=attempt.host, status=Status.CANCELLED, message="not run: the debugger was quit"
                )
                return self.lifecycle.done(attempt, ActionOutcome(result))
            return self._run(attempt)

    def _look(self, attempt: Attempt) -> Stop:
        """Render the parameters and call the precheck, without changing anything."""
        attempt.begin()
        stop = Stop(self._position(), attempt)
        ctx: ActionContext | None = None
        try:
            stop.params = self._params(attempt)
            step = self.lifecycle.step(attempt)
            ctx = ActionContext(self.runtime, attempt)
            stop.forecast = self.lifecycle.forecast(step, ctx)
        except BaseException as error:  # noqa: BLE001  it is shown, and the person decides
            stop.problem = failed(attempt, error).message
        if ctx is not None:
            ctx.close()
        forecast = stop.forecast or Forecast.unknown(stop.problem)
        diffs = [] if attempt.node.sensitive else diff_data(forecast.diffs)
        self.tell(attempt, forecast.state, forecast.message, diffs, params=shown_params(attempt.node, stop.params))
        return stop

    def _params(self, attempt: Attempt) -> dict[str, Any]:
        if attempt.params is not None:
            return dict(attempt.params)
        kind: type[AnyStep] = self.runtime.steps.load(attempt.node.step_name)
        skip = self.lifecycle.raw_keys(kind)
        return self.runtime.evaluator.params(attempt.node, attempt.host, skip=skip)

    def _position(self) -> str:
        return f"[{self._count}/{self.runtime.graph.actions()}]"

    def _skipped(self, attempt: Attempt, why: str) -> ActionOutcome:
        return self.lifecycle.done(attempt, skipped(attempt, why))
