"""What a check says would change, what a dry run would do, and the outcome of an undo."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kubexm_exec.draw.text import escape, plural
from kubexm_exec.model.events import ACTION_FORECAST, Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import ForecastState, GraphExecutionResult, HostResult, counts
from kubexm_exec.report.parts import diff, folded, host_list, mark, sign, table
from kubexm_exec.report.tally import actions

SHOWN = 300
PLANNED = 1000
_ORDER = [state.value for state in (ForecastState.CHANGE, ForecastState.UNKNOWN, ForecastState.NOT_LOOKED_AT)]


def forecasts_html(result: GraphExecutionResult) -> str:
    """What would change with its diffs, then what is not known, or not looked at; the same on several hosts once."""
    groups: dict[tuple[str, str, str], list[HostResult]] = {}
    satisfied = counts(result)["unchanged"]
    for name, action in actions(result):
        if action.forecast is not None and action.forecast is not ForecastState.SATISFIED:
            what = json.dumps([action.message, action.diffs], default=str)
            groups.setdefault((action.forecast.value, name, what), []).append(action)
    if not groups and not satisfied:
        return ""
    parts = [
        _forecast(state, name, hosts) for (state, name, _), hosts in sorted(groups.items(), key=_change_first)[:SHOWN]
    ]
    if len(groups) > SHOWN:
        parts.append(f"<p>and {plural(len(groups) - SHOWN, 'more forecast')}</p>")
    if satisfied:
        parts.append(f"<p>{sign('unchanged', _as_it_should_be(satisfied))}</p>")
    return "".join(parts)


def _as_it_should_be(count: int) -> str:
    return f"{plural(count, 'action')} {'is as it' if count == 1 else 'are as they'} should be"


def _change_first(item: tuple[tuple[str, str, str], list[HostResult]]) -> int:
    return _ORDER.index(item[0][0])


def _forecast(state: str, name: str, hosts: Sequence[HostResult]) -> str:
    first = hosts[0]
    message = f'<p class="message">{escape(first.message)}</p>' if first.message else ""
    return (
        f'<article class="forecast"><h3>{mark(state)} <code>{escape(name)}</code> on '
        f"{host_list([action.where for action in hosts])}</h3>{message}{diffs_html(first.diffs)}</article>\n"
    )


def diffs_html(diffs: Sequence[Mapping[str, Any]]) -> str:
    """Every changed place with what is not content, and its unified diff."""
    parts = []
    for one in diffs:
        note = f" <small>({escape(one['note'])})</small>" if one.get("note") else ""
        parts.append(f'<p class="path"><code>{escape(one.get("path", ""))}</code>{note}</p>')
        if one.get("text"):
            parts.append(diff(str(one["text"])))
    return "".join(parts)


def planned_html(graph: ExecutionGraph, events: Sequence[Event]) -> str:
    """The actions of a dry run in order, with their parameters."""
    found = [event for event in events if event.kind == ACTION_FORECAST and "params" in event.data]
    parts = []
    for event in found[:PLANNED]:
        node = graph.nodes.get(event.node)
        params = event.data["params"]
        text = json.dumps(params, ensure_ascii=False, indent=1, default=str) if params else ""
        kind = f" <small>{escape(node.step_name)}</small>" if node else ""
        state = mark(str(event.data.get("state", "")))
        what = f"{state} <code>{escape(event.node)}</code> on <b>{escape(event.host)}</b>{kind}"
        said = f'<p class="message">{escape(event.data.get("message", ""))}</p>'
        shown = f"<pre>{escape(text)}</pre>" if text else ""
        parts.append(f"<details><summary>{what}</summary>{said}{shown}</details>\n")
    if len(found) > PLANNED:
        parts.append(f"<p>and {plural(len(found) - PLANNED, 'more action')}</p>")
    return "".join(parts)


def undo_html(result: GraphExecutionResult) -> str:
    """What was undone, what could not be, and what can never be."""
    found = [(name, action) for name, action in actions(result) if action.undo]
    parts = []
    if found:
        words = {
            "undone": ("success", "undone"),
            "notReversible": ("skipped", "cannot be undone"),
            "undoFailed": ("failed", "undo failed"),
            "leftAlone": ("failed", "left alone"),
        }
        rows = []
        # What went wrong first: it needs somebody.
        shown = []
        for name, action in found:
            state, _, why = action.undo.partition(": ")
            status, label = words.get(state, ("failed", state))
            shown.append((status != "failed", name, action, status, f"{label}: {why}" if why else label))
        for _, name, action, status, label in sorted(shown, key=lambda each: each[0])[:SHOWN]:
            rows.append((f"<code>{escape(name)}</code>", escape(action.where), sign(status, label)))
        parts.append(table(("Step", "Host", "Undo"), rows))
        if len(found) > SHOWN:
            parts.append(f"<p>and {len(found) - SHOWN:,} more</p>")
    if result.not_reversible:
        items = "".join(f"<li><code>{escape(name)}</code></li>\n" for name in result.not_reversible[:SHOWN])
        parts.append(folded(f"{plural(len(result.not_reversible), 'step')} cannot be undone", f"<ul>{items}</ul>"))
    return "".join(parts)
