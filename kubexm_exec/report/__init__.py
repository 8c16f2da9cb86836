"""Makes of a run a page that tells what happened: what failed and why, who did what when, and all that was said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import convert
from msgspec.structs import replace

from kubexm_exec.model.events import ACTION_FORECAST, ACTION_RETRY, GRAPH_EXTENDED, LOG, RUN_STOPPING, Event
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode, Mode
from kubexm_exec.model.result import GraphExecutionResult, HostResult

MOST: Final = 20_000
_WANTED: Final = frozenset({ACTION_FORECAST, ACTION_RETRY, GRAPH_EXTENDED, LOG, RUN_STOPPING})


class ReportEvents:
    """A subscriber; hand its ``events`` to ``render_report``."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep it, if a report tells something of it and there are not too many yet."""
        if event.kind not in _WANTED or len(self.events) >= MOST:
            return
        # Only a dry run's forecasts say more than the result does.
        if event.kind != ACTION_FORECAST or "params" in event.data:
            self.events.append(event)


_SAID = ("message", "stdout", "stderr", "command", "hint", "diffs", "refused", "outputs", "undo", "traceback")


def _masked_node(node: ExecutionNode, mask: Callable[[Any], Any]) -> ExecutionNode:
    node = replace(node, with_=mask(dict(node.with_)), when=mask(node.when), item=mask(node.item))
    if not node.judgements:
        return node
    retry = replace(node.policy.retry, until=mask(node.policy.retry.until))
    failed_when = tuple(map(mask, node.failed_when))
    return replace(node, failed_when=failed_when, policy=replace(node.policy, retry=retry))


def masked(
    graph: ExecutionGraph, result: GraphExecutionResult, events: Sequence[Event], mask: Callable[[Any], Any]
) -> tuple[ExecutionGraph, GraphExecutionResult, Sequence[Event]]:
    """The same with every text that was said or written masked; ids and names of hosts are nobody's secret."""
    nodes = {name: _masked_node(node, mask) for name, node in graph.nodes.items()}
    results = {
        name: replace(
            node,
            message=mask(node.message),
            host_results={host: _masked_action(action, mask) for host, action in node.host_results.items()},
        )
        for name, node in result.node_results.items()
    }
    told = [replace(event, data=mask(dict(event.data))) for event in events]
    ended = replace(result, node_results=results, message=mask(result.message))
    return replace(graph, nodes=nodes), ended, told


def _masked_action(action: HostResult, mask: Callable[[Any], Any]) -> HostResult:
    said = {name: value for name in _SAID if (value := getattr(action, name))}
    return replace(action, **{name: mask(value) for name, value in said.items()}) if said else action


def extended(graph: ExecutionGraph, events: Sequence[Event]) -> ExecutionGraph:
    """The graph with the nodes of fragments; dependents of a step also wait for the last nodes of its fragment."""
    nodes = dict(graph.nodes)
    for event in events:
        if event.kind != GRAPH_EXTENDED:
            continue
        added = [convert(raw, ExecutionNode) for raw in event.data.get("nodes", ()) if raw["id"] not in graph.nodes]
        fresh = [node for node in added if node.id not in nodes]
        for node in added:
            old = nodes.get(node.id)
            hosts = tuple(dict.fromkeys((*(old.hosts if old else ()), *node.hosts)))
            nodes[node.id] = replace(node, hosts=hosts)
        parent = str(event.data.get("by", ""))
        lasts = ExecutionFragment.of(fresh).exits
        inside = {node.id for node in fresh}
        if parent in nodes and lasts:
            nodes = {name: node if name in inside else _also(node, parent, lasts) for name, node in nodes.items()}
    return replace(graph, nodes=nodes) if len(nodes) > len(graph.nodes) else graph


def _also(node: ExecutionNode, parent: str, lasts: Sequence[ExecutionNode]) -> ExecutionNode:
    more = [
        replace(dep, node=last.id, mode=Mode.BARRIER if last.is_gate or node.is_gate else dep.mode)
        for dep in node.dependencies
        if dep.node == parent
        for last in lasts
    ]
    return replace(node, dependencies=(*node.dependencies, *more)) if more else node


__all__ = ["render_report"]


def render_report(
    graph: ExecutionGraph,
    result: GraphExecutionResult,
    events_or_logs: Sequence[Event] = (),
    *,
    mask: Callable[[Any], Any] | None = None,
) -> str:
    """A self-contained HTML page.

    Events add what a result does not have: attempts that failed, output that was not kept, the parameters of a dry run,
    the log of the run. ``mask`` takes secrets out of any plain data. Mask with it what goes in, not the page that comes
    out: a page in which a word of its own script was masked does not work any more.
    """
    from kubexm_exec.report.html import report_page

    if mask is not None:
        graph, result, events_or_logs = masked(graph, result, events_or_logs, mask)
    return report_page(extended(graph, events_or_logs), result, events_or_logs)
