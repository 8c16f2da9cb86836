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
from kubexm_exec.model.result import ForecastState, GraphExecutionResult, RunMode
from kubexm_exec.plugins import RAISES, Registry, RegistryError


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
            runtime, self.perform, name=self.name, forks=forks, mode=self.mode, workers=self.make_workers
        )
        try:
            self.begin()
        except RAISES as error:
            who = f"{type(self).__module__}.{type(self).__qualname__}"
            what = f'executor "{self.name}": {who}.begin raised {type(error).__name__}: {error}'
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
