"""The failures of a run, as a reader needs them: what, where, why, what to do, and what it kept from running."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kubexm_exec.draw.text import escape, plural
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, SkipReason, Status
from kubexm_exec.report.parts import folded, host_list, last_lines, pre, took
from kubexm_exec.report.tally import actions

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
    kind = "ignored" if first.ignored else _KINDS.get(first.kind or FailureKind.FAILED, "failed")
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
