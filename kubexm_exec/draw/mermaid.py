"""Writes a drawing as Mermaid text, for Markdown pages that render it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kubexm_exec.draw.layout import sub_text
from kubexm_exec.draw.model import Box, Drawing, Link, summary
from kubexm_exec.draw.status import LOOKS, look, worst
from kubexm_exec.draw.text import one_line
from kubexm_exec.model.graph import On

# What means something to Mermaid or HTML inside a quoted label.
_SPECIAL = re.compile(r'[#&<>"`;\\]')


def draw_mermaid(drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """A flowchart with a subgraph for each module and task."""
    names = {box: f"n{index}" for index, box in enumerate(drawing.boxes)}
    names.update({dot: f"d{index}" for index, dot in enumerate(drawing.dots)})
    numbers = {group: index for index, group in enumerate(drawing.groups)}
    used: set[str] = set()
    lines = ["---", f"title: {_yaml(title)}", "---", "flowchart TD"]

    def write_box(box: Box, indent: str) -> None:
        found = worst(look(statuses[n.id]) for n in box.nodes if n.id in statuses) if statuses is not None else None
        sign = f"{found.symbol} " if found else ""
        mark = "↪ " if box.hook else ""
        text = f"{mark}{_label(sign + box.label)}<br/>{_label(sub_text(box))}"
        shape = f'[["{text}"]]' if box.folded else f'(["{text}"])' if box.hook else f'["{text}"]'
        css = found.key if found else "hook" if box.hook else ""
        used.add(css)
        lines.append(f"{indent}{names[box.id]}{shape}{f':::{css}' if css else ''}")

    def write_dots(group: str, indent: str) -> None:
        lines.extend(f"{indent}{names[dot.id]}(( )):::join" for dot in drawing.dots.values() if dot.group == group)

    def write_group(ident: str, indent: str) -> None:
        group = drawing.groups[ident]
        note = f" · {summary(drawing, ident)}" if group.kind == "module" else f" · {group.note}" if group.note else ""
        lines.append(f'{indent}subgraph g{numbers[ident]}["{_label(group.title + note)}"]')
        for inner in group.groups:
            write_group(inner, indent + "  ")
        for box in group.boxes:
            write_box(drawing.boxes[box], indent + "  ")
        write_dots(ident, indent + "  ")
        lines.append(f"{indent}end")

    for group in drawing.top:
        write_group(group, "  ")
    write_dots("", "  ")
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
    words = {On.SUCCESS: "", On.FAILURE: "|on failure|", On.DONE: "|in any case|"}[link.on]
    return f"{'-.->' if link.hook else '==>' if link.barrier else '-->'}{words}"
