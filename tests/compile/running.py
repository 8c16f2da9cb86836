"""Runs graphs in the scheduler alone, every action with success and a change."""

from __future__ import annotations

from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Outcome, Scheduler


def run_to_the_end(graph: ExecutionGraph) -> list[tuple[str, str]]:
    """The (node, host) actions that ran, in order."""
    scheduler = Scheduler(graph, forks=10_000)
    ran: list[tuple[str, str]] = []
    while not scheduler.done:
        ready = scheduler.ready()
        assert ready, "nothing can go on"
        for action in ready:
            scheduler.start(action)
            scheduler.finish(action, Outcome(Status.SUCCESS, notifies=True))
            if action.host:
                ran.append((action.node, action.host))
    return ran
