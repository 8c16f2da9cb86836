"""The graph of an undo: every edge turned round, so that what came last is undone first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from kubexm_exec.model.graph import (
    Constraints,
    Dependency,
    ExecutionGraph,
    ExecutionNode,
    FailurePolicy,
    Hook,
    Mode,
    On,
    Policy,
)

_NO_LIMIT: Final = 1 << 30


def reversed_graph(graph: ExecutionGraph) -> ExecutionGraph:
    """The same nodes, each waiting for all that waited for it.

    Conditions, hooks, retries, limits and pauses belong to the way there, and are left out.
    """
    waiting: dict[str, list[Dependency]] = {node: [] for node in graph.nodes}
    waited_by: dict[str, list[tuple[ExecutionNode, Dependency]]] = {}
    for node in graph.nodes.values():
        for dep in node.dependencies:
            # The hosts of an edge are always those of its step, so that they stay as they are.
            waiting[dep.node].append(Dependency(node.id, dep.mode, On.DONE, dep.hosts))
            waited_by.setdefault(dep.node, []).append((node, dep))
    for node in graph.steps():
        # Whoever waited for a node also waited for the fragment that it returned. Its gates are left out: they stand
        # for all hosts at once, and where these come in batches one would wait for itself.
        for parent in _parents(node.id, graph):
            for after, dep in waited_by.get(parent, ()):
                if not _is_below(after.id, parent):
                    waiting[node.id].append(Dependency(after.id, dep.mode, On.DONE, _hosts(dep, node)))
    return replace(
        graph,
        nodes={
            node.id: replace(
                node,
                dependencies=_fitting(waiting[node.id]),
                hosts=tuple(dict.fromkeys((*node.hosts, *node.candidates))) if node.once else node.hosts,
                once="",
                candidates=(),
                when=None,
                guards=(),
                hook=Hook.NONE,
                skip="",
                pause=0.0,
                batch_budget=None,
                policy=Policy(timeout=node.policy.timeout),
                constraints=Constraints(),
            )
            for node in graph.nodes.values()
        },
        hosts={name: replace(host, per_host_limit=_NO_LIMIT) for name, host in graph.hosts.items()},
        failure_policy=FailurePolicy.CONTINUE,
    )


def _parents(node: str, graph: ExecutionGraph) -> list[str]:
    """The nodes that brought a node of a fragment into the graph, innermost first."""
    found = []
    while "+" in node:
        node = node.rpartition("+")[0]
        if node in graph.nodes:
            found.append(node)
    return found


def _is_below(node: str, parent: str) -> bool:
    return node.startswith(f"{parent}+")


def _hosts(dep: Dependency, node: ExecutionNode) -> tuple[str, ...] | None:
    return dep.hosts if dep.hosts is None else tuple(host for host in dep.hosts if host in node.hosts)


def _fitting(wanted: Sequence[Dependency]) -> tuple[Dependency, ...]:
    """Each edge once; hosts of an edge that a step does not have are left out."""
    found: dict[tuple[str, Mode, tuple[str, ...] | None], Dependency] = {}
    for dep in wanted:
        if dep.hosts is not None and not dep.hosts:
            continue
        found[dep.node, dep.mode, dep.hosts] = dep
    return tuple(found.values())
