"""Tells a run of the past again as events: the entries of its journal with the names that a live run's events have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubexm_exec.engine import entries
from kubexm_exec.engine.history import RunHistory
from kubexm_exec.journal.results import PastRun
from kubexm_exec.journal.store import RunRow
from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import FailureKind, RunMode, Status, counts

_STOPPING: Final = {
    "failFast": "a step failed: nothing new was started, what ran was finished",
    "rollback": "a step failed: nothing new was started, then what was done was undone",
    "cancel": "cancelled: what ran was stopped, always hooks were run",
}


class Retelling:
    """Makes events of entries, one after the other; what a step printed is in the run's log, not here."""

    def __init__(self, row: RunRow, graph: ExecutionGraph, forks: int) -> None:
        self.history = RunHistory()
        """What was told so far."""
        self._row = row
        self._graph = graph
        self._forks = forks
        self._now = row.created

    def __call__(self, entry: entries.Entry) -> Iterator[Event]:
        """The events of one more entry."""
        if isinstance(entry, entries.Session):
            yield from self.broke_off()
        # In the order in which they were written down; what ends at the same time may have ended in another.
        self._now = max(entry.time or self._now, self._now)
        self.history.add(entry)
        match entry:
            case entries.Session():
                yield self._session(entry)
            case entries.Start():
                node = self._graph.nodes.get(entry.node)
                step = node.step_name if node is not None else ""
                yield self._event(ev.ACTION_STARTED, entry.node, entry.host, attempt=entry.attempt, step=step)
            case entries.End():
                if entry.nodes:
                    nodes = [node.to_json() for node in entry.nodes]
                    yield self._event(ev.GRAPH_EXTENDED, nodes=nodes, by=entry.node)
                yield self._event(ev.ACTION_FINISHED, entry.node, entry.host, **entry.result.to_json())
            case entries.Retry():
                yield self._retried(entry)
            case entries.Undone() if entry.state != "nothing":
                yield self._event(ev.ACTION_UNDONE, entry.node, entry.host, result=entry.state, message=entry.message)
            case entries.Stop():
                yield self._event(ev.RUN_STOPPING, reason=entry.reason, message=_STOPPING.get(entry.reason, ""))
            case entries.Ended():
                yield self._finished(Status(entry.status), entry.message)

    def broke_off(self) -> Iterator[Event]:
        """The end of a session that did not tell its end: call it once more after the last entry of a dead run."""
        if self.history.sessions and self.history.sessions[-1].ended is None:
            yield self._finished(Status.INTERRUPTED, "it broke off: its process ended without saying how")

    def _event(self, event: str, node: str = "", host: str = "", /, **data: Any) -> Event:
        return Event(event, self._row.id, self._now, node, host, data)

    def _session(self, entry: entries.Session) -> Event:
        graph = self._graph
        rollback = entry.mode == "rollback"
        return self._event(
            ev.RUN_STARTED,
            graph=graph.name,
            executor="rollback" if rollback else self._row.executor,
            runMode=(RunMode.UNDO if rollback else RunMode.ACT).value,
            forks=self._forks,
            hosts=len({host for node in graph.steps() for host in node.hosts}),
            nodes=sum(1 for _ in graph.steps()),
            actions=graph.actions(),
            mode=entry.mode,
            holder=entry.holder,
        )

    def _retried(self, entry: entries.Retry) -> Event:
        node = self._graph.nodes.get(entry.node)
        policy = node.policy.retry if node is not None else None
        return self._event(
            ev.ACTION_RETRY,
            entry.node,
            entry.host,
            attempt=entry.attempt,
            attempts=policy.attempts if policy else entry.attempt + 1,
            delay=policy.wait(entry.attempt) if policy else 0.0,
            message=entry.message,
            kind=(entry.failure or FailureKind.FAILED).value,
        )

    def _finished(self, status: Status, message: str) -> Event:
        begun = self.history.sessions[-1].begun
        past = PastRun(self._row, status, self._graph, self.history, self._now)
        return self._event(
            ev.RUN_FINISHED,
            status=status.value,
            message=message,
            counts=counts(past.result),
            seconds=round(self._now - begun, 3),
        )
