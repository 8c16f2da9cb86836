"""The base of executors: a name, what it may do to hosts, and what it does with an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.driver import Driver
from kubexm_exec.engine.lifecycle import Lifecycle
from kubexm_exec.engine.ports import Done, Perform, Workers
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.workers import Threads
from kubexm_exec.model.events import ACTION_FORECAST
from kubexm_exec.model.result import ForecastState, GraphExecutionResult, HostResult, RunMode, Status
from kubexm_exec.plugins import RAISES, Registry, RegistryError, raised
from kubexm_exec.values.expressions import UnknownValueError


class Executor:
    """Runs the graph of a runtime: in its order, within its limits, with retries, hooks and policies.

    A subclass says what to do with an attempt. Registered in the entry-point group ``kubexm.executors``, it can be
    chosen by its name.
    """

    name: ClassVar[str] = ""
    """Its name in events and results."""
    mode: ClassVar[RunMode] = RunMode.ACT
    """What it may do to hosts. Only a run that acts is recorded in the journal, and retries."""
    one_by_one: ClassVar[bool] = False
    """Whether attempts are performed one after another in the calling thread, in graph order."""
    at_a_terminal: ClassVar[bool] = False
    """Whether it uses the terminal itself: nothing else is drawn there then."""
    runtime: Runtime
    lifecycle: Lifecycle
    """The usual way to perform an attempt, as a whole and in parts."""
    driver: Driver

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Run the graph to its end; a failure of a step is in the result, never raised."""
        self.runtime = runtime
        self.lifecycle = Lifecycle(runtime)
        forks = None if self.one_by_one else max(1, runtime.options.forks)
        self.driver = Driver(
            runtime, self._perform, name=self.name, forks=forks, mode=self.mode, workers=self.make_workers
        )
        try:
            self.begin()
        except RAISES as error:
            who = f"{type(self).__module__}.{type(self).__qualname__}"
            what = f'executor "{self.name}": {who}.begin raised {raised(error)}'
            raise RegistryError("broken-executor", what, "repair or remove its package") from error
        return self.driver.run()

    def begin(self) -> None:
        """Prepare; called once, before the first attempt."""

    def make_workers(self, perform: Perform, report: Callable[[Done], None], most: int) -> Workers:
        """Workers that perform attempts in parallel: threads of this process."""
        return Threads(perform, report, most)

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Perform an attempt, and return its outcome. Called by several threads at once."""
        return self.lifecycle.perform(attempt)

    def _perform(self, attempt: Attempt) -> ActionOutcome:
        """A loop whose items are known only now is expanded by every executor; each item is performed by itself."""
        if attempt.node.loop is None:
            return self.perform(attempt)
        try:
            outcome = self.lifecycle.expand(attempt)
        except UnknownValueError as error:
            outcome = self.unexpanded(attempt, error)
        outcome = self.lifecycle.done(attempt, outcome)
        result = outcome.result
        if self.mode is not RunMode.ACT and result.status is Status.SUCCESS:
            result.forecast = result.forecast or ForecastState.SATISFIED
            self.tell(attempt, result.forecast, result.message)
        return outcome

    def unexpanded(self, attempt: Attempt, error: UnknownValueError) -> ActionOutcome:
        """The outcome of a loop whose items are not known, which can only be when nothing is run."""
        if self.mode is RunMode.ACT:
            return self.lifecycle.broke(attempt, error, None)
        node = attempt.node
        because = error.because or error.message
        message = f"would run {node.step_name}, one for each of {node.loop} (known at run time: {because})"
        result = HostResult(
            host_name=attempt.host, status=Status.SUCCESS, message=message, forecast=ForecastState.UNKNOWN
        )
        return ActionOutcome(result, unknown=f"depends on {node.id}")

    def tell(
        self, attempt: Attempt, state: ForecastState, message: str, diffs: Sequence[Mapping[str, Any]] = (), **more: Any
    ) -> None:
        """Report the forecast of an attempt."""
        node, host = attempt.node.id, attempt.host
        self.runtime.bus.emit(
            ACTION_FORECAST, node, host, state=state.value, message=message, diffs=list(diffs), **more
        )


def load_executor(registry: Registry[Any], name: str) -> type[Executor]:
    """An installed executor; raises RegistryError if there is none, or if it is not an executor."""
    found: Any = registry.load(name)
    mode: Any = getattr(found, "mode", None)
    if not (isinstance(found, type) and issubclass(found, Executor)):
        wrong = f"is not an Executor class but {found!r:.60}"
    elif not found.name:
        wrong = "has no name"
    elif not isinstance(mode, RunMode):
        wrong = f"has the mode {mode!r:.60}: it must be a RunMode, such as RunMode.ACT"
    else:
        return found
    raise registry.broken(name, wrong)
