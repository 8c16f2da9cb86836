from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.draw import draw
from kubexm_exec.draw.cells import Cell, Edge, Placed, Room
from kubexm_exec.draw.flow import place
from kubexm_exec.draw.layout import Piece, layout, ranked
from kubexm_exec.draw.model import model
from kubexm_exec.model.graph import ExecutionGraph
from tests.draw import graphs
from tests.draw.shapes import pipelines

ROOT = Path(__file__).resolve().parents[2]
SIZES = st.integers(10, 400).map(float)


def frames(piece: Piece) -> Iterator[Piece]:
    yield piece
    for inner in piece.pieces:
        yield from frames(inner)


def overlap(a: Piece, b: Piece) -> bool:
    return a.x < b.x + b.w and b.x < a.x + a.w and a.y < b.y + b.h and b.y < a.y + a.h


def cuts(start: tuple[float, float], end: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    """Whether a straight line goes through the inside of a box (x, y, w, h)."""
    x, y, w, h = box
    low_x, high_x = sorted((start[0], end[0]))
    low_y, high_y = sorted((start[1], end[1]))
    return low_x < x + w - 0.5 and high_x > x + 0.5 and low_y < y + h - 0.5 and high_y > y + 0.5


def on_border(point: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    x, y, w, h = box
    inside = x <= point[0] <= x + w and y <= point[1] <= y + h
    return inside and (point[0] in (x, x + w) or point[1] in (y, y + h))


def check(piece: Piece) -> None:
    for inner in piece.pieces:
        assert inner.x >= 0
        assert inner.y >= 0
        assert inner.x + inner.w <= piece.w
        assert inner.y + inner.h <= piece.h
    for a, b in combinations(piece.pieces, 2):
        assert not overlap(a, b), f"{a.id} and {b.id} in {piece.id} overlap"
    boxes = [(inner.x, inner.y, inner.w, inner.h) for inner in piece.pieces]
    for way in piece.ways:
        for start, end in pairwise(way.points):
            assert start[0] == end[0] or start[1] == end[1], "a line is not straight"
            assert all(0 <= x <= piece.w and 0 <= y <= piece.h for x, y in (start, end)), "a line leaves its frame"
            assert not any(cuts(start, end, box) for box in boxes), f"'{way.text}' goes through something"
        assert on_border(way.points[0], boxes[way.source])
        assert on_border(way.points[-1], boxes[way.target])


def check_forward(piece: Piece) -> None:
    """Inside tasks what waits is below, or in the next column."""
    for way in piece.ways:
        source, target = piece.pieces[way.source], piece.pieces[way.target]
        assert target.y >= source.y + source.h or target.x >= source.x + source.w


@given(pipelines())
def test_boxes_never_overlap_are_inside_their_frames_lines_go_forward_and_round_them(graph: ExecutionGraph) -> None:
    whole = layout(model(graph))
    for piece in frames(whole):
        check(piece)
        if piece.kind in ("task", "hooks"):
            check_forward(piece)
    assert layout(model(graph)) == whole, "the same graph gives the same picture"
    for fmt in ("svg", "html", "mermaid", "dot", "json"):
        assert draw(graph, fmt)


@pytest.mark.parametrize(
    "graph", [graphs.cluster(), graphs.fan(), graphs.tangle(), graphs.loops(), graphs.wide(4, 4, 9)]
)
def test_the_same_holds_for_bigger_graphs(graph: ExecutionGraph) -> None:
    for piece in frames(layout(model(graph))):
        check(piece)


def test_modules_go_right_and_then_down() -> None:
    whole = layout(model(graphs.wide(6, 2, 3)))
    for way in whole.ways:
        source, target = whole.pieces[way.source], whole.pieces[way.target]
        assert target.x >= source.x + source.w or target.y >= source.y + source.h


def test_modules_that_wait_for_each_other_in_part_are_laid_out_all_the_same() -> None:
    whole = layout(model(graphs.loops()))
    assert {(way.source, way.target) for way in whole.ways} == {(0, 1), (1, 0)}
    assert {way.style for way in whole.ways} == {"part"}


def test_a_wait_of_the_whole_is_not_called_partial_because_a_part_waits_by_way_of_another() -> None:
    one = [graphs.T("t", graphs.steps("s:file"))]
    late = [
        graphs.T("x", graphs.steps("s:file"), needs=("b/t",)),
        graphs.T("y", graphs.steps("s:file"), needs=()),
    ]
    graph = graphs.build("g", [graphs.M("a", one), graphs.M("b", one), graphs.M("c", late, needs=("a",))])
    styles = {(way.source, way.target): way.style for way in layout(model(graph)).ways}
    assert styles == {(0, 1): "barrier", (0, 2): "barrier", (1, 2): "part"}


def test_titles_of_a_row_of_tasks_are_in_one_line() -> None:
    module = layout(model(graphs.small())).pieces[0]
    (way,) = module.ways
    assert len(way.points) == 2


def test_a_long_chain_of_steps_is_wrapped_into_columns_of_equal_length() -> None:
    chain = tuple(graphs.S(f"s{i}", "file") for i in range(26))
    task = layout(model(graphs.build("x", [graphs.M("m", [graphs.T("t", chain)])]))).pieces[0].pieces[0]
    columns: dict[float, int] = {}
    for piece in task.pieces:
        columns[piece.x] = columns.get(piece.x, 0) + 1
    assert sorted(columns.values()) == [13, 13]


def test_many_tasks_side_by_side_become_a_grid() -> None:
    side = [graphs.T(f"t{i}", graphs.steps("s:file"), needs=()) for i in range(40)]
    module = layout(model(graphs.build("x", [graphs.M("m", side)]))).pieces[0]
    assert 0.4 < module.w / module.h < 3


@given(
    st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=14),
    st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13), st.sampled_from(["", "barrier", "hook"])), max_size=30),
    st.booleans(),
)
def test_any_cells_and_edges_cycles_too_are_placed_apart_with_lines_between(
    sizes: list[tuple[float, float]], pairs: list[tuple[int, int, str]], centred: bool
) -> None:
    ends = {(a, b): style for a, b, style in pairs if a != b and a < len(sizes) and b < len(sizes)}
    ranks, keys = ranked(len(sizes), list(ends))
    cells = [
        Cell(u, v, v / 2 if centred else min(16.0, v / 2), rank, key)
        for (u, v), rank, key in zip(sizes, ranks, keys, strict=True)
    ]
    edges = [Edge(a, b, style) for (a, b), style in ends.items()]
    placed = place(cells, edges, Room(900, 700, 14, 26, 30, centred))
    _check_placed(cells, edges, placed)


