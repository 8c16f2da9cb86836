"""Writes a run's events as log lines, with run, node and host bound, for those who collect logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubexm_exec.logs import get_logger
from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event

_LINES: Final[Mapping[str, tuple[str, str]]] = {
    ev.RUN_STARTED: ("info", "run started"),
    ev.ACTION_STARTED: ("debug", "action started"),
    ev.ACTION_FORECAST: ("debug", "forecast"),
    ev.ACTION_OUTPUT: ("debug", "output"),
    ev.ACTION_RETRY: ("warning", "action is tried again"),
    ev.ACTION_FINISHED: ("info", "action finished"),
    ev.ACTION_UNDONE: ("info", "action undone"),
    ev.NODE_FINISHED: ("debug", "node finished"),
    ev.GRAPH_EXTENDED: ("info", "graph extended"),
    ev.NODE_MOVED: ("info", "node runs on another host"),
    ev.GATE_PAUSE: ("info", "pause before the next batch"),
    ev.RUN_STOPPING: ("warning", "run is stopping"),
    ev.RUN_FINISHED: ("info", "run finished"),
}
"""Level and text of each kind of event."""

_KEYS: Final = (
    "graph", "executor", "forks", "hosts", "nodes", "actions", "attempt", "attempts", "step", "state", "stream", "text",
    "delay", "kind", "status", "changed", "reason", "cause", "failureKind", "exitCode", "result", "by",
    "seconds", "counts",
)  # fmt: skip
"""What a log line says of an event; whole outputs, diffs and tracebacks are in the result."""


class EventLog:
    """A subscriber that logs."""

    def __init__(self, run: str) -> None:
        self._log = get_logger(run=run)

    def __call__(self, event: Event) -> None:
        """Log one event."""
        if event.kind not in _LINES:
            return
        level, text = _LINES[event.kind]
        data = event.data
        if data.get("status") == "Failed":
            level = "error"
        bound: dict[str, Any] = {key: value for key, value in (("node", event.node), ("host", event.host)) if value}
        bound.update({key: data[key] for key in _KEYS if data.get(key) not in (None, "")})
        if data.get("message"):
            bound["detail"] = data["message"]
        if event.kind == ev.GRAPH_EXTENDED:
            bound["nodes"] = [node["id"] for node in data["nodes"]]
        getattr(self._log, level)(text, **bound)
