"""Writes a drawing in Graphviz' DOT language."""

from __future__ import annotations

from collections.abc import Mapping

from kubexm_exec.draw.layout import sub_text
from kubexm_exec.draw.model import Box, Drawing, Link, summary
from kubexm_exec.draw.status import look, worst
from kubexm_exec.draw.text import clean, one_line
from kubexm_exec.model.graph import On

_HEAD = """  rankdir=TB; newrank=true; compound=true; fontname="Helvetica"; labelloc=t; fontsize=18;
  node [shape=box, style="rounded,filled", fillcolor="#f8fafc", color="#c3ccd9", fontname="Helvetica", fontsize=11];
  edge [color="#66738a", arrowsize=0.7, fontname="Helvetica", fontsize=9];
"""


def draw_dot(drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """A digraph with a cluster for each module and task."""
    numbers = {group: index for index, group in enumerate(drawing.groups)}
    lines = [f"digraph {quote(title)} {{", f"  label={quote(title)};", _HEAD.rstrip()]

    def write_box(box: Box, indent: str) -> None:
        found = worst(look(statuses[n.id]) for n in box.nodes if n.id in statuses) if statuses is not None else None
        sign = f"{found.symbol} " if found else ""
        mark = "↪ " if box.hook else ""
        attributes = {
            "label": f"{mark}{sign}{one_line(box.label)}\n{one_line(sub_text(box))}",
            "tooltip": "\n".join(filter(None, (box.id, ", ".join(box.hosts), box.place))),
        }
        if box.folded:
            attributes["peripheries"] = "2"
        if box.hook:
            attributes |= {"style": "rounded,filled,dashed", "color": "#7c4dbd"}
        if found:
            attributes |= {"color": found.light, "penwidth": "2"}
        lines.append(f"{indent}{quote(box.id)} [{_attributes(attributes)}];")

    def write_dots(group: str, indent: str) -> None:
        lines.extend(
            f'{indent}{quote(dot.id)} [shape=point, width=0.1, color="#66738a", fillcolor="#66738a"];'
            for dot in drawing.dots.values()
            if dot.group == group
        )

    def write_group(ident: str, indent: str) -> None:
        group = drawing.groups[ident]
        note = f"\n{summary(drawing, ident)}" if group.kind == "module" else f" · {group.note}" if group.note else ""
        fill = {"module": "#f3f5f9"}.get(group.kind, "#ffffff")
        style = "rounded,filled,dashed" if group.kind == "hooks" else "rounded,filled"
        lines.append(f"{indent}subgraph cluster_{numbers[ident]} {{")
        look_of = {"label": one_line(group.title) + note, "style": style, "color": "#d3dae5", "fillcolor": fill}
        lines.append(f"{indent}  {'; '.join(f'{key}={quote(value)}' for key, value in look_of.items())}; labeljust=l;")
        for inner in group.groups:
            write_group(inner, indent + "  ")
        for box in group.boxes:
            write_box(drawing.boxes[box], indent + "  ")
        write_dots(ident, indent + "  ")
        lines.append(f"{indent}}}")

    for group in drawing.top:
        write_group(group, "  ")
    write_dots("", "  ")
    lines.extend(_edge(link, joint=link.target in drawing.dots) for link in drawing.links)
    lines.append("}")
    return "\n".join(lines) + "\n"


def _edge(link: Link, *, joint: bool) -> str:
    attributes: dict[str, str] = {}
    if link.hook:
        attributes |= {"style": "dashed", "color": "#7c4dbd"}
    elif link.barrier:
        attributes["penwidth"] = "1.6"
    if joint:
        attributes["arrowhead"] = "none"
    words = {On.SUCCESS: "", On.FAILURE: "on failure", On.DONE: "in any case"}[link.on]
    if words:
        attributes["label"] = words
    tail = f" [{_attributes(attributes)}]" if attributes else ""
    return f"  {quote(link.source)} -> {quote(link.target)}{tail};"


def _attributes(attributes: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={quote(value)}" for key, value in attributes.items())


def quote(text: str) -> str:
    """A string of the DOT language; a line break becomes its escape."""
    return '"' + clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "\\n") + '"'
