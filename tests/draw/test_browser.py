"""The page of a graph in a real browser: it is opened, clicked and searched, and must work without a complaint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.draw import draw
from kubexm_exec.draw.layout import layout
from kubexm_exec.draw.model import model
from kubexm_exec.model.graph import ExecutionGraph
from tests.draw.browser import Browser, Page
from tests.draw.graphs import cluster, fan, loops, small, wide
from tests.draw.test_formats import nasty, parse

pytestmark = pytest.mark.xdist_group("browser")

# Frames that are shown, with where they are in the drawing and how big: [index, x, y, w, h, parent].
SHOWN = """(() => {
  const {groups, open, spotOf, shownAs} = kubexmGraph;
  return groups.flatMap((group, i) => {
    const {parent} = group;
    if (parent >= 0 && (shownAs(parent) !== parent || !open[parent])) return [];
    const frame = document.querySelector(`[data-g="${i}"] > .frame`);
    return [[i, ...spotOf(i), +frame.getAttribute("width"), +frame.getAttribute("height"), parent]];
  });
})()"""


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Any:
    """Opens the page of a graph."""

    def open_page(graph: ExecutionGraph, **look: Any) -> Page:
        path = tmp_path / "graph.html"
        path.write_text(draw(graph, "html", statuses=look.pop("statuses", None)), "utf-8")
        return browser.open(path, **look)

    return open_page


def in_order(page: Page) -> None:
    """No frames overlap, and all are inside those they belong to."""
    shown = {int(i): (x, y, w, h, parent) for i, x, y, w, h, parent in page.eval(SHOWN)}
    for i, (x, y, w, h, parent) in shown.items():
        if parent >= 0:
            px, py, pw, ph, _ = shown[parent]
            assert px <= x
            assert py <= y
            assert x + w <= px + pw + 0.2
            assert y + h <= py + ph + 0.2
        for j, (x2, y2, w2, h2, parent2) in shown.items():
            if i < j and parent == parent2:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y, f"{i} and {j} overlap"


def test_the_page_opens_without_a_complaint_and_asks_for_nothing(opened: Any) -> None:
    page = opened(cluster())
    assert page.problems == []
    assert [address for address in page.requests if not address.startswith("file:")] == []
    assert page.eval("document.querySelectorAll('.box[role=button]').length") == len(model(cluster()).boxes)


@pytest.mark.parametrize("graph", [small(), cluster(), fan(6), loops(), wide(5, 3, 4)], ids=lambda graph: graph.name)
def test_the_browser_lays_out_open_frames_exactly_as_python_does(opened: Any, graph: ExecutionGraph) -> None:
    page = opened(graph)
    page.eval("kubexmGraph.setLevel('steps')")
    whole = layout(model(graph))
    lines = page.eval("[...document.querySelectorAll('.view > .ways > path')].map(path => path.getAttribute('d'))")
    expected = parse(draw(graph, "svg")).findall("{*}g/{*}g[@class='ways']/{*}path")
    assert lines == [path.get("d") for path in expected]
    spots = {i: (x, y, w, h) for i, x, y, w, h, _ in page.eval(SHOWN)}
    groups = list(model(graph).groups)
    for piece in whole.pieces:
        if piece.kind == "dot":
            continue
        assert spots[groups.index(piece.id)] == pytest.approx((piece.x, piece.y, piece.w, piece.h), abs=0.06)
        for inner in piece.pieces:
            if inner.kind in ("task", "hooks"):
                found = spots[groups.index(inner.id)]
                assert found == pytest.approx((piece.x + inner.x, piece.y + inner.y, inner.w, inner.h), abs=0.06)
    in_order(page)


def test_frames_close_and_open_by_click_and_everything_stays_in_order(opened: Any) -> None:
    page = opened(cluster())
    for level in ("modules", "tasks", "steps", "tasks"):
        page.click(f"[data-level={level}]")
        in_order(page)
    groups = list(model(cluster()).groups)
    index = groups.index("etcd/install")
    page.click(f'[data-g="{index}"]')
    assert page.eval(f"kubexmGraph.open[{index}]") is True
    assert page.eval(f"document.querySelector('[data-og=\"{index}\"]').open") is True
    in_order(page)
    page.click(f'[data-og="{index}"] > summary')
    page.wait(f"kubexmGraph.open[{index}] === false")
    assert page.eval(f"document.querySelector('[data-g=\"{index}\"]').classList.contains('closed')") is True
    in_order(page)
    assert page.problems == []


def test_any_frames_can_be_closed_in_any_order(opened: Any) -> None:
    page = opened(fan(5))
    count = len(model(fan(5)).groups)
    for step in range(0, count, 3):
        page.eval(f"kubexmGraph.toggle({(step * 7) % count})")
    in_order(page)
    assert page.problems == []


def test_a_step_is_found_shown_and_explained(opened: Any) -> None:
    page = opened(cluster(), statuses={"verify/smoke/deploy": "Failed"})
    page.click("[data-level=modules]")
    page.type("input[type=search]", "smoke deploy")
    assert page.eval("document.querySelector('.found').textContent") == "1 found"
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Enter")
    assert page.eval("document.querySelector('.found').textContent") == "1 of 1"
    details = page.eval("document.querySelector('.details').innerText")
    for words in (
        "verify/smoke/deploy",
        "✘ failed",
        "3 attempts, 2 s apart",
        "60 s",
        "{{ vars.image }}",
        "verify/nodes/ready",
    ):
        assert words in details
    inside = page.eval(
        "(() => { const r = document.querySelector('.box.chosen').getBoundingClientRect(),"
        " c = document.querySelector('.canvas').getBoundingClientRect();"
        " return r.left >= c.left && r.right <= c.right && r.top >= c.top && r.bottom <= c.bottom; })()"
    )
    assert inside
    page.click(".details .link")
    assert "verify/nodes/ready" in page.eval("document.querySelector('.details h2').textContent")


def test_a_click_on_a_step_shows_its_details_and_a_drag_moves_the_drawing(opened: Any) -> None:
    page = opened(small())
    page.click('[data-n="0"]')
    assert page.eval("document.querySelector('.details h2').textContent") == "greet/say/write"
    before = page.eval("[kubexmGraph.zoom.x, kubexmGraph.zoom.y]")
    for kind, x, buttons in (("mousePressed", 900, 1), ("mouseMoved", 960, 1), ("mouseReleased", 960, 0)):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=700, button="left", buttons=buttons, clickCount=1)
    after = page.eval("[kubexmGraph.zoom.x, kubexmGraph.zoom.y]")
    assert (after[0] - before[0], after[1] - before[1]) == (60, 0)
    assert page.eval("document.querySelector('.details h2').textContent") == "greet/say/write"


def test_the_wheel_zooms_round_the_pointer(opened: Any) -> None:
    page = opened(small())
    before = page.eval("kubexmGraph.zoom.k")
    page.call("Input.dispatchMouseEvent", type="mouseWheel", x=700, y=400, deltaX=0, deltaY=-300)
    page.wait(f"kubexmGraph.zoom.k > {before}")


@pytest.mark.parametrize("graph", [small(), cluster(), nasty()], ids=["small", "cluster", "nasty"])
def test_no_text_is_wider_than_its_box(opened: Any, graph: ExecutionGraph) -> None:
    page = opened(graph, statuses={node.id: "Success" for node in graph.steps()})
    page.eval("kubexmGraph.setLevel('steps')")
    too_wide = """(() => [...document.querySelectorAll('.view text')].filter(text => {
      const parent = text.closest('.shut') ? null : text.parentNode;
      const rect = parent && parent.querySelector(':scope > rect');
      if (!rect || !text.getBoundingClientRect().width) return false;
      const box = text.getBBox(), frame = rect.getBBox();
      return box.x + box.width > frame.x + frame.width - 4;
    }).map(text => text.textContent))()"""
    assert page.eval(too_wide) == []
    page.eval("kubexmGraph.setLevel('modules')")
    shut = too_wide.replace("text.closest('.shut') ? null : text.parentNode", "text.closest('.closed')")
    assert page.eval(shut) == []


def test_names_that_try_to_break_out_run_nothing(opened: Any) -> None:
    page = opened(nasty())
    assert page.problems == []
    page.click('[data-n="0"]')
    assert "<script>alert(1)</script>" in page.eval("document.querySelector('.details').textContent")
    assert page.eval("document.querySelectorAll('.details script').length") == 0


def test_it_works_on_a_phone_in_the_dark(opened: Any) -> None:
    page = opened(cluster(), width=390, height=800, phone=True, dark=True)
    assert page.problems == []
    assert page.eval("document.documentElement.scrollWidth") <= 390
    assert page.eval("getComputedStyle(document.querySelector('.kx-graph')).backgroundColor") == "rgb(15, 19, 26)"
    assert page.eval("getComputedStyle(document.querySelector('.outline')).display") == "none"


def test_five_hundred_steps_start_with_their_tasks_closed_and_open_when_asked(opened: Any) -> None:
    page = opened(wide())
    assert page.eval("document.querySelectorAll('.task.closed').length") == 50
    page.click("[data-level=steps]")
    assert page.eval("document.querySelectorAll('.closed').length") == 0
    in_order(page)


def test_what_failed_is_open_from_the_start(opened: Any) -> None:
    statuses = {node.id: "Success" for node in wide().steps()} | {"module-4/task-2/step-3-of-2": "Failed"}
    page = opened(wide(), statuses=statuses)
    assert page.eval("document.querySelectorAll('.task:not(.closed)').length") == 1


def test_without_scripts_the_drawing_is_there_already() -> None:
    text = re.sub(r"<script.*?</script>", "", draw(small(), "html"), flags=re.DOTALL)
    assert 'class="kx"' in text
    assert "compare" in text
