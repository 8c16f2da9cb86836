"""What every action said, bounded: data for the page's script, which shows and searches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubexm_exec.draw.status import look
from kubexm_exec.draw.text import clean
from kubexm_exec.model.events import ACTION_OUTPUT, ACTION_RETRY, LOG, RUN_STOPPING, Event
from kubexm_exec.model.result import GraphExecutionResult, HostResult, Status, timestamp
from kubexm_exec.report.parts import took
from kubexm_exec.report.tally import actions, outcome

ENTRIES = 5_000
"""With more actions than this only those are listed that failed or said something."""
STREAM = 16_000
"""Characters of one stream of one action."""
BUDGET = 6_000_000
"""Characters in all; failed actions have theirs first."""
LINES = 1_000
"""Entries of the log of the run."""


def logs_data(result: GraphExecutionResult, events: Sequence[Event] = ()) -> dict[str, Any]:
    """The entries in the order in which actions ended, and how much was left out."""
    streams, retries = _from_events(events)
    found = list(actions(result))
    if len(found) > ENTRIES:
        kept = [one for one in found if _failed(one) or _says_something(*one, streams)]
        found = sorted(kept or found, key=lambda one: not _failed(one))[:ENTRIES]
    room = BUDGET
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    cut = 0
    for name, action in sorted(found, key=lambda one: not _failed(one)):
        entry = _entry(
            name, action, streams.get((name, action.host_name), {}), retries.get((name, action.host_name), [])
        )
        size = sum(len(str(value)) for value in entry.values())
        if size > room:
            cut += 1
            entry = {key: entry[key] for key in ("n", "h", "s", "t", "m") if key in entry}
        room -= min(size, room)
        entries[name, action.host_name] = entry
    order = sorted(found, key=lambda one: (one[1].end_time is None, one[1].end_time or 0.0))
    total = sum(len(node.host_results) for node in result.node_results.values())
    return {
        "entries": [entries[name, action.host_name] for name, action in order],
        "leftOut": total - len(found),
        "cut": cut,
    }


def _from_events(
    events: Sequence[Event],
) -> tuple[dict[tuple[str, str], dict[str, str]], dict[tuple[str, str], list[str]]]:
    """By action what its streams said and how its earlier attempts failed."""
    streams: dict[tuple[str, str], dict[str, list[str]]] = {}
    retries: dict[tuple[str, str], list[str]] = {}
    for event in events:
        key = (event.node, event.host)
        if event.kind == ACTION_OUTPUT:
            name = str(event.data.get("stream", "stdout"))
            streams.setdefault(key, {}).setdefault(name, []).append(str(event.data.get("text", "")))
        elif event.kind == ACTION_RETRY:
            number, message = event.data.get("attempt", "?"), event.data.get("message", "")
            delay = took(float(event.data.get("delay") or 0.0))
            retries.setdefault(key, []).append(f"attempt {number} failed, again after {delay}: {message}")
    joined = {key: {name: "".join(texts) for name, texts in found.items()} for key, found in streams.items()}
    return joined, retries


def _failed(one: tuple[str, HostResult]) -> bool:
    return one[1].status is Status.FAILED


def _says_something(name: str, action: HostResult, streams: dict[tuple[str, str], dict[str, str]]) -> bool:
    return bool(action.stdout or action.stderr or action.diffs or action.undo or (name, action.host_name) in streams)


def _entry(name: str, action: HostResult, streams: dict[str, str], retries: Sequence[str]) -> dict[str, Any]:
    facts = []
    if action.exit_code is not None:
        facts.append(f"exit code {action.exit_code}")
    if action.attempts > 1:
        facts.append(f"{action.attempts} attempts")
    if action.repeated:
        facts.append("repeated: it was not known whether it had completed")
    if action.undo:
        facts.append(f"undo: {action.undo}")
    seconds = None
    if action.start_time is not None and action.end_time is not None:
        seconds = action.end_time - action.start_time
    entry = {
        "n": clean(name),
        "h": clean(action.where),
        "s": look(outcome(action)).key,
        "t": took(seconds) if seconds is not None else "",
        "m": clean(action.message),
        "c": clean(action.command),
        "f": " · ".join(facts),
        "r": clean("\n".join(retries)),
        "o": _tail(action.stdout or streams.get("stdout", "")),
        "e": _tail(action.stderr or streams.get("stderr", "")),
        "hint": clean(action.hint),
        "tb": _tail(action.traceback),
        "d": [[clean(str(one.get(key) or "")) for key in ("path", "note", "text")] for one in action.diffs],
    }
    return {key: value for key, value in entry.items() if value}


def _tail(text: str) -> str:
    text = clean(text)
    return text if len(text) <= STREAM else f"… {len(text) - STREAM:,} characters before this …\n{text[-STREAM:]}"


def run_log(events: Sequence[Event]) -> list[str]:
    """What the engine itself logged, as lines; the first ones if there are many."""
    lines: list[str] = []
    for event in events:
        if event.kind not in (LOG, RUN_STOPPING):
            continue
        if len(lines) == LINES:
            lines.append("… and more")
            break
        data = dict(event.data)
        level = str(data.pop("level", "info" if event.kind == LOG else "warning"))
        message = str(data.pop("message", ""))
        where = " ".join(filter(None, (event.node, event.host)))
        rest = " ".join(f"{key}={value}" for key, value in data.items() if key not in ("run", "run_id", "node", "host"))
        lines.append(" ".join(filter(None, (timestamp(event.time), level.upper(), where, message, rest))))
    return lines
