"""Lays out one frame: cells in layers and rows, edges led round them through the gutters, gaps and margin between.

``static/flow.js`` does the same for frames that are opened and closed in a browser; a test holds the two together.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from kubexm_exec.draw.cells import FOLLOW, LANE, PAD, SPINE, TRACK, Cell, Edge, Placed, Point, Room, snap
from kubexm_exec.draw.contract import topological


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


Gutter: TypeAlias = tuple[int, int]
"""A row, and the index in it of the layer that the gutter is before."""
NEAR = 4.0
"""Lines that are nearer than this look like one."""


class Span(Struct):
    """What a line takes of a channel, where it comes from, and where it enters and leaves the channel."""

    low: float
    high: float
    origin: float
    enters: list[float] = field(default_factory=list)
    leaves: list[float] = field(default_factory=list)

    def add(self, *ends: float) -> None:
        """Make it longer."""
        self.low, self.high = min(self.low, *ends), max(self.high, *ends)


class _Way(Struct):
    """How one edge goes: from stop to stop (``v``, or the gap above a row), and what it changes over in (``u``)."""

    stops: list[float | tuple[int, str]]
    turns: list[float | tuple[Gutter, str] | str]


def place(cells: Sequence[Cell], edges: Sequence[Edge], room: Room) -> Placed:
    """Place the cells by rank and key; an edge that does not go to a later layer is led back round everything."""
    return _Router(Stack(cells, edges, room)).placed() if cells else Placed(0.0, 0.0, (), ())


class _Router:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.cells, self.room = stack.cells, stack.room
        self.index = {layer: i for row in stack.rows for i, layer in enumerate(row)}
        self.u: dict[int, float] = {}
        self.margin: dict[str, int] = {}
        self.spans: dict[Gutter, dict[str, Span]] = {}
        self.track_u: dict[tuple[Gutter, str], float] = {}

    def placed(self) -> Placed:
        stack = self.stack
        edges = list(zip(stack.edges, stack.nets, strict=True))
        ways = [self._within(e, net) if stack.in_row(e) else self._across(e, net) for e, net in edges]
        for way in ways:
            self._note(way)
        width = self._along()
        for (edge, _), way in zip(edges, ways, strict=True):
            self._aim(edge, way)
        gap_v, row_v, height = self._down(ways)
        at = tuple((self.u[i], row_v[stack.row_of[i]] + stack.v[i]) for i in range(len(self.cells)))
        lines = tuple(self._line(e, way, at, gap_v, row_v) for (e, _), way in zip(edges, ways, strict=True))
        return Placed(width, height, at, lines)

    # Which way each edge goes

    def _within(self, edge: Edge, net: str) -> _Way:
        stack, row = self.stack, self.stack.row_of[edge.source]
        first, last = stack.layer_of[edge.source], stack.layer_of[edge.target]
        lanes = [stack.lane_v[layer, net] for layer in range(first + 1, last)]
        turns = [((row, self.index[layer]), net) for layer in range(first + 1, last + 1)]
        return _Way([stack.port(edge.source), *lanes, stack.port(edge.target)], [*turns])

    def _across(self, edge: Edge, net: str) -> _Way:
        """Through the gap under the source's row and the one over the target's row; by the margin if these are two."""
        stack = self.stack
        source, target = stack.row_of[edge.source], stack.row_of[edge.target]
        leave: float | tuple[Gutter, str] = math.nan  # straight down: where is known when everything is placed along
        arrive: float | tuple[Gutter, str] = math.nan
        if stack.stacks[stack.layer_of[edge.source]][-1].cell != edge.source:
            leave = ((source, self.index[stack.layer_of[edge.source]] + 1), net)
        if stack.stacks[stack.layer_of[edge.target]][0].cell != edge.target:
            arrive = ((target, self.index[stack.layer_of[edge.target]]), net)
        stops: list[float | tuple[int, str]] = [stack.port(edge.source), (source + 1, net)]
        turns: list[float | tuple[Gutter, str] | str] = [leave]
        if target != source + 1:
            self.margin.setdefault(net, len(self.margin))
            stops.append((target, net))
            turns.append(net)
        return _Way([*stops, stack.port(edge.target)], [*turns, arrive])

    def _note(self, way: _Way) -> None:
        """Remember what a way takes of each gutter."""
        for turn, before, after in zip(way.turns, way.stops, way.stops[1:], strict=False):
            if isinstance(turn, tuple):
                gutter, net = turn
                come, go = self._end(gutter[0], before), self._end(gutter[0], after)
                span = self.spans.setdefault(gutter, {}).setdefault(net, Span(come, come, come))
                span.add(come, go)
                span.enters.append(come)
                span.leaves.append(go)

    def _end(self, row: int, stop: float | tuple[int, str]) -> float:
        if isinstance(stop, tuple):
            return -1e9 if stop[0] == row else 1e9
        return stop

    # Along

    def _along(self) -> float:
        """Give every cell and every line in a gutter its place along; returns the size."""
        width = 0.0
        for row, layers in enumerate(self.stack.rows):
            u = PAD + len(self.margin) * TRACK if self.margin else 0.0
            for i in range(len(layers) + 1):
                spans = {n: s for n, s in self.spans.get((row, i), {}).items() if s.low != s.high}
                tracks = spread_tracks(spans)
                count = max(tracks.values(), default=-1) + 1
                inner = 0 < i < len(layers)
                size = 2 * PAD + (count - 1) * TRACK if count else 0.0
                if inner:
                    size = max(self.room.gutter, size)
                first = u + (size - (count - 1) * TRACK) / 2
                for net in self.spans.get((row, i), {}):
                    self.track_u[(row, i), net] = first + tracks.get(net, 0) * TRACK
                u += size
                if i < len(layers):
                    for cell in self.stack.layers[layers[i]]:
                        self.u[cell] = u
                    u += max(self.cells[cell].u for cell in self.stack.layers[layers[i]])
            width = max(width, u)
        return width

    def _aim(self, edge: Edge, way: _Way) -> None:
        """Say where a way leaves a cell straight down or arrives straight from above; in one line if it can."""
        first, last = way.turns[0], way.turns[-1]
        down = isinstance(first, float) and math.isnan(first)
        from_above = isinstance(last, float) and math.isnan(last)
        s, t = edge.source, edge.target
        low = max(self.u[s], self.u[t])
        high = min(self.u[s] + self.cells[s].u, self.u[t] + self.cells[t].u)
        if down and from_above and len(way.turns) == 2 and low < high:
            way.turns = [low + min((high - low) / 2, SPINE)]
            way.stops = [way.stops[0], way.stops[-1]]
            return
        if down:
            way.turns[0] = self.u[s] + min(self.cells[s].u / 2, SPINE)
        if from_above:
            way.turns[-1] = self.u[t] + min(self.cells[t].u / 2, SPINE)

    def _turn_u(self, turn: float | tuple[Gutter, str] | str) -> float:
        if isinstance(turn, str):
            return self.margin[turn] * TRACK + TRACK / 2
        return self.track_u[turn] if isinstance(turn, tuple) else turn

    # Down

    def _down(self, ways: Sequence[_Way]) -> tuple[dict[tuple[int, str], float], list[float], float]:
        """Where each line in a gap and each row is across, and the size of all."""
        spans: dict[int, dict[str, Span]] = {}
        for way in ways:
            for i, stop in enumerate(way.stops):
                if isinstance(stop, tuple):
                    gap, net = stop
                    come, go = self._turn_u(way.turns[i - 1]), self._turn_u(way.turns[i])
                    span = spans.setdefault(gap, {}).setdefault(net, Span(come, come, come))
                    span.add(come, go)
                    if i == 1:
                        span.enters.append(come)
                    if i == len(way.stops) - 2:
                        span.leaves.append(go)
        gap_v: dict[tuple[int, str], float] = {}
        row_v: list[float] = []
        v = 0.0
        for gap in range(len(self.stack.rows) + 1):
            tracks = spread_tracks(spans.get(gap, {}))
            count = max(tracks.values(), default=-1) + 1
            size = 2 * PAD + (count - 1) * TRACK if count else 0.0
            if 0 < gap < len(self.stack.rows):
                size = max(self.room.row_gap, size)
            for net, track in tracks.items():
                gap_v[gap, net] = v + (size - (count - 1) * TRACK) / 2 + track * TRACK
            v += size
            if gap < len(self.stack.rows):
                row_v.append(v)
                v += self.stack.row_size[gap]
        return gap_v, row_v, v

    def _line(
        self,
        edge: Edge,
        way: _Way,
        at: Sequence[Point],
        gap_v: Mapping[tuple[int, str], float],
        row_v: Sequence[float],
    ) -> tuple[Point, ...]:
        s, t = edge.source, edge.target
        begin = (at[s][0] + self.cells[s].u, row_v[self.stack.row_of[s]] + self.stack.port(s))
        end = (at[t][0], row_v[self.stack.row_of[t]] + self.stack.port(t))
        if isinstance(way.turns[0], float):
            begin = (way.turns[0], at[s][1] + self.cells[s].v)
        if isinstance(way.turns[-1], float):
            end = (way.turns[-1], at[t][1])
        offset = row_v[self.stack.row_of[s]]
        stops = [gap_v[stop] if isinstance(stop, tuple) else stop + offset for stop in way.stops]
        stops[0], stops[-1] = begin[1], end[1]
        points = [begin]
        for turn, before, after in zip(way.turns, stops, stops[1:], strict=False):
            u = self._turn_u(turn)
            points += [(u, before), (u, after)]
        return straighten([*points, end])


def spread_tracks(spans: Mapping[str, Span]) -> dict[str, int]:
    """A track for each line of a channel, so that none touch and few cross."""

    def turn(item: tuple[str, Span]) -> tuple[int, float, str]:
        net, span = item
        down = span.high - span.origin >= span.origin - span.low
        return (0, -span.origin, net) if down else (1, span.origin, net)

    names = [net for net, _ in sorted(spans.items(), key=turn)]
    leaving = sorted((end, net) for net, span in spans.items() for end in span.leaves)
    first: dict[str, set[str]] = {net: set() for net in names}
    for net in names:
        for end in spans[net].enters:
            for other_end, other in leaving[bisect_left(leaving, (end - NEAR, "")) :]:
                if other_end > end + NEAR:
                    break
                if other != net:
                    first[other].add(net)
    tracks: dict[str, int] = {}
    for net in topological(names, lambda name: sorted(first[name])):
        span = spans[net]
        near = [t for o, t in tracks.items() if span.low <= spans[o].high + NEAR and spans[o].low <= span.high + NEAR]
        tracks[net] = max(near, default=-1) + 1
    return tracks


def straighten(points: Iterable[Point]) -> tuple[Point, ...]:
    """The same way without points that repeat or lie on a straight line."""
    kept: list[Point] = []
    for point in points:
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and (kept[-2][0] == kept[-1][0] == point[0] or kept[-2][1] == kept[-1][1] == point[1]):
            kept[-1] = point
        else:
            kept.append(point)
    return tuple(kept)
