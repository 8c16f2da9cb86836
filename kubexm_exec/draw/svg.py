"""Draws a laid-out graph as SVG: frames, boxes, lines, signs for outcomes, tooltips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubexm_exec.draw.cells import Point
from kubexm_exec.draw.layout import INSET, NAME_SIZE, PORT, SUB_SIZE, TITLE_SIZE, Piece, Way, layout, sub_text
from kubexm_exec.draw.model import Box, Drawing, summary
from kubexm_exec.draw.status import LOOKS, Look, look, worst
from kubexm_exec.draw.style import svg_style
from kubexm_exec.draw.text import escape, fit, text_width
from kubexm_spec.diagnostics import plural

MARGIN = 24
CORNER = 6.0
SIGN = 22  # room for a sign
ROUND = {"module": 10, "task": 8, "hooks": 8}

_DEFS = (
    '<marker id="kx-arrow" viewBox="0 0 9 9" refX="8" refY="4.5" markerWidth="9" markerHeight="9" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0 .8 8.4 4.5 0 8.2 1.8 4.5Z"/></marker>'
    '<marker id="kx-arrow-hook" viewBox="0 0 9 9" refX="8" refY="4.5" markerWidth="9" markerHeight="9" '
    'markerUnits="userSpaceOnUse" orient="auto"><path class="arrow-hook" d="M0 .8 8.4 4.5 0 8.2 1.8 4.5Z"/></marker>'
)


def draw_svg(drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """A complete SVG document with a heading and a legend."""
    whole = layout(drawing)
    painter = Painter(drawing, statuses)
    heading, top, width = painter.heading(title, whole)
    body = painter.inside(whole)
    w, h = max(whole.w, width) + 2 * MARGIN, whole.h + top + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kx" width="{num(w)}" height="{num(h)}" '
        f'viewBox="0 0 {num(w)} {num(h)}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n<style>{svg_style(painter.shown)}</style>\n<defs>{defs(painter)}</defs>\n"
        f'<rect class="paper" width="100%" height="100%"/>\n{heading}'
        f'<g transform="translate({MARGIN} {num(top)})">\n{body}</g>\n</svg>\n'
    )


def defs(painter: Painter) -> str:
    """Arrow heads and signs."""
    return f"{_DEFS}{painter.symbols()}"


def num(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")


def path(points: Sequence[Point]) -> str:
    """The path through the points, with round corners."""
    (x, y), *rest = points
    parts = [f"M{num(x)} {num(y)}"]
    for index, (cx, cy) in enumerate(rest):
        if index == len(rest) - 1:
            parts.append(f"L{num(cx)} {num(cy)}")
            break
        nx, ny = rest[index + 1]
        before, after = abs(cx - x) + abs(cy - y), abs(nx - cx) + abs(ny - cy)
        radius = min(CORNER, before / 2, after / 2)
        ax, ay = cx - radius * (cx - x) / before, cy - radius * (cy - y) / before
        bx, by = cx + radius * (nx - cx) / after, cy + radius * (ny - cy) / after
        parts.append(f"L{num(ax)} {num(ay)}Q{num(cx)} {num(cy)} {num(bx)} {num(by)}")
        x, y = cx, cy
    return "".join(parts)


def _styles(piece: Piece) -> Iterable[str]:
    yield from (way.style for way in piece.ways)
    for inner in piece.pieces:
        yield from _styles(inner)


class Painter:
    """Writes the elements of one drawing; ``live`` adds what a page needs to open, close and find them."""

    def __init__(self, drawing: Drawing, statuses: Mapping[str, str] | None, *, live: bool = False) -> None:
        self.drawing, self.statuses, self.live = drawing, statuses, live
        self.looks: dict[str, Look] = {}
        if statuses is not None:
            for box in drawing.boxes.values():
                found = worst(look(statuses[node.id]) for node in box.nodes if node.id in statuses)
                self.looks[box.id] = found or LOOKS["pending"]
        self.shown = [key for key in LOOKS if key in {one.key for one in self.looks.values()}]
        self.box_index = {box: index for index, box in enumerate(drawing.boxes)}
        self.group_index = {group: index for index, group in enumerate(drawing.groups)}

    def group_look(self, group: str) -> Look | None:
        """The outcome of a group: the most important one of its boxes."""
        if self.statuses is None:
            return None
        return worst(self.looks[box.id] for box in self.drawing.boxes_in(group))

    def symbols(self) -> str:
        """The signs that are used."""
        return "".join(
            f'<symbol id="kx-{key}" viewBox="-8 -8 16 16"><circle class="kx-{key}" r="7.5"/>'
            f'<path class="kx-sign" d="{LOOKS[key].icon}"/></symbol>'
            for key in self.shown
        )

    def sign(self, one: Look | None, x: float, y: float, css: str = "") -> str:
        """A sign of 16 x 16 with its upper left corner there."""
        if one is None:
            return ""
        extra = f' class="{css}"' if css else ""
        return f'<use href="#kx-{one.key}" x="{num(x)}" y="{num(y)}" width="16" height="16"{extra}/>'

    # The heading

    def counts(self) -> str:
        """``2 modules · 3 tasks · 5 steps · 3 hosts``."""
        boxes = self.drawing.boxes.values()
        kinds = [group.kind for group in self.drawing.groups.values()]
        words = [plural(kinds.count("module"), "module"), plural(kinds.count("task"), "task")]
        words.append(plural(sum(len(box.nodes) for box in boxes), "step"))
        words.append(plural(len({host for box in boxes for host in box.hosts}), "host"))
        return " · ".join(words)

    def heading(self, title: str, whole: Piece) -> tuple[str, float, float]:
        """Title, counts and legend; the height and width they take."""
        words = self.counts()
        name = fit(title, 900, 19, bold=True)
        parts = [
            f'<text class="head-name" x="{MARGIN}" y="38">{escape(name)}</text>\n',
            f'<text class="head-sub" x="{MARGIN}" y="58">{escape(words)}</text>\n',
        ]
        legend, x = self.legend(whole, MARGIN, 78)
        width = max(x - MARGIN, text_width(name, 19, bold=True), text_width(words, 12))
        return "".join([*parts, legend]), 106.0, width

    def legend(self, whole: Piece, x: float, y: float) -> tuple[str, float]:
        """What the lines and signs in the drawing mean, on one line round that height; and where it ends."""
        parts = []
        styles = set(_styles(whole))
        for css, text in (
            ("barrier", "waits for all hosts"),
            ("", "host by host"),
            ("part", "a part waits"),
            ("hook", "hook"),
        ):
            if css in styles:
                parts.append(f'<path class="way {css}" d="M{num(x)} {num(y)}h26"/>')
                parts.append(f'<text class="sub" x="{num(x + 32)}" y="{num(y + 3.5)}">{text}</text>\n')
                x += 32 + text_width(text, SUB_SIZE) + 18
        for key in self.shown:
            text = f"{sum(one.key == key for one in self.looks.values())} {LOOKS[key].label}"
            parts.append(self.sign(LOOKS[key], x, y - 8))
            parts.append(f'<text class="sub" x="{num(x + 21)}" y="{num(y + 3.5)}">{text}</text>\n')
            x += 21 + text_width(text, SUB_SIZE) + 18
        return "".join(parts), x

    # The drawing

    def inside(self, piece: Piece) -> str:
        """The lines and pieces of a frame."""
        parts = ['<g class="ways">']
        parts += [self.way(piece, way) for way in piece.ways]
        parts.append("</g>\n")
        parts += [self.piece(inner) for inner in piece.pieces]
        return "".join(parts)

    def way(self, frame: Piece, way: Way) -> str:
        """One line."""
        css = " ".join(filter(None, ("way", way.style, "joint" if frame.pieces[way.target].kind == "dot" else "")))
        return f'<path class="{css}" d="{path(way.points)}"><title>{escape(way.text)}</title></path>'

    def piece(self, piece: Piece) -> str:
        """A frame, box or dot where it belongs."""
        if piece.kind == "dot":
            r = piece.w / 2
            spot = f'cx="{num(piece.x + r)}" cy="{num(piece.y + r)}" r="{num(r - 1)}"'
            return f'<circle class="dot" {spot}><title>{escape(piece.id)}</title></circle>\n'
        if piece.kind == "box":
            return self.box(self.drawing.boxes[piece.id], piece)
        return self.frame(piece)

    def frame(self, piece: Piece) -> str:
        """A module, task or the hooks of a scope, with all that is in it."""
        group = self.drawing.groups[piece.id]
        one = self.group_look(piece.id)
        words = summary(self.drawing, piece.id)
        kind, inset = piece.kind, INSET[piece.kind]
        base = PORT[kind] + TITLE_SIZE[kind] * 0.36
        left = inset + (14 if self.live else 0)
        room = piece.w - left - inset - (SIGN if one else 0)
        name = fit(group.title, room, TITLE_SIZE[kind], bold=True)
        tip = "\n".join(
            [f"{kind} {piece.id}" if kind != "hooks" else group.title, words, *([one.label] if one else [])]
        )
        css = f"group {kind}" + (f" s-{one.key}" if one else "")
        data = f' data-g="{self.group_index[piece.id]}"' if self.live else ""
        parts = [
            f'<g class="{css}"{data} transform="translate({num(piece.x)} {num(piece.y)})">',
            f"<title>{escape(tip)}</title>",
            f'<rect class="frame" width="{num(piece.w)}" height="{num(piece.h)}" rx="{ROUND[kind]}"/>',
        ]
        if self.live:
            parts.append(f'<path class="chevron" d="M{inset} {PORT[kind] - 2.5}l4 4.5 4-4.5"/>')
        parts.append(f'<text class="title" x="{left}" y="{num(base)}">{escape(name)}</text>')
        after = left + text_width(name, TITLE_SIZE[kind], bold=True) + 10
        free = piece.w - after - inset - (SIGN if one else 0)
        note = words if kind == "module" else group.note
        if note and free >= min(text_width(note, SUB_SIZE), 60):
            parts.append(
                f'<text class="sub note" x="{num(after)}" y="{num(base)}">{escape(fit(note, free, SUB_SIZE))}</text>'
            )
        parts.append(self.sign(one, piece.w - inset - 14, PORT[kind] - 8, "open-sign"))
        if self.live:
            parts.append(self._closed(piece, words, one))
        parts.append(f'\n<g class="inside">{self.inside(piece)}</g></g>\n')
        return "".join(parts)

    def _closed(self, piece: Piece, words: str, one: Look | None) -> str:
        kind, inset, (w, _) = piece.kind, INSET[piece.kind], piece.closed
        room = w - inset - 14 - inset - (SIGN if one else 0)
        name = fit(self.drawing.groups[piece.id].title, room, TITLE_SIZE[kind], bold=True)
        return (
            f'<g class="shut"><text class="title" x="{inset + 14}" y="20">{escape(name)}</text>'
            f'<text class="sub" x="{inset + 14}" y="36">{escape(fit(words, room, SUB_SIZE))}</text>'
            f"{self.sign(one, w - inset - 14, 16)}</g>"
        )

    def box(self, box: Box, piece: Piece) -> str:
        """A step."""
        one = self.looks.get(box.id)
        left = 12
        indent = 14 if box.hook else 0
        room = piece.w - left - 9 - (SIGN if one else 0)
        css = " ".join(filter(None, ("box", "hooked" if box.hook else "", f"s-{one.key}" if one else "")))
        data = f' data-n="{self.box_index[box.id]}"' if self.live else ""
        size = f'width="{num(piece.w)}" height="{num(piece.h)}" rx="6"'
        parts = [
            f'<g class="{css}"{data} transform="translate({num(piece.x)} {num(piece.y)})">',
            f"<title>{escape(self.tip(box))}</title>",
        ]
        if box.folded:  # a pile
            parts.append(f'<rect x="4" y="4" {size}/>')
        parts.append(f'<rect class="face" {size}/>')
        if box.hook:
            parts.append('<path class="mark" d="M12.5 8.5v7.2a3.6 3.6 0 0 0 7.2 0v-1.6l-2.2 1.7"/>')
        name = fit(box.label, room - indent, NAME_SIZE, bold=True)
        parts.append(f'<text class="name" x="{left + indent}" y="18">{escape(name)}</text>')
        parts.append(f'<text class="sub" x="{left}" y="33">{escape(fit(sub_text(box), room, SUB_SIZE))}</text>')
        parts.append(self.sign(one, piece.w - SIGN - 1, 13))
        parts.append("</g>\n")
        return "".join(parts)

    def tip(self, box: Box) -> str:
        """The tooltip of a box: id, type, hosts, place."""
        one = self.looks.get(box.id)
        lines = [box.id if not box.folded else f"{box.id[:-2]} ({len(box.nodes)} items)"]
        if one:
            lines.append(f"{one.symbol} {one.label}")
        lines.append(f"type: {box.type}")
        shown = ", ".join(box.hosts[:8]) + (f" and {len(box.hosts) - 8} more" if len(box.hosts) > 8 else "")
        lines.append(f"{plural(len(box.hosts), 'host')}: {shown}" if box.hosts else "no hosts")
        if box.hook:
            lines.append(f"hook: {box.hook}")
        if box.place:
            lines.append(box.place)
        return "\n".join(lines)
