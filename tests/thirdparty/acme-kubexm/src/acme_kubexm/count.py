"""The executor ``acme-count``: runs the graph and counts what it performed, by step type."""

from __future__ import annotations

import threading
from collections import Counter

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.result import GraphExecutionResult


class CountExecutor(Executor):
    """Makes the spec true and says how many actions of each step type were performed."""

    name = "acme-count"

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Count it, and do it."""
        with self._lock:
            self._counts[attempt.node.step_name] += 1
        return super().perform(attempt)

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Run the graph to its end, and say the counts."""
        result = super().execute(runtime)
        said = ", ".join(f"{number} {name}" for name, number in sorted(self._counts.items()))
        result.message = f"{result.message}; performed {said}"
        return result
