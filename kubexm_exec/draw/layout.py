"""Lays out a whole drawing as nested frames: steps inside tasks, tasks inside modules, modules inside the pipeline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.draw.cells import Cell, Edge, Point, Room
from kubexm_exec.draw.flow import place
from kubexm_exec.draw.lift import Level, Line, lift
from kubexm_exec.draw.model import ROOT, Box, Drawing, Group, summary
from kubexm_exec.draw.order import ranked
from kubexm_exec.draw.text import hosts_text, text_width

BOX_HEIGHT = 42
BOX_WIDTHS = (132, 236)
DOT = 10
NAME_SIZE, SUB_SIZE = 12.5, 10.5
TITLE_SIZE = {"module": 14.0, "task": 12.5, "hooks": 12.5}
HEADER = {"module": 38, "task": 32, "hooks": 32}
INSET = {"module": 16, "task": 12, "hooks": 12}
PORT = {"module": 19, "task": 16, "hooks": 16}
CLOSED_HEIGHT = 48
CLOSED_WIDTHS = (150, 300)

# Steps go down and start a new column when the task gets too tall; tasks and modules go right and start a new row.
STEPS = Room(max_u=860, max_v=900, gap=14, gutter=26, row_gap=30, centred=True)
TASKS = Room(max_u=1240, max_v=1000, gap=18, gutter=40, row_gap=34)
MODULES = Room(max_u=1500, max_v=1500, gap=28, gutter=48, row_gap=44)
WIDTHS = (1500, 2100, 2800, 3700, 5000, 7000, 10000)
"""A big pipeline may be wider, if that brings it nearer to the shape of a screen."""
SHAPE = 1.4
TALL = 1100
BROAD = 1800
"""A task that is broader than this may be taller, for the same reason."""
MANY_STEPS = 1200
"""With more steps in one task there is no second try: in tall columns long lines would pass very many layers."""


class Way(Struct, frozen=True):
    """A line with its corners, in the coordinates of the frame it is in; source and target are indices of pieces."""

    source: int
    target: int
    style: str
    text: str
    points: tuple[Point, ...]


class Piece(Struct, frozen=True):
    """A frame, box or dot: where it is in the frame round it, how big it is, and what is in it."""

    kind: str  # module | task | hooks | box | dot | root
    id: str
    w: float
    h: float
    x: float = 0.0
    y: float = 0.0
    closed: tuple[float, float] = (0.0, 0.0)
    """Its size when it is closed."""
    least: float = 0.0
    """How wide its inside is at least, for the title."""
    pieces: tuple[Piece, ...] = ()
    ways: tuple[Way, ...] = ()
    room: Room | None = None
    """How its inside was laid out."""
    ranks: tuple[int, ...] = ()
    keys: tuple[float, ...] = ()


def room_of(kind: str) -> Room:
    """How the inside of a frame of that kind is laid out."""
    return {"root": MODULES, "module": TASKS}.get(kind, STEPS)


def port_of(piece: Piece, frame: str) -> float:
    """How far below its upper edge lines touch a piece in a frame of that kind: at the height of the titles."""
    return min(PORT["module" if frame == "root" else "task"], piece.h / 2)


def layout(drawing: Drawing) -> Piece:
    """The whole drawing; every piece is inside the frame it belongs to and touches no other."""
    levels = lift(drawing)
    return _frame(drawing, levels, None)


def _frame(drawing: Drawing, levels: dict[str, Level], group: Group | None) -> Piece:
    level = levels[group.id if group else ROOT]
    width = _box_width([drawing.boxes[box] for box in level.boxes])
    pieces = [
        *(_frame(drawing, levels, drawing.groups[inner]) for inner in level.groups),
        *(Piece("box", box, width, BOX_HEIGHT) for box in level.boxes),
        *(Piece("dot", dot, DOT, DOT) for dot in level.dots),
    ]
    kind = group.kind if group else "root"
    if group and not level.groups:
        return _fill(kind, group, pieces, level.lines, drawing, down=True)
    return _fill(kind, group, pieces, level.lines, drawing, down=False)


def _box_width(boxes: Sequence[Box]) -> float:
    """One width for all steps of a task, so that they line up."""
    wanted = [
        max(text_width(box.label, NAME_SIZE, bold=True) + (14 if box.hook else 0), text_width(sub_text(box), SUB_SIZE))
        for box in boxes
    ]
    low, high = BOX_WIDTHS
    return float(min(max(low, int(max(wanted, default=0)) + 46), high))


def sub_text(box: Box) -> str:
    """The second line of a box: step type and hosts; for a hook of a task also which: others have a frame."""
    inside = box.hook and "#hooks/" not in box.group
    return " · ".join(filter(None, (box.hook if inside else "", box.type, hosts_text(box.hosts))))


def _fill(
    kind: str, group: Group | None, pieces: list[Piece], lines: Sequence[Line], drawing: Drawing, *, down: bool
) -> Piece:
    index = {("i" if piece.kind in ("box", "dot") else "g") + piece.id: i for i, piece in enumerate(pieces)}
    ends = [(index[line.source], index[line.target]) for line in lines]
    ranks, keys = ranked(len(pieces), ends)
    cells = [
        Cell(piece.h, piece.w, piece.w / 2, rank, key)
        if down
        else Cell(piece.w, piece.h, port_of(piece, kind), rank, key)
        for piece, rank, key in zip(pieces, ranks, keys, strict=True)
    ]
    edges = [Edge(source, target, line.style) for (source, target), line in zip(ends, lines, strict=True)]
    room = room_of(kind)
    placed = place(cells, edges, room)
    if kind == "root" and placed.v > TALL:
        rooms = [replace(room, max_u=float(width)) for width in WIDTHS]
        tried = [(place(cells, edges, one), one) for one in rooms]
        placed, room = min(tried, key=lambda one: abs(math.log(one[0].u / one[0].v / SHAPE)))
    elif (
        down
        and placed.v > BROAD
        and (len(cells) <= MANY_STEPS or all(ranks[e.target] - ranks[e.source] == 1 for e in edges))
    ):
        room = replace(room, max_u=math.sqrt(placed.u * placed.v / SHAPE))
        placed = place(cells, edges, room)

    left, top, w, h = 0.0, 0.0, *((placed.v, placed.u) if down else (placed.u, placed.v))
    closed = (0.0, 0.0)
    least = 0.0
    if group:
        inset = INSET[kind]
        words = summary(drawing, group.id)
        title = text_width(group.title, TITLE_SIZE[kind], bold=True)
        need = title + (text_width(words, SUB_SIZE) if kind == "module" else 0)
        low, high = CLOSED_WIDTHS
        closed = (float(min(max(low, int(max(title, text_width(words, SUB_SIZE))) + 62), high)), float(CLOSED_HEIGHT))
        least = float(min(int(need) + 50, high))
        wide = max(w, least)
        left, top = inset + (int(wide - w) // 2 if down else 0), HEADER[kind]
        w, h = wide + 2 * inset, h + top + inset

    def move(point: Point) -> Point:
        u, v = point
        return (left + v, top + u) if down else (left + u, top + v)

    spots = [move(at) for at in placed.at]
    inner = tuple(replace(piece, x=x, y=y) for piece, (x, y) in zip(pieces, spots, strict=True))
    ways = tuple(
        Way(source, target, line.style, line.text, tuple(map(move, points)))
        for (source, target), line, points in zip(ends, lines, placed.ways, strict=True)
    )
    return Piece(
        kind,
        group.id if group else ROOT,
        w,
        h,
        closed=closed,
        least=least,
        pieces=inner,
        ways=ways,
        ranks=tuple(ranks),
        keys=tuple(keys),
        room=room,
    )
