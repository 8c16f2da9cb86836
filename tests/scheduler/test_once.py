"""What runs once runs on the first host that is still in the run; if there is none, that is a failure."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook
from tests.scheduler.build import Play, gate, step


def once(id: str, hosts: str, after: str) -> ExecutionNode:
    """A step that runs once, on a host that the gate ``o`` chooses."""
    made = step(id, hosts, after)
    return replace(made, hosts=made.hosts[:1], once="o", candidates=made.hosts)


def task(hosts: str = "h1 h2 h3", after: str = "a-end", hook: Hook = Hook.NONE) -> tuple[ExecutionNode, ...]:
    """A step on three hosts of which some may fail, a task of two steps that runs once, and what waits for it."""
    return (
        step("a", "h1 h2 h3", max_failures="3"),
        gate("a-end", "a"),
        replace(gate("o", after), candidates=tuple(hosts.split()), hook=hook),
        once("x", hosts, "o"),
        once("y", hosts, "x"),
        gate("end", "x y o"),
        step("after", "h1 h2 h3", "end"),
    )


@pytest.mark.parametrize(
    ("bad", "chosen"), [([], "h1"), (["h1"], "h2"), (["h2"], "h1"), (["h1", "h2"], "h3"), (["h1", "h3"], "h2")]
)
def test_the_first_host_that_has_not_left_the_run_is_chosen_for_all_of_the_task(bad: list[str], chosen: str) -> None:
    play = Play(*task()).run({f"a@{host}": "fail" for host in bad})
    assert [name for name in play.order if name[0] in "xy"] == [f"x@{chosen}", f"y@{chosen}"]
    assert play.of("x", "y", f"after@{chosen}") == ["Success"] * 3
    moved = [] if chosen == "h1" else [("x", (chosen,)), ("y", (chosen,))]
    assert play.scheduler.moved() == moved
    assert play.status == "Success"


def test_that_no_host_is_left_is_a_failure_of_the_run_and_for_what_waits() -> None:
    play = Play(*task("h1 h2")).run({"a@h1": "fail", "a@h2": "fail"})
    assert play.of("x", "y", "after", "after@h3") == ["Skipped dependency a"] * 4
    assert play.of("o", "end") == ["Failed dependency a", "Failed dependency a"]
    assert play.status == "Failed"


@pytest.mark.parametrize("policy", [FailurePolicy.FAIL_FAST, FailurePolicy.ROLLBACK])
def test_that_no_host_is_left_stops_the_run_as_a_failure_does(policy: FailurePolicy) -> None:
    play = Play(*task("h1"), step("late", "h3", "a"), policy=policy).run({"a@h1": "fail"}, pick=min)
    assert play.scheduler.stopped == policy.value
    assert play.status == "Failed"


def test_a_failure_on_the_chosen_host_is_one_for_what_waits_and_nobody_else_takes_over() -> None:
    play = Play(*task()).run({"a@h1": "fail", "x@h2": "fail"})
    assert play.of("x", "y", "after@h3") == ["Failed", "Skipped dependency x", "Skipped dependency x"]
    assert [name for name in play.order if name[0] in "xy"] == ["x@h2"]
    assert play.status == "Failed"


@pytest.mark.parametrize(("bad", "chosen"), [(["h1"], "h2"), (["h1", "h2", "h3"], "h1")])
def test_a_hook_that_runs_in_every_case_takes_the_first_one_if_none_is_left(bad: list[str], chosen: str) -> None:
    nodes = [
        replace(node, hook=Hook.ALWAYS) if node.once else node for node in task(after="a-end?done", hook=Hook.ALWAYS)
    ]
    play = Play(*nodes).run({f"a@{host}": "fail" for host in bad})
    assert play.of(f"x@{chosen}", "x", "y") == ["Success"] * 3


def test_a_host_that_was_only_skipped_because_others_failed_has_not_left_the_run() -> None:
    nodes = (
        step("a", "h1 h2"),
        gate("g", "a"),
        step("b", "h1 h2", "g"),
        gate("body", "b"),
        replace(gate("o", "body?done"), candidates=("h1", "h2"), hook=Hook.ALWAYS),
        replace(once("x", "h1 h2", "o"), hook=Hook.ALWAYS),
    )
    assert Play(*nodes).run({"a@h1": "fail"}).of("b@h2", "x@h2") == ["Skipped dependency a", "Success"]


def test_an_item_that_the_chosen_host_does_not_have_runs_nowhere() -> None:
    nodes = [node if node.id != "x" else once("x", "h1", "o") for node in task()]
    play = Play(*nodes).run({"a@h1": "fail"})
    assert play.of("x", "y", "y@h2", "after@h2") == ["Skipped", "Success", "Success", "Success"]
    assert play.scheduler.moved() == [("x", ()), ("y", ("h2",))]


def test_a_step_of_a_fragment_that_runs_once_is_refused_if_its_host_has_left_the_run() -> None:
    play = Play(step("a", "h1 h2", max_failures="1"), gate("g", "a"), step("b", "h2", "g"))
    play.do("a@h1", outcome="fail").do("a@h2").start("b@h2")
    for host in ("h1", "h2"):
        added = replace(step("b+x", host, "b"), candidates=(host,))
        if host == "h1":
            with pytest.raises(ValueError, match="runs once, on h1, which has left the run"):
                play.extend("b@h2", added)
        else:
            play.extend("b@h2", added)
    assert play.end("b@h2").run().of("b+x@h2") == ["Success"]


def test_what_is_stopped_before_a_host_is_chosen_is_cancelled_once() -> None:
    play = Play(*task()).start("a@h1").stop("cancel").end("a@h1")
    assert {name: end for name, end in play.ends.items() if name[0] in "xy"} == {
        "x@h1": "Cancelled", "y@h1": "Cancelled", "x": "Cancelled", "y": "Cancelled",
    }  # fmt: skip
