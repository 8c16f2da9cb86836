"""Draws an execution graph as Mermaid, DOT, JSON, SVG or a page to explore; needs no network and no other program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubexm_exec.model.graph import ExecutionGraph

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
        from kubexm_exec.draw.mermaid import draw_mermaid

        return draw_mermaid(drawing, statuses, name)
    if fmt == "dot":
        from kubexm_exec.draw.dot import draw_dot

        return draw_dot(drawing, statuses, name)
    if fmt == "json":
        from kubexm_exec.draw.data import draw_json

        return draw_json(graph, drawing, statuses, name)
    if fmt == "svg":
        from kubexm_exec.draw.svg import draw_svg

        return draw_svg(drawing, statuses, name)
    from kubexm_exec.draw.html import draw_html

    return draw_html(drawing, statuses, name)
