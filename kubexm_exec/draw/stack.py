"""Puts cells into layers, layers into rows, and gives everything in a row its place across.

``static/flow.js`` does the same for frames that are opened and closed in a browser; a test holds the two together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kubexm_exec.draw.cells import FOLLOW, LANE, Cell, Edge, Room, snap


class Entry(NamedTuple):
    """A cell, or the lane of a line that passes the layer: then it has a net, and no cell."""

    cell: int
    net: str = ""


class Stack:
    """The cells of one frame by layer and row. ``v`` of cells and ``lane_v`` of lanes start at 0 in each row."""

    def __init__(self, cells: Sequence[Cell], edges: Sequence[Edge], room: Room) -> None:
        self.cells, self.edges, self.room = cells, edges, room
        self.layers = self._layered()
        self.rows = self._wrapped()
        self.layer_of = {cell: index for index, layer in enumerate(self.layers) for cell in layer}
        row_of_layer = {layer: row for row, layers in enumerate(self.rows) for layer in layers}
        self.row_of = {cell: row_of_layer[layer] for cell, layer in self.layer_of.items()}
        # A line is shared by all edges of one cell: of the source or of the target, whichever has more of them.
        out = Counter(edge.source for edge in edges)
        into = Counter(edge.target for edge in edges)
        self.nets = [
            f"s{e.source}{e.style}" if out[e.source] >= into[e.target] else f"t{e.target}{e.style}" for e in edges
        ]
        self.passing = self._passing()
        self.stacks: list[list[Entry]] = [[] for _ in self.layers]
        self.v: dict[int, float] = {}
        self.lane_v: dict[tuple[int, str], float] = {}
        self._into, self._lanes = self._feeders()
        self.row_size = [self._settle(row) for row in self.rows]

    def in_row(self, edge: Edge) -> bool:
        """Whether an edge goes on within its row."""
        same = self.row_of[edge.source] == self.row_of[edge.target]
        return same and self.layer_of[edge.source] < self.layer_of[edge.target]

    def port(self, cell: int) -> float:
        """Where lines touch a cell."""
        return self.v[cell] + self.cells[cell].port

    def _layered(self) -> list[list[int]]:
        """Cells by rank; a rank that is too long across becomes several layers, about equally long."""
        cells, gap, most = self.cells, self.room.gap, self.room.max_v
        ranks: dict[int, list[int]] = {}
        for index in sorted(range(len(cells)), key=lambda i: (cells[i].rank, cells[i].key, i)):
            ranks.setdefault(cells[index].rank, []).append(index)
        layers = []
        for members in ranks.values():
            total = sum(cells[i].v + gap for i in members) - gap
            share = total / math.ceil(total / most) if total > most else math.inf
            layer: list[int] = []
            used = 0.0
            for i in members:
                if layer and used + cells[i].v / 2 > share:
                    layers.append(layer)
                    layer, used = [], 0.0
                layer.append(i)
                used += cells[i].v + gap
            layers.append(layer)
        return layers

    def _wrapped(self) -> list[list[int]]:
        """Layers in rows, as words in lines: as few rows as the room allows, and then about equally long."""
        sizes = [max(self.cells[i].u for i in layer) for layer in self.layers]
        low, high = 0.0, self.room.max_u
        fewest = len(_lines(sizes, self.room.gutter, high))
        for _ in range(12):
            middle = (low + high) / 2
            if len(_lines(sizes, self.room.gutter, middle)) > fewest:
                low = middle
            else:
                high = middle
        return _lines(sizes, self.room.gutter, high)

    def _passing(self) -> list[list[str]]:
        """The nets that need a lane in each layer."""
        passing: list[dict[str, None]] = [{} for _ in self.layers]
        for edge, net in zip(self.edges, self.nets, strict=True):
            if self.in_row(edge):
                for layer in range(self.layer_of[edge.source] + 1, self.layer_of[edge.target]):
                    passing[layer][net] = None
        return [list(nets) for nets in passing]

    def _feeders(self) -> tuple[dict[int, list[tuple[str, int]]], dict[tuple[int, str], list[int]]]:
        """For each cell the lines into it (net, source if it is next door), for each lane the sources next door."""
        into: dict[int, list[tuple[str, int]]] = {}
        lanes: dict[tuple[int, str], list[int]] = {}
        for edge, net in zip(self.edges, self.nets, strict=True):
            if not self.in_row(edge):
                continue
            first = self.layer_of[edge.source]
            near = self.layer_of[edge.target] - first == 1
            into.setdefault(edge.target, []).append((net, edge.source if near else -1))
            if not near:
                lanes.setdefault((first + 1, net), []).append(edge.source)
        return into, lanes

    def _settle(self, row: Sequence[int]) -> float:
        """Give everything in a row its place across; returns the row's size across."""
        size = self._spread(row, follow=True)
        gap = self.room.gap
        tight = max(sum(self._size(entry) + gap for entry in self.stacks[layer]) - gap for layer in row)
        if not self.room.centred and size > FOLLOW * tight:
            size = self._spread(row, follow=False)
        return size

    def _size(self, entry: Entry) -> float:
        return LANE if entry.net else self.cells[entry.cell].v

    def _spread(self, row: Sequence[int], *, follow: bool) -> float:
        low, high = math.inf, -math.inf
        for layer in row:
            stack = [Entry(cell) for cell in self.layers[layer]]
            if self.passing[layer]:
                stack = self._with_lanes(layer, stack, self._starts(layer, stack, follow=follow))
            self.stacks[layer] = stack
            for entry, start in zip(stack, self._starts(layer, stack, follow=follow), strict=True):
                begin = snap(start)
                self._put(layer, entry, begin)
                low, high = min(low, begin), max(high, begin + self._size(entry))
        for layer in row:
            for entry in self.stacks[layer]:
                self._put(layer, entry, self._got(layer, entry) - low)
        return high - low

    def _starts(self, layer: int, stack: Sequence[Entry], *, follow: bool) -> list[float]:
        """Where each entry begins: in line with what leads to it, if those before leave the room."""
        centred = self.room.centred
        starts: list[float] = []
        moved = 0.0
        free = -math.inf if centred else 0.0
        for entry in stack:
            wished = self._wished(layer, entry) if follow else None
            if wished is None:
                wished = -self._size(entry) / 2 if centred else free
            start = max(free, wished)
            starts.append(start)
            moved += start - wished
            free = start + self._size(entry) + self.room.gap
        shift = moved / len(starts) if centred else 0.0
        return [start - shift for start in starts]

    def _with_lanes(self, layer: int, cells: Sequence[Entry], starts: Sequence[float]) -> list[Entry]:
        """The cells with each lane where it is nearest to the line it continues: before, between or behind them."""
        half = self.room.gap / 2
        slots = [start - half for start in starts] + [starts[-1] + self._size(cells[-1]) + half]
        chosen: list[list[tuple[float, str]]] = [[] for _ in slots]
        for net in self.passing[layer]:
            wished = (self._wished(layer, Entry(-1, net)) or 0.0) + LANE / 2
            best = min(range(len(slots)), key=lambda i: abs(slots[i] - wished))
            chosen[best].append((wished, net))
        stack: list[Entry] = []
        for index, lanes in enumerate(chosen):
            stack += [Entry(-1, net) for _, net in sorted(lanes)]
            stack += cells[index : index + 1]
        return stack

    def _put(self, layer: int, entry: Entry, begin: float) -> None:
        if entry.net:
            self.lane_v[layer, entry.net] = begin + LANE / 2
        else:
            self.v[entry.cell] = begin

    def _got(self, layer: int, entry: Entry) -> float:
        return self.lane_v[layer, entry.net] - LANE / 2 if entry.net else self.v[entry.cell]

    def _wished(self, layer: int, entry: Entry) -> float | None:
        """Where a cell or lane would begin if its line came in straight."""
        if entry.net:
            lines = [self.port(cell) for cell in self._lanes.get((layer, entry.net), ())]
            if (layer - 1, entry.net) in self.lane_v:
                lines.append(self.lane_v[layer - 1, entry.net])
            port = LANE / 2
        else:
            found = self._into.get(entry.cell, ())
            lines = [self.port(cell) if cell >= 0 else self.lane_v[layer - 1, net] for net, cell in found]
            port = self.cells[entry.cell].port
        if not lines:
            return None
        return (sum(lines) / len(lines) if self.room.centred else min(lines)) - port


def _lines(sizes: Sequence[float], gutter: float, most: float) -> list[list[int]]:
    lines: list[list[int]] = []
    used = 0.0
    for index, size in enumerate(sizes):
        if not lines or used + gutter + size > most:
            lines.append([])
            used = -gutter
        lines[-1].append(index)
        used += gutter + size
    return lines
