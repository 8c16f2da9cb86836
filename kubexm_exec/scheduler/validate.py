"""Rejects graphs and fragments that could never complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias

from kubexm_exec.model.graph import ExecutionNode, Mode, NodeKind, Policy

_GATE: Final = NodeKind.GATE
_BARRIER: Final = Mode.BARRIER

_Unit: TypeAlias = tuple[str, int]
"""A node on one class of hosts; a gate, or a node without hosts, has the class -1."""


def check(nodes: Mapping[str, ExecutionNode], root: str | None = None) -> None:
    """Raise ValueError for what could never run; ``root`` is the node a fragment comes from, which it may wait for."""
    budgets = {"0"}
    known: set[str | None] = {root}
    forward = False
    for node in nodes.values():
        _check_node(node, budgets)
        if node.once and (root is not None or not _chooses(nodes.get(node.once), node)):
            raise ValueError(f"{node.id} runs once, and {node.once} does not choose its host")
        for dep in node.dependencies:
            if dep.node not in known:
                if dep.node not in nodes:
                    raise ValueError(f"{node.id} waits for {dep.node}, which does not exist")
                forward = True
            if dep.mode is _BARRIER and dep.node != root and not node.is_gate and not nodes[dep.node].is_gate:
                raise ValueError(f"{node.id} waits for all hosts of {dep.node} without a gate between them")
        known.add(node.id)
    if forward:
        _check_order(nodes, root)


def _chooses(gate: ExecutionNode | None, node: ExecutionNode) -> bool:
    return gate is not None and gate.is_gate and set(gate.candidates).issuperset(node.candidates)


def _check_order(nodes: Mapping[str, ExecutionNode], root: str | None) -> None:
    """Some wait for what is written later: that may be a cycle."""
    circle = _circle({name: [dep.node for dep in node.dependencies] for name, node in nodes.items()})
    if circle and any(dep.hosts is not None for node in nodes.values() for dep in node.dependencies):
        # Batches of one node wait for each other through gates: whether that is a cycle, only the hosts can tell.
        circle = [name for name, _ in _circle(_waits_by_class(nodes, root))]
    if circle:
        raise ValueError(f"the nodes wait for each other in a circle: {' -> '.join(reversed(circle))}")


def _check_node(node: ExecutionNode, budgets: set[str]) -> None:
    if node.kind is _GATE and node.hosts:
        raise ValueError(f"the gate {node.id} has hosts: a gate only waits")
    if (len(node.hosts) > 1 or node.once) and len(set(node.may_run_on)) != len(node.may_run_on):
        raise ValueError(f"{node.id} names a host twice")
    limits = node.constraints
    for limit in (limits.global_limit, limits.per_host_limit):
        if limit is not None and limit < 1:
            raise ValueError(f"a limit of {node.id} is below 1: nothing could ever run")
    for budget in (node.policy.max_failures, node.batch_budget):
        if budget is not None and budget not in budgets:
            try:
                Policy(max_failures=budget).budget(1)
            except ValueError as error:
                raise ValueError(f'{node.id}: maxFailures "{budget}" is neither a number nor a percentage') from error
            budgets.add(budget)


def _circle(waits: Mapping[Any, Iterable[Any]]) -> list[Any]:
    """The nodes of a cycle in dependency order; empty if there is none."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle: list[Any] = error.args[1]
        return circle
    return []


def _waits_by_class(nodes: Mapping[str, ExecutionNode], root: str | None) -> dict[_Unit, list[_Unit]]:
    """Dependencies by host; hosts that are always named together (a batch) are one class."""
    named = {node.may_run_on for node in nodes.values()}
    named |= {dep.hosts for node in nodes.values() for dep in node.dependencies if dep.hosts is not None}
    marks: dict[str, list[int]] = {}
    for number, hosts in enumerate(named):
        for host in hosts:
            marks.setdefault(host, []).append(number)
    numbers: dict[tuple[int, ...], int] = {}
    class_of = {host: numbers.setdefault(tuple(mark), len(numbers)) for host, mark in marks.items()}
    classes = {hosts: {class_of[host] for host in hosts} for hosts in named}
    waits: dict[_Unit, list[_Unit]] = {}
    for node in nodes.values():
        mine = classes[node.may_run_on] or {-1}
        for unit in mine:
            waits[node.id, unit] = []
        for dep in node.dependencies:
            if dep.node == root:
                continue
            if not nodes[dep.node].may_run_on and not nodes[dep.node].is_gate and not node.is_gate:
                continue  # nothing waits on a host for a node without hosts
            theirs = classes[nodes[dep.node].may_run_on] or {-1}
            chosen = None if dep.hosts is None else classes[dep.hosts]
            for unit in mine:
                if unit == -1:
                    waits[node.id, unit] += [(dep.node, other) for other in theirs if _concerns(other, chosen)]
                elif _concerns(unit, chosen):
                    waits[node.id, unit] += [(dep.node, other) for other in theirs if other in (unit, -1)]
    return waits


def _concerns(unit: int, chosen: set[int] | None) -> bool:
    return chosen is None or unit == -1 or unit in chosen
