"""Draws an execution graph as Mermaid, DOT, JSON, SVG or a page to explore; needs no network and no other program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubexm_exec.draw.model import Drawing
from kubexm_exec.model.graph import ExecutionGraph


def draw_json(graph: ExecutionGraph, drawing: Drawing, statuses: Mapping[str, str] | None, title: str) -> str:
    """The JSON form of the graph with one more key, ``drawing``."""
    data: dict[str, Any] = {**graph.to_json(), "drawing": drawing_data(drawing, title)}
    if statuses is not None:
        data["drawing"]["statuses"] = dict(statuses)
    return json.dumps(data, ensure_ascii=False, indent=2, default=str) + "\n"


def drawing_data(drawing: Drawing, title: str) -> dict[str, Any]:
    """Groups, boxes, joints and edges, without what others imply."""
    return {
        "title": title,
        "groups": [
            {"id": g.id, "kind": g.kind, "title": g.title, "parent": g.parent or None, "note": g.note}
            for g in drawing.groups.values()
        ],
        "boxes": [
            {"id": b.id, "label": b.label, "group": b.group, "nodes": [node.id for node in b.nodes]}
            for b in drawing.boxes.values()
        ],
        "joints": [{"id": dot.id, "group": dot.group or None} for dot in drawing.dots.values()],
        "edges": [
            {"from": e.source, "to": e.target, "barrier": e.barrier, "on": e.on.value, "hook": e.hook}
            for e in drawing.links
        ],
    }


__all__ = ["FORMATS", "draw"]

FORMATS = ("mermaid", "dot", "json", "svg", "html")


def draw(
    graph: ExecutionGraph, fmt: str, *, statuses: Mapping[str, str] | None = None, title: str | None = None
) -> str:
    """The graph in one of ``FORMATS``, coloured by the status of each node id if statuses are given.

    A status is that of a result (Success, Failed, Skipped, Cancelled, Running, Pending), or Unchanged, or a forecast
    (satisfied, change, unknown); capitals do not matter. Raises ValueError for a format that does not exist.
    """
    if fmt not in FORMATS:
        raise ValueError(f"there is no format {fmt!r} for drawing a graph; there are {', '.join(FORMATS)}")
    from kubexm_exec.draw.model import model

    name = title or graph.name or "graph"
    drawing = model(graph)
    if fmt == "mermaid":
        from kubexm_exec.draw.diagrams import draw_mermaid

        return draw_mermaid(drawing, statuses, name)
    if fmt == "dot":
        from kubexm_exec.draw.diagrams import draw_dot

        return draw_dot(drawing, statuses, name)
    if fmt == "json":
        return draw_json(graph, drawing, statuses, name)
    if fmt == "svg":
        from kubexm_exec.draw.svg import draw_svg

        return draw_svg(drawing, statuses, name)
    from kubexm_exec.draw.html import draw_html

    return draw_html(drawing, statuses, name)
