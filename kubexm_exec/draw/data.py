"""Writes a graph as JSON: the whole of it, as a plan has it, and beside that what a drawing shows of it."""

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
