"""Gives every cell of a frame its layer (rank) and its place among the others of that layer (key)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence

from kubexm_exec.draw.contract import topological

SWEEPS = 8
MANY = 3000
"""With more cells or edges than this the order of the graph is kept: it is a good one, and sweeping takes time."""

Pairs = Sequence[tuple[int, int]]


def ranked(count: int, pairs: Pairs) -> tuple[list[int], list[float]]:
    """The rank and the key of each of ``count`` cells; pairs are (first, then); one that closes a cycle is left out."""
    names = [str(index) for index in range(count)]
    before: list[list[int]] = [[] for _ in names]
    for source, target in pairs:
        if source != target:
            before[target].append(source)
    order = [int(name) for name in topological(names, lambda name: [str(i) for i in before[int(name)]])]
    position = {cell: index for index, cell in enumerate(order)}
    forward = [(source, target) for source, target in pairs if position[source] < position[target]]
    into: list[list[int]] = [[] for _ in names]
    out: list[list[int]] = [[] for _ in names]
    for source, target in forward:
        into[target].append(source)
        out[source].append(target)
    ranks = [0] * count
    for cell in order:
        ranks[cell] = max((ranks[source] + 1 for source in into[cell]), default=0)
    layers: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for cell in range(count):
        layers[ranks[cell]].append(cell)
    if count <= MANY and len(forward) <= MANY:
        layers = _untangled(layers, into, out, [(s, t) for s, t in forward if ranks[t] - ranks[s] == 1], ranks)
    return ranks, _keys(layers, into, count)


def _untangled(
    layers: list[list[int]], into: list[list[int]], out: list[list[int]], near: Pairs, ranks: Sequence[int]
) -> list[list[int]]:
    """The layers with the fewest crossings found by sweeping to and fro; as they came, if nothing is better."""
    best, fewest = layers, _crossings(layers, near, ranks)
    current = [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        keys = dict(enumerate(_keys(current, into, len(ranks))))
        for layer in current[1:] if down else reversed(current[:-1]):
            neighbours = into if down else out
            wished = {i: _mean([keys[j] for j in neighbours[i]], keys[i]) for i in layer}
            layer.sort(key=lambda i: wished[i])
            free = float("-inf")
            for i in layer:
                keys[i] = max(free, wished[i])
                free = keys[i] + 1
        found = _crossings(current, near, ranks)
        if found < fewest:
            best, fewest = [list(layer) for layer in current], found
    return best


def _keys(layers: Sequence[Sequence[int]], into: Sequence[Sequence[int]], count: int) -> list[float]:
    """A key for each cell that keeps the order of the layers and is near to what comes before the cell."""
    keys = [0.0] * count
    for layer in layers:
        free = 0.0
        for cell in layer:
            keys[cell] = max(free, _mean([keys[other] for other in into[cell]], free))
            free = keys[cell] + 1
    return keys


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(layers: Sequence[Sequence[int]], near: Pairs, ranks: Sequence[int]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    place: Mapping[int, int] = {cell: index for layer in layers for index, cell in enumerate(layer)}
    ends: list[list[tuple[int, int]]] = [[] for _ in layers]
    for source, target in near:
        ends[ranks[source]].append((place[source], place[target]))
    total = 0
    for pairs in ends:
        seen: list[int] = []
        for _, target in sorted(pairs):
            total += len(seen) - bisect_right(seen, target)
            insort(seen, target)
    return total
