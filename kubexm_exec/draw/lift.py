"""Splits the links of a drawing by frame: inside one, lines go from box to box, or from inner frame to inner frame."""

from __future__ import annotations

from msgspec import Struct

from kubexm_exec.draw.contract import EXACT_LIMIT, Wait, Waits, contract, reduce, topological
from kubexm_exec.draw.model import ASIDE, ROOT, Drawing
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
        """One level for each frame."""
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
        on = {On.SUCCESS: "waits for", On.FAILURE: "runs if this failed:", On.DONE: "runs in any case after"}[wait.on]
        if self._whole(source, target) or self._hook(source) or self._hook(target):
            return f"{second} {on} {first}{'' if not wait.barrier else ' (all hosts)'}"
        sources, targets = (sorted(ends) for ends in self._ends_of(source, target))
        more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
        return f"{', '.join(targets[:3])}{' ...' if len(targets) > 3 else ''} {on} {', '.join(sources[:3])}{more}"
