from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from kubexm_exec.console import tree
from kubexm_exec.console.tables import count
from kubexm_exec.console.tally import Tally
from kubexm_exec.console.tree import ASCII, Tree
from kubexm_exec.model.graph import ExecutionGraph
from tests.console import golden, scenario
from tests.console.scenario import failed_run, large_run, odd_run
from tests.console.script import Script, graph, step

RUNS: dict[str, Script] = {
    name: getattr(scenario, name)()
    for name in ("failed_run", "good_run", "wide_run", "rolled_back_run", "odd_run", "checked_run", "large_run")
}


def start_graph(run: Script) -> ExecutionGraph:
    """The graph as it was when the run started."""
    return run.graph.with_nodes(node for name, node in run.graph.nodes.items() if "+" not in name)


def played(run: Script, events: int) -> tuple[Tally, float]:
    tally = Tally(start_graph(run))
    for event in run.events[:events]:
        tally(event)
    return tally, run.events[events - 1].time


def text(lines: list[Text]) -> str:
    return "".join(line.plain.rstrip() + "\n" for line in lines)


@pytest.mark.parametrize("name", RUNS)
@given(data=st.data(), width=st.integers(1, 200), height=st.integers(1, 70))
def test_tree_is_never_taller_or_wider_than_the_terminal(
    name: str, data: st.DataObject, width: int, height: int
) -> None:
    run = RUNS[name]
    tally, now = played(run, data.draw(st.integers(1, len(run.events))))
    lines = Tree(tally).lines(width, height, now + 0.5)
    assert 1 <= len(lines) <= max(1, height - 1)
    for line in lines:
        assert line.cell_len <= width
        assert "\n" not in line.plain


@pytest.mark.parametrize(
    ("name", "run", "share", "width", "height"),
    [
        ("failed", failed_run, 0.4, 100, 24),
        ("failed-later", failed_run, 0.74, 100, 24),
        ("failed-end", failed_run, 1.0, 100, 24),
        ("large", large_run, 1.0, 80, 24),
        ("large-high", large_run, 1.0, 100, 60),
        ("large-low", large_run, 1.0, 60, 10),
        ("odd", odd_run, 0.55, 80, 24),
    ],
)
def test_tree_of_a_run(name: str, run: Callable[[], Script], share: float, width: int, height: int) -> None:
    script = run()
    tally, now = played(script, max(1, int(len(script.events) * share)))
    golden.check(f"tree-{name}", text(Tree(tally).lines(width, height, now + 1.5)))


@pytest.mark.parametrize("name", ["failed_run", "good_run", "wide_run"])
def test_counts_at_the_end_are_those_of_the_result(name: str) -> None:
    run: Script = getattr(scenario, name)()
    tally, _ = played(run, len(run.events))
    total, modules, hosts = count(run.graph, run.result)
    assert (tally.all.done, tally.all.running, tally.all.hosts_done) == (total.actions, 0, len(hosts))
    assert list(tally.modules) == list(modules)
    for part, counts in [(tally.all, total), *((tally.modules[name], modules[name]) for name in modules)]:
        assert part.numbers == {name: number for name, number in counts.numbers.items() if number and name != "ok"}
        assert part.failed == counts.bad
        assert part.total == counts.actions


def test_nodes_that_are_added_are_counted_with_their_new_hosts_only() -> None:
    run = Script(graph([step("a/b/c", ("h1", "h2"))], ("h1", "h2")))
    run.start("a/b/c", "h1").extend("a/b/c", step("a/b/c+x", ("h1",))).end("a/b/c", "h1")
    run.start("a/b/c", "h2").extend("a/b/c", step("a/b/c+x", ("h1", "h2"))).end("a/b/c", "h2")
    tally, _ = played(run, len(run.events))
    assert (tally.all.total, tally.all.done, tally.nodes) == (4, 2, 2)
    assert tally.modules["a"].tasks["b"].left == {"h1": 1, "h2": 1}
    run.do("a/b/c+x")
    tally, _ = played(run, len(run.events))
    assert tally.modules["a"].state == "ok"
    assert tally.modules["a"].hosts_done == 2


def test_module_says_what_it_waits_for_until_that_is_done() -> None:
    run = Script(scenario.etcd_graph())
    tally, now = played(run, 1)
    shown = text(Tree(tally).lines(100, 40, now))
    assert "○ etcd            waiting for prepare/os\n" in shown
    assert "○ health          waiting for etcd\n" in shown
    run.do("prepare/os/packages").do("prepare/os/sysctl").do("etcd/certificates/make").start("etcd/install/download")
    tally, now = played(run, len(run.events))
    shown = text(Tree(tally).lines(100, 40, now))
    assert "  ○ configure     waiting\n" in shown
    assert "  ○ start         waiting for configure, install\n" in shown


def test_stop_is_said_at_the_top() -> None:
    run = odd_run()
    tally, now = played(run, len(run.events))
    assert "cancelled: running actions are stopped" in Tree(tally).lines(80, 24, now)[2].plain


def test_ascii_symbols_are_ascii() -> None:
    tally, now = played(RUNS["large_run"], len(RUNS["large_run"].events))
    lines = Tree(tally, ASCII).lines(200, 40, now)
    assert text(lines).isascii()
    assert "01JC8ZK3M4~" in text(lines)


def test_long_run_ids_are_shortened() -> None:
    assert tree.short_run("01JC8ZK3M4N5P6Q7R8S9T0V1W2") == "01JC8ZK3M4…"
    assert tree.short_run("short") == "short"


def test_graph_without_nodes_is_drawn() -> None:
    tally = Tally(graph([], (), "empty"))
    assert text(Tree(tally).lines(80, 24, 0.0)).startswith("kubexm  empty")