def _check_placed(cells: list[Cell], edges: list[Edge], placed: Placed) -> None:
    boxes = [(u, v, cell.u, cell.v) for (u, v), cell in zip(placed.at, cells, strict=True)]
    for a, b in combinations(boxes, 2):
        assert a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
    for x, y, w, h in boxes:
        assert 0 <= x <= x + w <= placed.u
        assert 0 <= y <= y + h <= placed.v
    for edge, points in zip(edges, placed.ways, strict=True):
        assert on_border(points[0], boxes[edge.source])
        assert on_border(points[-1], boxes[edge.target])
        for start, end in pairwise(points):
            assert start[0] == end[0] or start[1] == end[1]
            assert not any(cuts(start, end, box) for box in boxes)


def test_the_picture_does_not_depend_on_the_order_of_sets() -> None:
    code = (
        "import hashlib; from tests.draw import graphs; from kubexm_exec.draw import draw;"
        "texts = [draw(g, f) for g in (graphs.cluster(), graphs.fan(8)) for f in ('svg', 'html', 'dot', 'mermaid')];"
        "import sys; sys.stdout.write(hashlib.sha256(''.join(texts).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_five_thousand_steps_are_laid_out() -> None:
    whole = layout(model(graphs.wide(20, 10, 25)))
    assert sum(piece.kind == "box" for piece in frames(whole)) == 5000


def test_a_tangle_of_a_thousand_steps_in_one_task_is_laid_out_in_the_shape_of_a_screen() -> None:
    whole = layout(model(graphs.tangle(1000)))
    assert 0.2 < whole.w / whole.h < 8
