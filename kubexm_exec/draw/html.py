"""Makes a page to explore a graph in: the drawing, an outline beside it, search, and the details of each step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kubexm_exec.draw.layout import DOT, HEADER, INSET, PORT, SHAPE, TALL, WIDTHS, Piece, layout
from kubexm_exec.draw.model import Box, Drawing, summary
from kubexm_exec.draw.page import Page, asset
from kubexm_exec.draw.status import LOOKS, Look
from kubexm_exec.draw.style import page_style, svg_style
from kubexm_exec.draw.svg import Painter, defs, num
from kubexm_exec.draw.text import clean, escape
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import SENSITIVE

MANY_STEPS, MANY_TASKS = 120, 400
"""With more than so many boxes or tasks the page starts with tasks, or modules, closed."""
SOME_STEPS = 30
"""The same for a drawing that is only a part of its page."""
MANY_TROUBLED = 12
HOSTS_SHOWN = 60
TEXT_SHOWN = 3000


def draw_html(drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """The whole page."""
    page = Page(title)
    page.style(page_style() + asset(__package__, "page.css"))
    body = add_graph(page, drawing, statuses, wheel="free")
    page.body = f'<header class="top"><h1>{escape(title)}</h1><p>{escape(counts(drawing))}</p></header>\n{body}'
    return page.render()


def counts(drawing: Drawing) -> str:
    """What a drawing holds, in a few words."""
    return Painter(drawing, None).counts()


def add_graph(page: Page, drawing: Drawing, statuses: Mapping[str, str] | None, *, wheel: str) -> str:
    """Give a page what an explorable drawing needs; returns the HTML to put into its body.

    ``wheel`` is ``free`` where turning the wheel zooms, ``ctrl`` where it does so with the control key only.
    """
    whole = layout(drawing)
    painter = Painter(drawing, statuses, live=True)
    many = MANY_STEPS if wheel == "free" else SOME_STEPS
    page.style(svg_style(painter.shown) + asset(__package__, "graph.css") + _outcome_style(painter.shown))
    page.data("kx-graph-data", _Data(drawing, painter, many).of(whole))
    page.script(asset(__package__, "flow.js"))
    page.script(asset(__package__, "graph.js"))
    w, h = num(whole.w), num(whole.h)
    signs, width = painter.legend(whole, 0, 11)
    legend = f'<svg class="kx legend" width="{num(width)}" height="22" aria-label="Legend">{signs}</svg>'
    return (
        f'<section class="kx-graph" data-wheel="{wheel}" aria-label="Graph">\n{_BAR}<div class="panes">\n'
        f'<nav class="outline" aria-label="Outline">\n{"".join(_outline(drawing, painter, drawing.top))}</nav>\n'
        f'<div class="canvas"><svg xmlns="http://www.w3.org/2000/svg" class="kx" width="{w}" height="{h}" '
        f'viewBox="0 0 {w} {h}"><defs>{defs(painter)}</defs><g class="view">\n{painter.inside(whole)}</g></svg>'
        f'<div class="legend-bar">{legend}</div></div>\n'
        '<aside class="details" aria-label="Details" aria-live="polite" hidden></aside>\n</div>\n</section>'
    )


_BAR = """<div class="bar">
<button type="button" data-side aria-pressed="true" title="Show or hide the outline">☰ Outline</button>
<input type="search" placeholder="Find a step, type or host" aria-label="Find a step, type or host" title="Enter: next">
<output class="found"></output>
<span class="grow"></span>
<span class="set" role="group" aria-label="Show">
<button type="button" data-level="modules">Modules</button>
<button type="button" data-level="tasks">Tasks</button>
<button type="button" data-level="steps">Steps</button>
</span>
<span class="set" role="group" aria-label="Zoom">
<button type="button" data-zoom="out" title="Smaller">−</button>
<button type="button" data-zoom="fit" title="Show all of it">Fit</button>
<button type="button" data-zoom="in" title="Bigger">+</button>
</span>
</div>
"""


def _outcome_style(keys: Iterable[str]) -> str:
    return "".join(f".kx-graph .outcome.s-{key},.kx-graph .outline i.s-{key}{{color:var(--s-{key})}}\n" for key in keys)


def _sign(one: Look | None) -> str:
    return f'<i class="s-{one.key}" title="{one.label}">{one.symbol}</i> ' if one else ""


def _outline(drawing: Drawing, painter: Painter, groups: Iterable[str]) -> Iterable[str]:
    for ident in groups:
        group = drawing.groups[ident]
        words = summary(drawing, ident) if group.groups else group.note
        yield f'<details data-og="{painter.group_index[ident]}" open><summary>{_sign(painter.group_look(ident))}'
        yield f"{escape(group.title)} <small>{escape(words)}</small></summary>\n"
        yield from _outline(drawing, painter, group.groups)
        for box in group.boxes:
            look = painter.looks.get(box)
            yield f'<button type="button" data-on="{painter.box_index[box]}" title="{escape(box)}">{_sign(look)}'
            yield f"{escape(drawing.boxes[box].label)}</button>\n"
        yield "</details>\n"


def _failed(one: Look | None) -> bool:
    return one is not None and one.key == "failed"


class _Data:
    """What the page's script works on."""

    def __init__(self, drawing: Drawing, painter: Painter, many: int) -> None:
        self.drawing, self.painter, self.many = drawing, painter, many
        self.levels: list[dict[str, Any]] = []
        self.groups: dict[str, dict[str, Any]] = {}
        self.at: dict[str, list[float]] = {}
        self.host_sets: dict[tuple[str, ...], int] = {}

    def of(self, whole: Piece) -> dict[str, Any]:
        drawing = self.drawing
        self._walk(whole)
        boxes = [self._box(box) for box in drawing.boxes.values()]
        ends = {box: index for index, box in enumerate(drawing.boxes)}
        ends.update({dot: -1 - index for index, dot in enumerate(drawing.dots)})
        tasks = sum(not group.groups for group in drawing.groups.values())
        return {
            "groups": [self.groups[group] for group in drawing.groups],
            "boxes": boxes,
            "levels": self.levels,
            "links": [[ends[link.source], ends[link.target]] for link in drawing.links],
            "hostSets": [{"count": len(hosts), "names": hosts[:HOSTS_SHOWN]} for hosts in self.host_sets],
            "statuses": {key: [key, LOOKS[key].symbol, LOOKS[key].label] for key in self.painter.shown},
            "dot": DOT,
            "shapes": {"widths": WIDTHS, "shape": SHAPE, "tall": TALL},
            "start": "modules" if tasks > MANY_TASKS else "tasks" if len(boxes) > self.many else "steps",
            "troubled": self._troubled(),
        }

    def _troubled(self) -> list[int]:
        """The groups that are open from the start because something in them failed; none if that would be too many."""
        found = {box.group for box in self.drawing.boxes.values() if _failed(self.painter.looks.get(box.id))}
        around = {group for inner in found for group in self.drawing.path(inner)[1:]}
        return sorted(self.painter.group_index[group] for group in around) if len(found) <= MANY_TROUBLED else []

    def _walk(self, piece: Piece) -> None:
        group = self.drawing.groups.get(piece.id)
        if group:
            self.groups[group.id] = {
                "parent": self.painter.group_index.get(group.parent, -1),
                "size": [piece.w, piece.h],
                "closed": piece.closed,
                "least": piece.least,
                "inset": INSET[piece.kind],
                "header": HEADER[piece.kind],
            }
        for inner in piece.pieces:
            if inner.kind == "box":
                self.at[inner.id] = [inner.x, inner.y, inner.w, inner.h]
            elif inner.kind != "dot":
                self._walk(inner)
        if group and not group.groups:
            return  # steps never move inside their task
        room = piece.room
        self.levels.append(
            {
                "group": self.painter.group_index.get(piece.id, -1) if group else -1,
                "items": [-1 if p.kind == "dot" else self.painter.group_index[p.id] for p in piece.pieces],
                "ranks": piece.ranks,
                "keys": piece.keys,
                "edges": [{"s": way.source, "t": way.target, "style": way.style} for way in piece.ways],
                "port": PORT["task" if group else "module"],
                "room": {name: getattr(room, name) for name in ("max_u", "max_v", "gap", "gutter", "row_gap")},
            }
        )

    def _box(self, box: Box) -> dict[str, Any]:
        node = box.nodes[0]
        look = self.painter.looks.get(box.id)
        data = {
            "id": clean(box.id),
            "type": box.type,
            "group": self.painter.group_index[box.group],
            "hosts": self.host_sets.setdefault(box.hosts, len(self.host_sets)),
            "at": self.at[box.id],
            "hook": str(box.hook),
            "place": box.place,
            "items": ", ".join(_items(box)) if box.folded else "",
            "when": "" if node.when is None else str(node.when),
            "retry": retry_text(node),
            "timeout": seconds_text(node.policy.timeout),
            "limits": limits_text(node),
            "tags": ", ".join(node.tags),
            "notes": "; ".join(_notes(node)),
            "with": with_text(node),
            "status": look.key if look else "",
        }
        return {key: value for key, value in data.items() if value != ""}


