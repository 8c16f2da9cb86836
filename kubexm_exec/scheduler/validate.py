"""Refuses a graph, or a fragment, that could never run to its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

from kubexm_exec.model.graph import ExecutionNode, Mode, Policy

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
            if dep.node == root:
                continue
            forward |= dep.node not in known
            other = nodes.get(dep.node)
            if other is None:
                raise ValueError(f"{node.id} waits for {dep.node}, which does not exist")
            if dep.mode is Mode.BARRIER and not node.is_gate and not other.is_gate:
                raise ValueError(f"{node.id} waits for all hosts of {dep.node} without a gate between them")
        known.add(node.id)
    if forward:
        _check_order(nodes, root)


def _chooses(gate: ExecutionNode | None, node: ExecutionNode) -> bool:
    return gate is not None and gate.is_gate and set(gate.candidates).issuperset(node.candidates)


def _check_order(nodes: Mapping[str, ExecutionNode], root: str | None) -> None:
    """Some wait for what is written later: that may be a circle."""
    circle = _circle({name: [dep.node for dep in node.dependencies] for name, node in nodes.items()})
    if circle and any(dep.hosts is not None for node in nodes.values() for dep in node.dependencies):
        # Batches of one node wait for each other through gates: whether that is a circle, only the hosts can tell.
        circle = [name for name, _ in _circle(_waits_by_class(nodes, root))]
    if circle:
        raise ValueError(f"the nodes wait for each other in a circle: {' -> '.join(reversed(circle))}")


def _check_node(node: ExecutionNode, budgets: set[str]) -> None:
    if node.is_gate and node.hosts:
        raise ValueError(f"the gate {node.id} has hosts: a gate only waits")
    hosts = node.may_run_on
    if len(hosts) > 1 and len(set(hosts)) != len(hosts):
        raise ValueError(f"{node.id} names a host twice")
    limits = node.constraints
    if any(limit is not None and limit < 1 for limit in (limits.global_limit, limits.per_host_limit)):
        raise ValueError(f"a limit of {node.id} is below 1: nothing could ever run")
    for budget in (node.policy.max_failures, node.batch_budget or "0"):
        if budget not in budgets:
            try:
                Policy(max_failures=budget).budget(1)
            except ValueError as error:
                raise ValueError(f'{node.id}: maxFailures "{budget}" is neither a number nor a percentage') from error
            budgets.add(budget)


def _circle(waits: Mapping[Any, Iterable[Any]]) -> list[Any]:
    """Those who wait for themselves in the end, each before the one that waits for it; empty if nobody does."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle: list[Any] = error.args[1]
        return circle
    return []


def _waits_by_class(nodes: Mapping[str, ExecutionNode], root: str | None) -> dict[_Unit, list[_Unit]]:
    """Who waits for whom, host by host; hosts that are always named together (a batch) are one class."""
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
