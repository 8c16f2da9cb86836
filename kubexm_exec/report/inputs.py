"""Prepares what a report is made of: without secrets, and with the nodes that came while the run went on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from kubexm_exec.model.events import GRAPH_EXTENDED, Event
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode, Mode
from kubexm_exec.model.result import GraphExecutionResult, HostResult

_SAID = ("message", "stdout", "stderr", "command", "hint", "diffs", "outputs", "undo", "traceback")


def masked(
    graph: ExecutionGraph, result: GraphExecutionResult, events: Sequence[Event], mask: Callable[[Any], Any]
) -> tuple[ExecutionGraph, GraphExecutionResult, Sequence[Event]]:
    """The same with every text that was said or written masked; ids and names of hosts are nobody's secret."""
    nodes = {
        name: replace(node, with_=mask(dict(node.with_)), when=mask(node.when), item=mask(node.item))
        for name, node in graph.nodes.items()
    }
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
    """The graph with the nodes of fragments that steps returned, if it does not have them yet.

    What waited for the step that returned a fragment also waits for the last nodes of the fragment.
    """
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
