"""The report in a real browser: no complaints, and what scripts build is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.report import render_report
from tests.draw.browser import Browser, Page
from tests.draw.graphs import cluster
from tests.report.runs import checked, events
from tests.report.test_report import failed_run, many

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Any:
    """Opens a report."""

    def open_page(*args: Any, **look: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(render_report(*args), "utf-8")
        return browser.open(path, **look)

    return open_page


def test_the_report_opens_without_a_complaint_and_asks_for_nothing(opened: Any) -> None:
    page = opened(cluster(), failed_run(), events())
    assert page.problems == []
    assert [address for address in page.requests if not address.startswith("file:")] == []
    assert page.eval("document.querySelectorAll('.failure').length") == 3
    assert page.eval("document.querySelectorAll('.gantt rect.crit').length") > 3
    assert page.eval("document.querySelectorAll('.kx-graph.live .box.s-failed').length") >= 3


def test_logs_are_searched_filtered_and_opened(opened: Any) -> None:
    page = opened(cluster(), failed_run(), events())
    assert page.eval("document.querySelectorAll('.log').length") == 40
    page.click("#logs .more")
    assert page.eval("document.querySelectorAll('.log').length") == 80
    page.type("#logs input", "etcd/configure/env become")
    page.wait("document.querySelectorAll('.log').length === 1")
    page.click(".log summary")
    page.wait("document.querySelector('.log .inside')")
    words = page.eval("document.querySelector('.log').innerText")
    for said in ("line 0 of what it said", "exit code 1", "attempt 1 failed", "→ the step has no"):
        assert said in words
    page.type("#logs input", "")
    page.eval("(e => { e.value = ''; e.dispatchEvent(new Event('input')); })(document.querySelector('#logs input'))")
    page.eval(
        "(e => { e.value = 'failed'; e.dispatchEvent(new Event('change')); })(document.querySelector('#logs select'))"
    )
    page.wait("document.querySelector('#logs output').textContent.startsWith('4 of')")
    assert page.problems == []


def test_rows_of_a_long_timeline_are_drawn_when_they_are_looked_at(opened: Any) -> None:
    page = opened(*many(140))
    page.eval("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
    page.wait("document.querySelectorAll('.gantt [data-drawn]').length > 0")
    assert page.eval("document.querySelectorAll('.gantt [data-drawn]').length") < 140
    page.eval("document.querySelector('.gantt').scrollTop = 1e6")
    page.wait("document.querySelector('.gantt [data-row=\"139\"]').dataset.drawn")
    assert page.problems == []


def test_the_time_can_be_zoomed(opened: Any) -> None:
    page = opened(cluster(), failed_run())
    before = page.eval("document.querySelector('.g-rows').getBoundingClientRect().width")
    page.click("[data-time=in]")
    assert page.eval("document.querySelector('.g-rows').getBoundingClientRect().width") > 1.5 * before


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
def test_the_page_is_never_wider_than_its_window(opened: Any, width: int, phone: bool) -> None:
    for result in (failed_run(), checked(cluster())):
        page = opened(cluster(), result, width=width, height=800, phone=phone)
        assert page.eval("document.documentElement.scrollWidth") <= width
        assert page.problems == []


def test_on_paper_nothing_scrolls_and_the_whole_graph_is_there(opened: Any) -> None:
    page = opened(cluster(), failed_run())
    page.look(1000, 800, paper=True)
    page.eval("window.dispatchEvent(new Event('beforeprint'))")
    assert page.eval("getComputedStyle(document.querySelector('.gantt')).overflowX") == "visible"
    assert page.eval("getComputedStyle(document.querySelector('.parts')).display") == "none"
    assert page.eval("document.querySelector('svg.kx').getAttribute('viewBox')").startswith("-4 -4")
    assert page.eval("document.querySelector('svg.kx').getBoundingClientRect().width") <= 1000
