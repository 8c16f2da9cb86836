"""Lays out a whole drawing as nested frames: steps inside tasks, tasks inside modules, modules inside the pipeline."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.draw.cells import Cell, Edge, Point, Room
from kubexm_exec.draw.contract import EXACT_LIMIT, Wait, Waits, contract, reduce, topological
from kubexm_exec.draw.flow import place
from kubexm_exec.draw.model import ASIDE, ROOT, Box, Drawing, Group, summary
from kubexm_exec.draw.text import hosts_text, text_width
from kubexm_exec.model.graph import On


class Line(Struct, frozen=True):
    """A line between two members of a frame."""

    source: str
    target: str
    style: str  # "" (host by host), barrier, part (only a part waits, or for a part only), hook
    text: str


class Level(Struct, frozen=True):
    """The members of one frame, in graph order (inner frames, boxes, dots), and the lines between them."""

    groups: tuple[str, ...]
    boxes: tuple[str, ...]
    dots: tuple[str, ...]
    lines: tuple[Line, ...]


# Members have a letter before their id: a box and a frame may have the same one.
def _group(ident: str) -> str:
    return f"g{ident}"


def _item(ident: str) -> str:
    return f"i{ident}"


def lift(drawing: Drawing) -> dict[str, Level]:
    """What is to be laid out in each frame; the whole is the frame ``ROOT``."""
    return _Lift(drawing).levels()


class _Lift:
    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.paths = {group: drawing.path(group) for group in [ROOT, *drawing.groups]}
        self.aside = {box.id for box in drawing.boxes.values() if box.hook in ASIDE}
        self.waits: dict[str, Waits] = {group: {} for group in self.paths}
        self.pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.joined: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
        self.into: dict[str, list[str]] = {dot: [] for dot in drawing.dots}
        self.out: dict[str, list[str]] = {dot: [] for dot in drawing.dots}
        # How deep the frame is in which a box has something behind it, or before it.
        self.behind: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self._sort()
        self.known: dict[tuple[str, str], bool] = {}
        self.position: dict[str, int] = {}
        self.ancestors: dict[str, int] = {}
        self._find_ancestors()
        self.ends = {group: self._edge_of(group, self.behind) for group in drawing.groups}
        self.starts = {group: self._edge_of(group, self.before) for group in drawing.groups}

    def _sort(self) -> None:
        drawing = self.drawing
        for group in drawing.groups.values():
            self.waits[group.parent][_group(group.id)] = {}
        for item in [*drawing.boxes, *drawing.dots]:
            self.waits[drawing.group_of(item)][_item(item)] = {}
        for link in drawing.links:
            here, there = self.paths[drawing.group_of(link.source)], self.paths[drawing.group_of(link.target)]
            depth = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            depth = min(len(here), len(there)) if depth is None else depth
            source = _item(link.source) if len(here) == depth else _group(here[depth])
            target = _item(link.target) if len(there) == depth else _group(there[depth])
            waits = self.waits[here[depth - 1]][target]
            old = waits.get(source)
            waits[source] = Wait(link.barrier or (old is not None and old.barrier), link.on)
            self.pairs.setdefault((source, target), []).append((link.source, link.target))
            if link.source in self.out:
                self.out[link.source].append(link.target)
            if link.target in self.into:
                self.into[link.target].append(link.source)
            if link.target not in self.aside:
                self.behind[link.source] = max(depth, self.behind.get(link.source, 0))
            if link.source not in self.aside:
                self.before[link.target] = max(depth, self.before.get(link.target, 0))

    def _find_ancestors(self) -> None:
        """For each box and dot, as bits, all that it waits for; for nothing if there are too many."""
        waits: dict[str, list[str]] = {item: [] for item in [*self.drawing.boxes, *self.drawing.dots]}
        if len(waits) > EXACT_LIMIT:
            return
        for link in self.drawing.links:
            waits[link.target].append(link.source)
        for index, item in enumerate(topological(list(waits), waits.__getitem__)):
            self.position[item] = index
            self.ancestors[item] = 0
            for other in waits[item]:
                if other in self.ancestors:
                    self.ancestors[item] |= self.ancestors[other] | 1 << self.position[other]

    def _edge_of(self, group: str, depths: dict[str, int]) -> frozenset[str]:
        """The boxes of a group with nothing behind (or before) them in it."""
        depth = len(self.paths[group])
        boxes = self.drawing.boxes_in(group)
        return frozenset(b.id for b in boxes if b.id not in self.aside and depths.get(b.id, 0) < depth)

    def levels(self) -> dict[str, Level]:
        return {group: self._level(group) for group in self.paths}

    def _level(self, group: str) -> Level:
        waits = self.waits[group]
        dots = [_item(dot.id) for dot in self.drawing.dots.values() if dot.group == group]
        for _ in range(2):
            reduce(list(waits), waits, self._implies)
            dots = contract(list(waits), waits, dots)
        frame = self.drawing.groups.get(group)
        lines = tuple(
            Line(source, target, self._style(source, target, wait), self._text(source, target, wait))
            for target, sources in waits.items()
            for source, wait in sources.items()
        )
        return Level(
            groups=frame.groups if frame else self.drawing.top,
            boxes=frame.boxes if frame else (),
            dots=tuple(dot[1:] for dot in dots),
            lines=lines,
        )

    def _ends_of(self, source: str, target: str) -> tuple[set[str], set[str]]:
        """The boxes that a line between two members really joins."""
        if (source, target) not in self.joined:
            sources: set[str] = set()
            targets: set[str] = set()
            for first, second in self.pairs.get((source, target), ()):
                sources.update(self.into.get(first, [first]))
                targets.update(self.out.get(second, [second]))
            for dot in self.drawing.dots:  # a gate that was drawn through
                before, after = self.pairs.get((source, _item(dot))), self.pairs.get((_item(dot), target))
                if before and after:
                    sources.update(first for first, _ in before)
                    targets.update(second for _, second in after)
            self.joined[source, target] = sources, targets
        return self.joined[source, target]

    def _whole(self, source: str, target: str) -> bool:
        """Whether all of the one waits for all of the other, directly or not."""
        if not self.ancestors or (source[0] == "i" and target[0] == "i"):
            return True
        if (source, target) not in self.known:
            ends = self.ends[source[1:]] if source[0] == "g" else frozenset([source[1:]])
            starts = self.starts[target[1:]] if target[0] == "g" else frozenset([target[1:]])
            wanted = 0
            for end in ends:
                wanted |= 1 << self.position[end]
            self.known[source, target] = all(wanted & ~self.ancestors[start] == 0 for start in starts)
        return self.known[source, target]

    def _hook(self, member: str) -> bool:
        group = self.drawing.groups.get(member[1:])
        if member[0] == "g":
            return group is not None and group.kind == "hooks"
        box = self.drawing.boxes.get(member[1:])
        return box is not None and bool(box.hook)

    def _implies(self, source: str, target: str) -> bool:
        aside = source[1:] in self.aside if source[0] == "i" else self._bad_day(source[1:])
        return not aside and self._whole(source, target)

    def _bad_day(self, group: str) -> bool:
        return all(box.id in self.aside for box in self.drawing.boxes_in(group))

    def _style(self, source: str, target: str, wait: Wait) -> str:
        if self._hook(source) or self._hook(target):
            return "hook"
        if not self._whole(source, target):
            return "part"
        return "barrier" if wait.barrier else ""

    def _text(self, source: str, target: str, wait: Wait) -> str:
        first, second = source[1:], target[1:]
        on = {
            On.SUCCESS: "waits for", On.FAILURE: "runs if this failed:", On.DONE: "runs in any case after",
            On.BEGUN: "runs if this began:",
        }[wait.on]  # fmt: skip
        if self._whole(source, target) or self._hook(source) or self._hook(target):
            return f"{second} {on} {first}{'' if not wait.barrier else ' (all hosts)'}"
        sources, targets = (sorted(ends) for ends in self._ends_of(source, target))
        more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
        return f"{', '.join(targets[:3])}{' ...' if len(targets) > 3 else ''} {on} {', '.join(sources[:3])}{more}"


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
    hosts = box.nodes[0].summary if len(box.nodes) == 1 and box.nodes[0].places else hosts_text(box.hosts)
    return " · ".join(filter(None, (box.hook if inside else "", box.type, hosts)))


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
