"""What the layout of one frame works on: cells to place, edges to lead, and the room there is.

Everything is in two directions, not in x and y: ``u`` is the one in which the work goes on, ``v`` the one across it.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from msgspec import Struct

TRACK = 8.0
"""Between two lines side by side."""
LANE = 10.0
"""What a line takes that passes a layer."""
PAD = 13.0
"""Between a line and a cell; an arrow head fits in."""
SPINE = 60.0
"""How far from a cell's beginning lines go straight from row to row."""
FOLLOW = 1.6
"""Cells follow what is before them, unless the row becomes so many times longer across."""

Point: TypeAlias = tuple[float, float]


class Cell(Struct, frozen=True):
    """Something to place: its sizes, where on the side across lines touch it, its layer and its place in it."""

    u: float
    v: float
    port: float
    rank: int = 0
    key: float = 0.0


class Edge(Struct, frozen=True):
    """A line between two cells; lines of one style may share their way."""

    source: int
    target: int
    style: str = ""


class Room(Struct, frozen=True):
    """How much room there is, and how cells lie across: round the middle, or from the top."""

    max_u: float
    max_v: float
    gap: float
    gutter: float
    row_gap: float
    centred: bool = False


class Placed(Struct, frozen=True):
    """Where everything went: sizes, the beginning of each cell, the points of each edge."""

    u: float
    v: float
    at: tuple[Point, ...]
    ways: tuple[tuple[Point, ...], ...]


def snap(value: float) -> float:
    """The nearest half: exact in binary, so that what should be in line is in line."""
    return math.floor(value * 2 + 0.5) / 2
