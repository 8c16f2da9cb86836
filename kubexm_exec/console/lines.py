"""Events as lines that can be read, searched and kept: time, word, node, host, message."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from kubexm_exec.console.changes import UNSURE, diff_lines, title
from kubexm_exec.console.failures import find_node
from kubexm_exec.console.text import KINDS, Paint, format_progress, names, pad, text_lines
from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import (
    BLOCKED,
    DEFAULT_EXECUTOR,
    ForecastState,
    RunMode,
    SkipReason,
    Status,
    timestamp,
    where,
)
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_WORD: Final = 9
_NODE: Final = 48
_HOST: Final = 24
_UNDONE: Final = {"undone": ("undone", "changed")}
_NOT_UNDONE: Final = {"undoFailed": "could not be undone", "leftAlone": "left alone"}
_FORECASTS: Final = {
    ForecastState.SATISFIED.value: ("ok", "ok"),
    ForecastState.CHANGE.value: ("differs", "changed"),
    ForecastState.UNKNOWN.value: ("unknown", "skipped"),
    ForecastState.NOT_LOOKED_AT.value: ("unseen", "skipped"),
}
REPEATED: Final = "repeated: it was not known whether it had completed"
"""What is said of an action that was simply run again."""
_DIFF: Final = 60
"""So many lines of a diff are shown while a run goes on."""
_STILL: Final = 10.0
"""Seconds between two lines about the progress of an action."""
_EACH: Final = 5
"""On up to so many hosts each action that never began has a line of its own; of more there is one for the node."""


class Lines:
    """Makes the lines of an event; says nothing of events that are not for this audience.

    ``results``: every action that ends, not only failures. ``output``: everything that steps print. ``messages``: what
    steps of type ``message`` say. ``starts``: when an action starts. ``level``: the least level of log lines.
    ``diffs``: what actions change.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        paint: Paint,
        *,
        results: bool,
        output: bool,
        messages: bool = True,
        starts: bool = False,
        level: str = "warning",
        diffs: bool = False,
    ) -> None:
        self._graph = graph
        self._paint = paint
        self._results = results
        self._output = output
        self._messages = messages
        self._starts = starts
        self._diffs = diffs
        self._level = LEVELS[level]
        self._preview = False
        self._before = ""
        """What earlier sessions have done."""
        self._chosen: set[str] = set()
        """Of what runs once, or at one of several places, that was told where."""
        self._places: dict[tuple[str, str], str] = {}
        """Where actions are done that are not done at their first place."""
        self._begun = ""
        """When this session began: what an earlier one was at counts from there."""
        self._failed_before: set[str] = set()
        """Nodes that failed in earlier sessions, and not in this one."""
        self._never_begun: dict[str, dict[tuple[str, str, str], list[str]]] = {}
        """By node what is to be said of those that never began, and on which hosts: said when the node has ended."""
        self._told: dict[tuple[str, str], float] = {}
        """When something was last said of an action that takes long."""
        self._node_width = min(_NODE, max((len(node.id) for node in graph.steps()), default=0))
        served = (node.where(host) for node in graph.steps() for host in node.places)
        self._host_width = min(_HOST, max((len(host) for host in (*graph.hosts, *served)), default=0))

    def __call__(self, event: Event) -> str:
        """The lines with their ends, or nothing."""
        make = _MAKERS.get(event.kind)
        return make(self, event) if make is not None else ""

    def rest(self, now: float) -> str:
        """What was held back; at the end of a run, whether or not that was told."""
        nodes = list(self._never_begun)
        return "".join([self._node_finished(Event(ev.NODE_FINISHED, "", now, node)) for node in nodes])

    def line(self, event: Event, word: str, style: str, text: str, after: str = "") -> str:
        """One or more lines, each with its time, word, node and host; ``after`` stands at the end of the first."""
        head = self._head(event, word, style)
        lines = text_lines(text) or [""]
        lines[0] = f"{lines[0]}  {self._paint(after, 'dim')}".strip() if after else lines[0]
        return "".join(f"{head}  {line}".rstrip() + "\n" for line in lines)

    def _head(self, event: Event, word: str, style: str) -> str:
        node, host = clean(event.node) or "-", clean(self._where(event)) or "-"
        clock = time.strftime("%H:%M:%S", time.localtime(event.time))
        return (
            f"{clock}  {self._paint(pad(word, _WORD), style)}  "
            f"{pad(node, self._node_width)}  {pad(host, self._host_width)}"
        )

    def _where(self, event: Event) -> str:
        """The host of an event, with the place if it worked for that host elsewhere."""
        if at := event.data.get("place"):
            return where(event.host, str(at) if at != event.host else "")
        node = find_node(self._graph, event.node) if event.host else None
        if node is not None and node.choices:
            place = self._places.get((event.node, event.host)) or node.place(event.host)
            return where(event.host, place if place != event.host else "")
        return event.host if node is None else node.where(event.host)

    def _run_started(self, event: Event) -> str:
        data = event.data
        self._begun = timestamp(event.time) or ""
        self._preview = RunMode(data.get("runMode", RunMode.ACT)).previews
        if not self._results:
            return ""
        parts = [
            plural(data.get("hosts", len(self._graph.hosts)), "host"),
            plural(data.get("nodes", 0), "node"),
            plural(data.get("actions", self._graph.actions()), "action"),
            f"forks {data.get('forks', '?')}",
        ]
        executor = data.get("executor", "")
        how = f"  ({executor})" if executor and executor != DEFAULT_EXECUTOR else ""
        text = self.line(event, "run", "head", f"{self._graph.name}  {event.run}  {', '.join(parts)}{how}")
        return text + self.line(event, "resumed", "head", self._before) if self._before else text

    def _run_resumed(self, event: Event) -> str:
        self._before = done_before(event.data)
        return ""

    def _restored(self, event: Event) -> str:
        if event.data.get("status") == Status.FAILED:
            self._failed_before.add(event.node)
        return ""

    def _progressed(self, event: Event) -> str:
        """How far something long is, now and then: who reads a log wants to know that it goes on."""
        data, key = event.data, (event.node, event.host)
        if not self._results or event.time - self._told.get(key, event.time) < _STILL:
            self._told.setdefault(key, event.time)
            return ""
        self._told[key] = event.time
        done = format_progress(data.get("done"), data.get("total"))
        text = str(data.get("message", ""))
        return self.line(event, "still", "dim", text, f"({done.replace('/', ' of ')})" if done else "")

    def _started(self, event: Event) -> str:
        self._told.pop((event.node, event.host), None)
        if not self._starts or self._preview:
            return ""
        attempt = event.data.get("attempt", 1)
        again = f"  attempt {attempt} of {self._attempts(event)}" if attempt > 1 else ""
        return self.line(event, "start", "dim", f"{event.data.get('step', '')}{again}")

    def _said(self, event: Event) -> str:
        says = self._speaks(event)
        if not (self._messages if says else self._output):
            return ""
        text = str(event.data.get("text", ""))
        if says:
            return self.line(event, "message", "head", text)
        word = "err" if event.data.get("stream") == "stderr" else "out"
        return self.line(event, word, "dim", "\n".join(f"| {line}" for line in text_lines(text)))

    def _retried(self, event: Event) -> str:
        data = event.data
        if not self._results:
            return ""
        kind = KINDS.get(str(data.get("kind")), "")
        text = _joined(kind, str(data.get("message", "")))
        again = f"attempt {data.get('attempt')} of {data.get('attempts')}, again in {_seconds(data.get('delay'))}"
        return self.line(event, "retry", "warning", text, f"({again})")

    def _finished(self, event: Event) -> str:
        data = event.data
        status, forecast = data.get("status"), data.get("forecast")
        changes = self._changes(event) if self._diffs and not self._preview and data.get("diffs") else ""
        if status != Status.FAILED and (not (self._results or changes) or (self._preview and not self._starts)):
            return ""
        text = str(data.get("message", ""))
        took = _took(data, self._begun)
        if status == Status.FAILED:
            self._failed_before.discard(event.node)
            return self._failed(event, text, took) + changes
        if self._speaks(event) and status == Status.SUCCESS:
            text = ""  # it was said already
        word, style = _outcome(data)
        if self._preview and forecast in _FORECASTS and status != Status.SKIPPED:
            word, style = _FORECASTS[forecast]
        if status == Status.SKIPPED and (not text or data.get("cause")):
            cause = str(data.get("cause", ""))
            text = skip_reason(data.get("reason"), cause, text, before=cause in self._failed_before)
        if self._is_one_of_many(event):
            self._never_begun.setdefault(event.node, {}).setdefault((word, style, text), []).append(event.host)
            return ""
        # How long it took to see that there is nothing to do is of no interest.
        after = [REPEATED] if data.get("repeated") else []
        after += [took] if took not in ("", "0ms") else []
        return self.line(event, word, style, text, f"({', '.join(after)})" if after else "") + changes

    def _changes(self, event: Event) -> str:
        """What an action has changed, place by place; of one that failed, what it may have changed."""
        head, rest = self._head(event, "diff", "dim"), f"kubexm runs show {event.run} --diff"
        doubt = "" if event.data.get("changed") else UNSURE
        lines: list[str] = []
        for diff in event.data["diffs"]:
            lines += [f"{title(diff)}{doubt}", *diff_lines(diff, self._paint, _DIFF, rest)]
        return "".join(f"{head}  | {line}\n" for line in lines)

    def _is_one_of_many(self, event: Event) -> bool:
        """Whether it never began because of something else, as may be so on a whole fleet."""
        data, node = event.data, self._graph.nodes.get(event.node)
        if node is None or len(node.hosts) <= _EACH or data.get("startTime") is not None:
            return False
        return data.get("status") == Status.CANCELLED or data.get("reason") in BLOCKED

    def _node_finished(self, event: Event) -> str:
        lines = []
        for (word, style, text), hosts in self._never_begun.pop(event.node, {}).items():
            if len(hosts) > _EACH:
                hosts, text = [""], f"{text}; on {plural(len(hosts), 'host')}: {names(hosts)}"
            lines += [self.line(replace(event, host=host), word, style, text) for host in hosts]
        return "".join(lines)

    def _failed(self, event: Event, text: str, took: str) -> str:
        data = event.data
        kind = KINDS.get(str(data.get("failureKind")), "")
        attempts, attempt = self._attempts(event), data.get("attempts", 0)
        again = REPEATED if data.get("repeated") else ""
        after = [part for part in (again, f"attempt {attempt} of {attempts}" if attempts > 1 else "", took) if part]
        ignored = data.get("ignored", False)
        if ignored and not self._results:
            return ""
        return self.line(
            event,
            "ignored" if ignored else "FAILED",
            "warning" if ignored else "failed",
            _joined(kind, text) or "failed",
            f"({', '.join(after)})" if after else "",
        )

    def _rescued(self, event: Event) -> str:
        if not self._results or event.data.get("status") != Status.FAILED:
            return ""
        return self.line(event, "rescued", "warning", "its failure does not count")

    def _undone(self, event: Event) -> str:
        state, text = str(event.data.get("result")), str(event.data.get("message", ""))
        if state in _NOT_UNDONE:
            return self.line(event, "FAILED", "failed", f"{_NOT_UNDONE[state]}: {text}")
        word, style = _UNDONE.get(state, ("kept", "warning"))
        if not self._results:
            return ""
        return self.line(event, word, style, text or ("cannot be undone" if word == "kept" else ""))

    def _extended(self, event: Event) -> str:
        if not self._results:
            return ""
        added = [str(node.get("id", "")) for node in event.data.get("nodes", ()) if node.get("kind") != "gate"]
        by = Event(event.kind, event.run, event.time, str(event.data.get("by", "")), event.host)
        return self.line(by, "added", "running", f"{plural(len(added), 'node')}: {names(added)}")

    def _moved(self, event: Event) -> str:
        """One line for all that runs once together."""
        hosts, node = event.data.get("hosts", ()), self._graph.nodes.get(event.node)
        if not self._results or not hosts or node is None or node.once in self._chosen:
            return ""
        self._chosen.add(node.once)
        away = ", ".join(event.data.get("instead_of", ()))
        scope = Event(event.kind, event.run, event.time, node.once.partition("#")[0], event.host)
        return self.line(scope, "chosen", "running", f"it runs once, and {away or 'the first host'} has left the run")

    def _set_place(self, event: Event) -> str:
        place, away = str(event.data.get("place", "")), str(event.data.get("instead_of", ""))
        self._places[event.node, event.host] = place
        because = str(event.data.get("message", ""))
        if not self._results or self._preview or (not because and f"{event.node} {place}" in self._chosen):
            return ""
        self._chosen.add(f"{event.node} {place}")
        text = f"instead of {away}: {because}" if because else f"instead of {away}"
        return self.line(event, "chosen", "running", text)

    def _paused(self, event: Event) -> str:
        if not self._results:
            return ""
        return self.line(event, "pause", "dim", f"{_seconds(event.data.get('seconds'))} before the next batch")

    def _stopping(self, event: Event) -> str:
        return self.line(event, "stopping", "failed", str(event.data.get("message") or event.data.get("reason", "")))

    def _logged(self, event: Event) -> str:
        data = dict(event.data)
        level = str(data.pop("level", "info")).lower()
        number = LEVELS.get(level, 20)
        if number < self._level:
            return ""
        text = str(data.pop("message", ""))
        more = "  ".join(f"{key}={value}" for key, value in data.items())
        style = "failed" if number >= 40 else "warning" if number >= 30 else "dim"
        return self.line(event, level, style, f"{text}  {more}".rstrip())

    def _run_finished(self, event: Event) -> str:
        rest = self.rest(event.time)
        if not self._results or self._preview:
            return rest
        data = event.data
        status = str(data.get("status", ""))
        style = "ok" if status == Status.SUCCESS else "failed"
        text = f"{self._graph.name}  {status}: {data.get('message', '')}".rstrip(": ")
        seconds = data.get("seconds")
        return rest + self.line(event, "end", style, text, f"({_seconds(seconds)})" if seconds is not None else "")

    def _attempts(self, event: Event) -> int:
        node = self._graph.nodes.get(event.node)
        return node.policy.retry.attempts if node is not None else 1

    def _speaks(self, event: Event) -> bool:
        node = self._graph.nodes.get(event.node)
        return node is not None and node.speaks


