"""What an executor is: a name, what it may do to hosts, and what it does with an attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.driver import Driver
from kubexm_exec.engine.lifecycle import Lifecycle
from kubexm_exec.engine.ports import Done, Perform, Workers
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.workers import Threads
from kubexm_exec.model.result import GraphExecutionResult, RunMode
from kubexm_exec.plugins import Registry, RegistryError


class Executor:
    """Walks the graph of a runtime: in its order, within its limits, with retries, hooks and policies.

    A subclass says what is done with an attempt. Registered in the entry-point group ``kubexm.executors``, it can be
    chosen by its name.
    """

    name: ClassVar[str] = ""
    """How it is called in events and results."""
    mode: ClassVar[RunMode] = RunMode.ACT
    """What it may do to hosts. Only a run that acts is written to the journal, and retries."""
    one_by_one: ClassVar[bool] = False
    """Whether attempts are performed one after another in the calling thread, in the order of the graph."""
    at_a_terminal: ClassVar[bool] = False
    """Whether somebody sits at the terminal and talks to it: nothing else is drawn there then."""
    runtime: Runtime
    lifecycle: Lifecycle
    """The usual way to perform an attempt, as a whole and in parts."""
    driver: Driver

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Walk the graph to its end; a failure of a step is in the result, never raised."""
        self.runtime = runtime
        self.lifecycle = Lifecycle(runtime)
        forks = None if self.one_by_one else max(1, runtime.options.forks)
        self.driver = Driver(
            runtime, self.perform, name=self.name, forks=forks, mode=self.mode, workers=self.make_workers
        )
        self.begin()
        return self.driver.run()

    def begin(self) -> None:
        """Get ready; called once, before the first attempt."""

    def make_workers(self, perform: Perform, report: Callable[[Done], None], most: int) -> Workers:
        """Those who perform attempts side by side: threads of this process."""
        return Threads(perform, report, most)

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Do what is to be done with an attempt, and say what it came to. Called by several threads at once."""
        return self.lifecycle.perform(attempt)


def load_executor(registry: Registry[Any], name: str) -> type[Executor]:
    """An installed executor; raises RegistryError if there is none, or if what is there is no executor."""
    found: Any = registry.load(name)
    if not (isinstance(found, type) and issubclass(found, Executor)):
        wrong = f"is no Executor class but {found!r:.60}"
    elif not found.name:
        wrong = "has no name"
    else:
        return found
    package = registry.info(name).distribution
    raise RegistryError(
        "broken-executor", f'executor "{name}" of package {package} {wrong}', f"repair or remove the package {package}"
    )
