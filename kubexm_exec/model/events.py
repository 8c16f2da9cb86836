"""Events: the only output of the engine; the console, logs, results and streams subscribe to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from kubexm_exec.model.result import timestamp

RUN_STARTED: Final = "run.started"
"""data: graph, executor, forks, hosts (count), nodes (count), actions (count)"""
RUN_RESUMED: Final = "run.resumed"
"""Before run.started, if an earlier session has done something; data: done, unknown, actions (counts)"""
ACTION_STARTED: Final = "action.started"
"""data: attempt (1-based), step (type)"""
ACTION_FORECAST: Final = "action.forecast"
"""data: state (satisfied | change | unknown), message, diffs [{path, text, note}], params (rendered; dry-run, debug)"""
ACTION_OUTPUT: Final = "action.output"
"""data: stream (stdout | stderr), text (whole lines)"""
ACTION_PROGRESS: Final = "action.progress"
"""data: message, done, total (bytes or items)"""
ACTION_ASKS: Final = "action.asks"
"""It waits for a yes or no, also from elsewhere; data: question, default (None: no answer is a failure)"""
ACTION_RETRY: Final = "action.retry"
"""data: attempt, attempts, delay, message, kind"""
ACTION_FINISHED: Final = "action.finished"
"""data: the JSON form of the HostResult (status, message, changed, reason, cause, failureKind, stdout, stderr, ...)"""
ACTION_RESTORED: Final = "action.restored"
"""An earlier session of this run has done it; data as of action.finished"""
ACTION_RESCUED: Final = "action.rescued"
"""It failed, or was skipped because of a failure, and the rescue of its group has handled that; data as of
action.finished"""
ACTION_UNDONE: Final = "action.undone"
"""data: result (undone | undoFailed | leftAlone | notReversible), message"""
NODE_FINISHED: Final = "node.finished"
"""data: status, message"""
GRAPH_EXTENDED: Final = "graph.extended"
"""data: nodes (JSON forms of the nodes added), by (node that returned them)"""
ACTION_MOVED: Final = "action.moved"
"""It is done for its host at another place than the first; data: place, instead_of, message (why, if that one could not
be reached; else it has left the run)"""
NODE_MOVED: Final = "node.moved"
"""What runs once runs on another host, because the first ones have left the run; data: hosts, instead_of"""
GATE_PAUSE: Final = "gate.pause"
"""data: seconds; the pause between two batches of a task"""
RUN_STOPPING: Final = "run.stopping"
"""data: reason (failFast | cancel | rollback), message"""
LOG: Final = "log"
"""data: level, message, and what was bound"""
RUN_FINISHED: Final = "run.finished"
"""data: status, message, counts {...}, seconds"""


class Event(Struct):
    """One thing that happened."""

    kind: str
    run: str
    time: float
    node: str = ""
    host: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data for one JSON line."""
        line: dict[str, Any] = {"event": self.kind, "time": timestamp(self.time), "run": self.run}
        if self.node:
            line["node"] = self.node
        if self.host:
            line["host"] = self.host
        line.update(self.data)
        return line


Subscriber: TypeAlias = Callable[[Event], None]


class EventBus:
    """Hands every event to every subscriber, one at a time, in the thread that emits; masks secrets on the way out."""

    def __init__(self, run: str, mask: Callable[[Any], Any] | None = None) -> None:
        self.run = run
        self._mask = mask
        self._subscribers: list[Subscriber] = []
        self._lock = threading.RLock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber for all events from now on."""
        self._subscribers.append(subscriber)

    def emit(self, kind: str, node: str = "", host: str = "", /, **data: Any) -> None:
        """Publish an event."""
        event = Event(kind, self.run, time.time(), node, host, data if self._mask is None else self._mask(data))
        with self._lock:
            for subscriber in self._subscribers:
                subscriber(event)

    def tell(self, kind: str, node: str, host: str, data: Mapping[str, Any]) -> None:
        """Publish an event that is already masked."""
        event = Event(kind, self.run, time.time(), node, host, data)
        with self._lock:
            for subscriber in self._subscribers:
                subscriber(event)

    def tell_all(self, events: Iterable[Event]) -> None:
        """Publish several events that are already masked."""
        with self._lock:
            for event in events:
                for subscriber in self._subscribers:
                    subscriber(event)

    def event(self, kind: str, node: str, host: str, data: Mapping[str, Any], /) -> Event:
        """The event that ``emit`` would publish now, to be published later."""
        return Event(kind, self.run, time.time(), node, host, data if self._mask is None else self._mask(data))