_MAKERS: Final = {
    ev.RUN_STARTED: Lines._run_started,
    ev.RUN_RESUMED: Lines._run_resumed,
    ev.ACTION_STARTED: Lines._started,
    ev.ACTION_PROGRESS: Lines._progressed,
    ev.ACTION_OUTPUT: Lines._said,
    ev.ACTION_RETRY: Lines._retried,
    ev.ACTION_FINISHED: Lines._finished,
    ev.ACTION_RESTORED: Lines._restored,
    ev.ACTION_RESCUED: Lines._rescued,
    ev.ACTION_UNDONE: Lines._undone,
    ev.NODE_FINISHED: Lines._node_finished,
    ev.GRAPH_EXTENDED: Lines._extended,
    ev.NODE_MOVED: Lines._moved,
    ev.ACTION_MOVED: Lines._set_place,
    ev.GATE_PAUSE: Lines._paused,
    ev.RUN_STOPPING: Lines._stopping,
    ev.LOG: Lines._logged,
    ev.RUN_FINISHED: Lines._run_finished,
}


def done_before(data: Mapping[str, Any]) -> str:
    """What a resumed run need not do again, for people."""
    done, unknown = data.get("done", 0), data.get("unknown", 0)
    verb = "was" if data.get("actions") == 1 else "were"
    text = f"{done} of {plural(data.get('actions', 0), 'action')} {verb} done before"
    if not unknown:
        return text
    return f"{text}, {unknown} may have completed and will be checked first"


