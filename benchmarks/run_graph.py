"""Runs a graph of benchmark steps with the concurrent executor, with events on, as a run from the command line does."""

from __future__ import annotations

import time

from benchmarks.plugins import BenchRegistry
from kubexm_exec.cli.gc import settle
from kubexm_exec.engine.runtime import RunOptions, Runtime
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.journal.session import Recorder
from kubexm_exec.model.events import Event, EventBus
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.ids import new_run_id
from kubexm_exec.model.result import GraphExecutionResult, Status
from kubexm_exec.plugins import connector_registry
from kubexm_exec.secrets import Redactor, Secrets


class Counter:
    """A subscriber that does next to nothing."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: Event) -> None:
        """One more."""
        self.count += 1


def run_graph(
    graph: ExecutionGraph, forks: int, journal: Recorder | None = None
) -> tuple[float, GraphExecutionResult, int]:
    """Seconds of the execution alone, the result, and how many events there were; written down if so wanted."""
    redactor = Redactor()
    bus = EventBus(new_run_id(), redactor.mask)
    counter = Counter()
    bus.subscribe(counter)
    runtime = Runtime(
        graph,
        options=RunOptions(forks=forks),
        bus=bus,
        secrets=Secrets(redactor),
        steps=BenchRegistry(),
        connectors=connector_registry(),
    )
    runtime.journal = journal
    try:
        settle()
        begun = time.perf_counter()
        result = ConcurrentExecutor().execute(runtime)
        seconds = time.perf_counter() - begun
    finally:
        runtime.close()
    if result.status is not Status.SUCCESS:
        raise RuntimeError(f"the benchmark's graph ended {result.status}")
    return seconds, result, counter.count
