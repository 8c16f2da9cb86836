"""The executor for real runs: as many actions at once as the limits allow."""

from __future__ import annotations

from kubexm_exec.engine.driver import Driver
from kubexm_exec.engine.lifecycle import Lifecycle
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.result import GraphExecutionResult


class ConcurrentExecutor:
    """Makes the spec true on all hosts, in parallel."""

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Run the graph to its end."""
        lifecycle = Lifecycle(runtime)
        return Driver(runtime, lifecycle.perform, name="concurrent", forks=max(1, runtime.options.forks)).run()
