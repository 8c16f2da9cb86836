"""Lays out one frame: cells in layers and rows, edges led round them through the gutters, gaps and margin between.

``static/flow.js`` does the same for frames that are opened and closed in a browser; a test holds the two together.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from kubexm_exec.draw.cells import PAD, SPINE, TRACK, Cell, Edge, Placed, Point, Room
from kubexm_exec.draw.contract import topological
from kubexm_exec.draw.stack import Stack

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
    """A track for each line of a channel, so that none touch and few cross.

    Where one line enters at the height at which another leaves, the first must turn before the second.
    """

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
