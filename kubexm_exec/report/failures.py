"""The failures of a run, as a reader needs them: what, where, why, what to do, and what it kept from running."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kubexm_exec.draw.text import escape
from kubexm_exec.model.events import ACTION_FORECAST, Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import (
    FailureKind,
    ForecastState,
    GraphExecutionResult,
    HostResult,
    SkipReason,
    Status,
    counts,
)
from kubexm_exec.report.parts import diff, folded, host_list, last_lines, mark, pre, sign, table, took
from kubexm_exec.report.tally import actions
from kubexm_spec.diagnostics import plural

CHANGES_SHOWN = 300
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
        _forecast(state, name, hosts)
        for (state, name, _), hosts in sorted(groups.items(), key=_change_first)[:CHANGES_SHOWN]
    ]
    if len(groups) > CHANGES_SHOWN:
        parts.append(f"<p>and {plural(len(groups) - CHANGES_SHOWN, 'more forecast')}</p>")
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
        for _, name, action, status, label in sorted(shown, key=lambda each: each[0])[:CHANGES_SHOWN]:
            rows.append((f"<code>{escape(name)}</code>", escape(action.where), sign(status, label)))
        parts.append(table(("Step", "Host", "Undo"), rows))
        if len(found) > CHANGES_SHOWN:
            parts.append(f"<p>and {len(found) - CHANGES_SHOWN:,} more</p>")
    if result.not_reversible:
        items = "".join(f"<li><code>{escape(name)}</code></li>\n" for name in result.not_reversible[:CHANGES_SHOWN])
        parts.append(folded(f"{plural(len(result.not_reversible), 'step')} cannot be undone", f"<ul>{items}</ul>"))
    return "".join(parts)


SHOWN = 40
LISTED = 300
_KINDS = {
    FailureKind.FAILED: "failed",
    FailureKind.TIMED_OUT: "timed out",
    FailureKind.UNREACHABLE: "unreachable",
    FailureKind.ERRORED: "errored",
}


class Failure(Struct, frozen=True):
    """The same failure of one node on some hosts."""

    node: str
    hosts: tuple[HostResult, ...]

    @property
    def first(self) -> HostResult:
        """The one that is shown."""
        return self.hosts[0]


class Kept(Struct):
    """What a failed node kept from running."""

    actions: int
    hosts: set[str]
    nodes: dict[str, None]


def failures(result: GraphExecutionResult) -> list[Failure]:
    """Failures by time, those that count before those that were ignored; the same one on many hosts once."""
    groups: dict[tuple[object, ...], list[HostResult]] = {}
    for name, action in actions(result):
        if action.status is Status.FAILED:
            what = action.message.replace(action.host_name, "")
            groups.setdefault((name, action.kind, what, action.exit_code, action.ignored), []).append(action)
    found = [Failure(str(key[0]), tuple(group)) for key, group in groups.items()]
    return sorted(found, key=lambda one: (one.first.ignored, one.first.end_time or 0.0))


def consequences(result: GraphExecutionResult) -> dict[str, Kept]:
    """By failed node what was skipped or cancelled because of it."""
    found: dict[str, Kept] = {}
    for name, action in actions(result):
        if action.cause and action.reason in (SkipReason.DEPENDENCY, SkipReason.LIMIT, None):
            kept = found.setdefault(action.cause, Kept(0, set(), {}))
            kept.actions += 1
            kept.hosts.add(action.host_name)
            kept.nodes[name] = None
    return found


def failures_html(graph: ExecutionGraph, result: GraphExecutionResult) -> str:
    """All failures; beyond a limit only their names."""
    found = failures(result)
    kept = consequences(result)
    parts = [_block(graph, one, kept) for one in found[:SHOWN]]
    rest = found[SHOWN:]
    if rest:
        items = "".join(
            f"<li><code>{escape(one.node)}</code> on {host_list([h.where for h in one.hosts], 3)}: "
            f"{escape(one.first.message)}</li>\n"
            for one in rest[:LISTED]
        )
        more = f"<li>and {len(rest) - LISTED:,} more</li>" if len(rest) > LISTED else ""
        parts.append(folded(f"{plural(len(rest), 'more failure')}", f"<ul>{items}{more}</ul>"))
    return "".join(parts)


def _block(graph: ExecutionGraph, one: Failure, kept: Mapping[str, Kept]) -> str:
    first = one.first
    node = graph.nodes.get(one.node)
    kind = (
        "rescued"
        if first.rescued
        else "ignored"
        if first.ignored
        else _KINDS.get(first.kind or FailureKind.FAILED, "failed")
    )
    times = []
    if first.attempts > 1:
        times.append(f"{first.attempts} attempts")
    if first.start_time is not None and first.end_time is not None:
        times.append(took(first.end_time - first.start_time))
    facts = [node.step_name] if node else []
    if node and str(node.origin):
        facts.append(str(node.origin))
    parts = [
        f'<article class="failure{" ignored" if first.ignored else ""}">',
        f'<h3><span class="kind">✘ {kind}</span> <code>{escape(one.node)}</code> on '
        f"{host_list([action.where for action in one.hosts])}"
        f"{_small(times)}</h3>",
        f'<p class="where">{escape(" · ".join(facts))}</p>' if facts else "",
        f'<p class="message">{escape(first.message)}</p>' if first.message else "",
    ]
    if first.command:
        parts.append(f'<pre class="command">$ {escape(first.command)}</pre>')
    if first.exit_code is not None:
        parts.append(f'<p class="exit">exit code <b>{first.exit_code}</b></p>')
    parts += [_stream("stdout", first.stdout, 15), _stream("stderr", first.stderr, 15)]
    if first.refused:
        parts.append(f'<p class="stream">refused, and not written</p>{diffs_html(first.refused)}')
    if first.hint:
        parts.append(f'<p class="hint">→ {escape(first.hint)}</p>')
    if one.node in kept:
        because = kept[one.node]
        names = list(because.nodes)
        shown = ", ".join(f"<code>{escape(name)}</code>" for name in names[:5])
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        counted = f"{plural(because.actions, 'action')} on {plural(len(because.hosts), 'host')}"
        were = "was" if because.actions == 1 else "were"
        parts.append(f'<p class="kept">{counted} {were} not run because of it: {shown}{more}</p>')
    if first.traceback:
        parts.append(folded("Traceback", pre(first.traceback)))
    parts.append("</article>\n")
    return "".join(parts)


def _small(words: list[str]) -> str:
    return f" <small>({escape(', '.join(words))})</small>" if words else ""


def _stream(name: str, text: str, count: int) -> str:
    if not text.strip():
        return ""
    lines, left = last_lines(text, count)
    before = (
        f" <small>(the last {count} of {left + count} lines; all that was kept is in the logs)</small>" if left else ""
    )
    return f'<p class="stream">{name}{before}</p>{pre(lines)}'