def skip_reason(reason: object, cause: str, message: str, *, before: bool) -> str:
    """Why an action was skipped, for people; ``before``: the cause failed in an earlier session."""
    match reason:
        case SkipReason.DEPENDENCY:
            when = " in an earlier session" if before else ""
            return f"because {cause} failed{when}" if cause else "because something it needs failed"
        case SkipReason.UNCHOSEN:
            return f"because {message}"
        case SkipReason.LIMIT:
            return "because too many hosts failed" + (f" in {cause}" if cause else "")
        case SkipReason.CONDITION:
            return "condition not met"
        case _:
            return ""


def _outcome(data: Mapping[str, Any]) -> tuple[str, str]:
    match data.get("status"):
        case Status.SUCCESS:
            return ("changed", "changed") if data.get("changed") else ("ok", "ok")
        case Status.SKIPPED:
            return ("ok", "ok") if data.get("reason") == SkipReason.PRECHECK else ("skipped", "skipped")
        case Status.CANCELLED:
            return "cancelled", "warning"
        case other:
            return str(other).lower(), ""


def _joined(kind: str, text: str) -> str:
    """The kind before the message, unless the message says it itself."""
    return f"{kind}: {text}" if kind and not clean(text).lower().startswith(kind) else text


def _seconds(value: object) -> str:
    return format_duration(float(value)) if isinstance(value, (int, float)) else "?"


def _took(data: Mapping[str, Any], begun: str) -> str:
    start, end = data.get("startTime"), data.get("endTime")
    if not isinstance(start, str) or not isinstance(end, str):
        return ""
    start = max(start, begun)  # all of them have the same form
    return format_duration(max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()))
