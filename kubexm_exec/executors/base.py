"""What an executor is: a class that walks the graph of a runtime and gives the result."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.result import GraphExecutionResult


@runtime_checkable
class Executor(Protocol):
    """A class with this shape, registered in the entry-point group ``kubexm.executors``, can be chosen by its name."""

    def __init__(self) -> None: ...

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Walk the graph to its end; a failure of a step is in the result, never raised."""
