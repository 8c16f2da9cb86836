"""Writes a drawing as text for other programs: Mermaid, and Graphviz' DOT language."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from kubexm_exec.draw.layout import sub_text
from kubexm_exec.draw.model import Box, Drawing, Group, Link, summary
from kubexm_exec.draw.status import LOOKS, Look, look, worst
from kubexm_exec.draw.text import clean, one_line
from kubexm_exec.model.graph import On

# What means something to Mermaid or HTML inside a quoted label.
_SPECIAL = re.compile(r'[#&<>"`;\\]')


def _nested(
    drawing: Drawing,
    begin: Callable[[Group], Sequence[str]],
    box: Callable[[Box, Look | None], str],
    joint: Callable[[str], str],
    end: str,
    statuses: Mapping[str, str] | None,
) -> list[str]:
    """The lines of all groups, with their boxes and joints inside."""
    lines: list[str] = []
    known = statuses or {}

    def write_dots(group: str, indent: str) -> None:
        lines.extend(indent + joint(dot.id) for dot in drawing.dots.values() if dot.group == group)

    def write_group(ident: str, indent: str) -> None:
        group = drawing.groups[ident]
        lines.extend(indent + line for line in begin(group))
        for inner in group.groups:
            write_group(inner, indent + "  ")
        for one in map(drawing.boxes.__getitem__, group.boxes):
            found = worst(look(known[node.id]) for node in one.nodes if node.id in known)
            lines.append(f"{indent}  {box(one, found)}")
        write_dots(ident, indent + "  ")
        lines.append(indent + end)

    for group in drawing.top:
        write_group(group, "  ")
    write_dots("", "  ")
    return lines


def _marked(box: Box, found: Look | None) -> tuple[str, str]:
    """The signs before the label of a box: that it is a hook, and how it ended."""
    return "↪ " if box.hook else "", f"{found.symbol} " if found else ""


def draw_mermaid(drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """A flowchart with a subgraph for each module and task."""
    names = {box: f"n{index}" for index, box in enumerate(drawing.boxes)}
    names.update({dot: f"d{index}" for index, dot in enumerate(drawing.dots)})
    numbers = {group: index for index, group in enumerate(drawing.groups)}
    used: set[str] = set()

    def write_box(box: Box, found: Look | None) -> str:
        mark, sign = _marked(box, found)
        text = f"{mark}{_label(sign + box.label)}<br/>{_label(sub_text(box))}"
        shape = f'[["{text}"]]' if box.folded else f'(["{text}"])' if box.hook else f'["{text}"]'
        css = found.key if found else "hook" if box.hook else ""
        used.add(css)
        return f"{names[box.id]}{shape}{f':::{css}' if css else ''}"

    def begin(group: Group) -> list[str]:
        note = (
            f" · {summary(drawing, group.id)}" if group.kind == "module" else f" · {group.note}" if group.note else ""
        )
        return [f'subgraph g{numbers[group.id]}["{_label(group.title + note)}"]']

    lines = ["---", f"title: {_yaml(title)}", "---", "flowchart TD"]
    lines += _nested(drawing, begin, write_box, lambda dot: f"{names[dot]}(( )):::join", "end", statuses)
    lines.extend(f"  {names[link.source]} {_arrow(link)} {names[link.target]}" for link in drawing.links)
    lines.append("  classDef join fill:#8391a7,stroke:none")
    if "hook" in used:
        lines.append("  classDef hook stroke:#7c4dbd,stroke-dasharray:4 3")
    lines.extend(f"  classDef {key} stroke:{one.light},stroke-width:2px" for key, one in LOOKS.items() if key in used)
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", one_line(text))


def _yaml(text: str) -> str:
    quoted = one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _arrow(link: Link) -> str:
    words = {On.SUCCESS: "", On.FAILURE: "|on failure|", On.DONE: "|in any case|", On.BEGUN: "|once begun|"}[link.on]
    return f"{'-.->' if link.hook else '==>' if link.barrier else '-->'}{words}"


_HEAD = """  rankdir=TB; newrank=true; compound=true; fontname="Helvetica"; labelloc=t; fontsize=18;
  node [shape=box, style="rounded,filled", fillcolor="#f8fafc", color="#c3ccd9", fontname="Helvetica", fontsize=11];
  edge [color="#66738a", arrowsize=0.7, fontname="Helvetica", fontsize=9];
"""


def draw_dot(drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """A digraph with a cluster for each module and task."""
    numbers = {group: index for index, group in enumerate(drawing.groups)}

    def write_box(box: Box, found: Look | None) -> str:
        mark, sign = _marked(box, found)
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
        return f"{quote(box.id)} [{_attributes(attributes)}];"

    def write_dot(dot: str) -> str:
        return f'{quote(dot)} [shape=point, width=0.1, color="#66738a", fillcolor="#66738a"];'

    def begin(group: Group) -> list[str]:
        note = f"\n{summary(drawing, group.id)}" if group.kind == "module" else f" · {group.note}" if group.note else ""
        fill = {"module": "#f3f5f9"}.get(group.kind, "#ffffff")
        style = "rounded,filled,dashed" if group.kind == "hooks" else "rounded,filled"
        look_of = {"label": one_line(group.title) + note, "style": style, "color": "#d3dae5", "fillcolor": fill}
        said = "; ".join(f"{key}={quote(value)}" for key, value in look_of.items())
        return [f"subgraph cluster_{numbers[group.id]} {{", f"  {said}; labeljust=l;"]

    lines = [f"digraph {quote(title)} {{", f"  label={quote(title)};", _HEAD.rstrip()]
    lines += _nested(drawing, begin, write_box, write_dot, "}", statuses)
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
    words = {On.SUCCESS: "", On.FAILURE: "on failure", On.DONE: "in any case", On.BEGUN: "once begun"}[link.on]
    if words:
        attributes["label"] = words
    tail = f" [{_attributes(attributes)}]" if attributes else ""
    return f"  {quote(link.source)} -> {quote(link.target)}{tail};"


def _attributes(attributes: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={quote(value)}" for key, value in attributes.items())


def quote(text: str) -> str:
    """A string of the DOT language; a line break becomes its escape."""
    return '"' + clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "\\n") + '"'