def _items(box: Box) -> Iterable[str]:
    for node in box.nodes[:30]:
        yield node.id.partition("[")[2].removesuffix("]")
    if len(box.nodes) > 30:
        yield f"and {len(box.nodes) - 30} more"


def _notes(node: ExecutionNode) -> Iterable[str]:
    if node.skip:
        yield f"skipped: {node.skip}"
    if node.failed_when:
        yield f"failed when {' and '.join(map(str, node.failed_when))}"
    if node.policy.ignore_errors:
        yield "errors are ignored"
    if node.policy.max_failures != "0":
        yield f"may fail on {node.policy.max_failures} of its hosts"
    if node.become is not None:
        yield f"as {become_text(node.become)}"
    if node.sensitive:
        yield "sensitive"
    if node.reversible:
        yield "can be undone"


def become_text(become: bool | str) -> str:
    """The user that a step works as."""
    return "root" if become is True else become or "the user who logs in"


def seconds_text(seconds: float | None) -> str:
    """A length of time as it is set."""
    return "" if seconds is None else f"{seconds:g} s"


def retry_text(node: ExecutionNode) -> str:
    """How often a step is tried, in words."""
    retry = node.policy.retry
    if retry.attempts < 2:
        return ""
    most = f", at most {retry.max_delay:g} s" if retry.max_delay is not None else ""
    until = f", until {retry.until}" if retry.until is not None else ""
    return (
        f"{retry.attempts} attempts, {retry.delay:g} s apart ({retry.backoff}{most}); on {', '.join(retry.on)}{until}"
    )


def limits_text(node: ExecutionNode) -> str:
    """The limits of a step, in words."""
    limits = node.constraints
    words = []
    if limits.global_limit is not None:
        words.append(f"{limits.global_limit} at once")
    if limits.per_host_limit is not None:
        words.append(f"{limits.per_host_limit} at once on a host")
    words += [f"lock {lock}" for lock in limits.locks]
    return ", ".join(words)


def with_text(node: ExecutionNode) -> str:
    """The parameters of a step as written; those of a sensitive one by name only."""
    if not node.with_:
        return ""
    if node.sensitive:
        return "\n".join(f"{name}: {SENSITIVE}" for name in node.with_)
    text = "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)}"
        for name, value in node.with_.items()
    )
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}\n… {len(text) - TEXT_SHOWN} more characters"
