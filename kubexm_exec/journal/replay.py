"""Replays a past run as events: turns the entries of its journal into the events of a live run."""

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
    "failFast": "a step failed: no new action started, running ones finished",
    "rollback": "a step failed: no new action started, then all changes were undone",
    "cancel": "cancelled: running actions were stopped, always hooks ran",
}


class Retelling:
    """Turns entries into events, one after another; the output of steps is in the run's log, not here."""

    def __init__(self, row: RunRow, graph: ExecutionGraph, forks: int) -> None:
        self.history = RunHistory()
        """The entries so far."""
        self._row = row
        self._graph = graph
        self._forks = forks
        self._now = row.created

    def __call__(self, entry: entries.Entry) -> Iterator[Event]:
        """The events of one more entry."""
        if isinstance(entry, entries.Session):
            yield from self.broke_off()
        # In the order of the journal: actions that ended at the same time may have ended in another order.
        self._now = max(entry.time or self._now, self._now)
        self.history.add(entry)
        match entry:
            case entries.Session():
                yield self._session(entry)
            case entries.Start():
                node = self._graph.nodes.get(entry.node)
                told: dict[str, Any] = {"attempt": entry.attempt, "step": node.step_name if node is not None else ""}
                yield self._event(ev.ACTION_STARTED, entry.node, entry.host, **told, **self._place(entry))
            case entries.End():
                if entry.nodes:
                    nodes = [node.to_json() for node in entry.nodes]
                    yield self._event(ev.GRAPH_EXTENDED, nodes=nodes, by=entry.node)
                yield self._event(ev.ACTION_FINISHED, entry.node, entry.host, **entry.result.to_json())
            case entries.Asks() if entry.question:
                told = {"question": entry.question, "default": entry.default}
                yield self._event(ev.ACTION_ASKS, entry.node, entry.host, **told, **self._place(entry))
            case entries.Retry() if entry.place:
                before = self.history.of(entry.node, entry.host).place
                told = {"place": entry.place, "instead_of": before, "message": entry.message}
                yield self._event(ev.ACTION_MOVED, entry.node, entry.host, **told)
            case entries.Retry():
                yield self._retried(entry)
            case entries.Rescued() if (told_of := self.history.of(entry.node, entry.host).result) is not None:
                yield self._event(ev.ACTION_RESCUED, entry.node, entry.host, **told_of.to_json())
            case entries.Undone() if entry.state != "nothing":
                told = {"result": entry.state, "message": entry.message}
                yield self._event(ev.ACTION_UNDONE, entry.node, entry.host, **told, **self._place(entry))
            case entries.Stop():
                yield self._event(ev.RUN_STOPPING, reason=entry.reason, message=_STOPPING.get(entry.reason, ""))
            case entries.Ended():
                yield self._finished(Status(entry.status), entry.message)

    def _place(self, entry: entries.Start | entries.Asks | entries.Undone) -> dict[str, str]:
        """Where an action works, if that is not its host."""
        node = self._graph.nodes.get(entry.node)
        place = self.history.of(entry.node, entry.host).place or (node.place(entry.host) if node is not None else "")
        return {"place": place} if place not in ("", entry.host) else {}

    def broke_off(self) -> Iterator[Event]:
        """The end of an interrupted session; to be called after the last entry of a dead run, too."""
        if self.history.sessions and self.history.sessions[-1].ended is None:
            yield self._finished(Status.INTERRUPTED, "interrupted: its process ended unexpectedly")

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
            **graph.size(),
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
