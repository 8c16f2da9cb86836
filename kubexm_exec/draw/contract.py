"""Takes out of a graph what need not be drawn: gates that join few, and edges that others imply."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from kubexm_exec.model.graph import On

EXACT_LIMIT = 12_000
"""Up to so many vertices implied edges are found exactly; the sets of ancestors grow with the square."""


class Wait(Struct, frozen=True):
    """How one vertex waits for another."""

    barrier: bool = False
    on: On = On.SUCCESS


Waits: TypeAlias = dict[str, dict[str, Wait]]
"""For each vertex what it waits for."""
Implies: TypeAlias = Callable[[str, str], bool]
"""Whether the edge from the first to the second says that all of the first comes before all of the second."""


def topological(vertices: Sequence[str], before: Callable[[str], Iterable[str]]) -> list[str]:
    """The vertices in dependency order, else as given; a cycle is entered at its first vertex."""
    index = {vertex: position for position, vertex in enumerate(vertices)}
    missing = {vertex: len({other for other in before(vertex) if other in index}) for vertex in vertices}
    after: dict[str, list[str]] = {vertex: [] for vertex in vertices}
    for vertex in vertices:
        for other in {other: None for other in before(vertex) if other in index}:
            after[other].append(vertex)
    ready = [index[vertex] for vertex in vertices if not missing[vertex]]
    heapq.heapify(ready)
    order: list[str] = []
    taken: set[str] = set()
    unvisited = iter(vertices)
    while len(order) < len(vertices):
        vertex = vertices[heapq.heappop(ready)] if ready else next(v for v in unvisited if v not in taken)
        if vertex in taken:
            continue
        taken.add(vertex)
        order.append(vertex)
        for other in after[vertex]:
            missing[other] -= 1
            if not missing[other] and other not in taken:
                heapq.heappush(ready, index[other])
    return order


def reduce(vertices: Sequence[str], waits: Waits, implies: Implies) -> None:
    """Drop, in place, every edge that a longer way implies; a way is one of edges that imply."""
    order = topological(vertices, lambda vertex: waits[vertex])
    position = {vertex: index for index, vertex in enumerate(order)}
    find = _implied_exactly if len(order) <= EXACT_LIMIT else _implied_nearby
    for vertex, implied in find(order, position, waits, implies):
        for other in implied:
            del waits[vertex][other]


def _implied_exactly(
    order: Sequence[str], position: Mapping[str, int], waits: Waits, implies: Implies
) -> list[tuple[str, list[str]]]:
    ancestors: list[int] = []  # one bit for each vertex: Python's big integers make this quick
    found = []
    for index, vertex in enumerate(order):
        beyond = sure = 0
        for other in waits[vertex]:
            place = position[other]
            if place < index and implies(other, vertex):
                sure |= 1 << place
                beyond |= ancestors[place]
        ancestors.append(beyond | sure)
        implied = [other for other in waits[vertex] if beyond >> position[other] & 1]
        if implied:
            found.append((vertex, implied))
    return found


def _implied_nearby(
    order: Sequence[str], position: Mapping[str, int], waits: Waits, implies: Implies
) -> list[tuple[str, list[str]]]:
    found = []
    for index, vertex in enumerate(order):
        near: set[str] = set()
        for other in waits[vertex]:
            if position[other] < index and implies(other, vertex):
                near.update(before for before in waits[other] if implies(before, other))
        implied = [other for other in waits[vertex] if other in near and position[other] < index]
        if implied:
            found.append((vertex, implied))
    return found


def contract(vertices: Sequence[str], waits: Waits, gates: Collection[str]) -> list[str]:
    """Replace gates by direct edges unless that would add edges; returns the gates that stay."""
    waiters: dict[str, dict[str, None]] = {vertex: {} for vertex in vertices}
    for vertex in vertices:
        for other in waits[vertex]:
            waiters[other][vertex] = None
    left = [vertex for vertex in topological(vertices, lambda vertex: waits[vertex]) if vertex in gates]
    while True:
        staying = []
        for gate in left:
            sources, targets = waits[gate], waiters[gate]
            sources.pop(gate, None)
            targets.pop(gate, None)
            if len(sources) * len(targets) > len(sources) + len(targets):
                staying.append(gate)
                continue
            for target in targets:
                through = waits[target].pop(gate)
                for source in sources:
                    if source != target:
                        old = waits[target].get(source)
                        waits[target][source] = Wait(True, old.on if old else through.on)
                        waiters[source][target] = None
            for source in sources:
                waiters[source].pop(gate, None)
            del waits[gate], waiters[gate]
        if len(staying) == len(left):
            return staying
        left = staying


def bundle(waits: Waits) -> list[str]:
    """Put, in place, a new gate where several wait for the same several; returns the new gates."""
    alike: dict[tuple[tuple[str, Wait], ...], list[str]] = {}
    for vertex, sources in waits.items():
        alike.setdefault(tuple(sorted(sources.items(), key=lambda item: item[0])), []).append(vertex)
    made: list[str] = []
    for sources_, targets in alike.items():
        if len(sources_) * len(targets) > len(sources_) + len(targets):
            gate = f"#join{len(made) + 1}"
            while gate in waits:
                gate += "'"
            waits[gate] = {source: waits[targets[0]][source] for source in waits[targets[0]]}
            on = next(iter(waits[gate].values())).on
            for target in targets:
                waits[target] = {gate: Wait(True, on)}
            made.append(gate)
    return made
