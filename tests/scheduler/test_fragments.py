from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook, Origin
from kubexm_exec.scheduler import Action
from tests.scheduler.build import Play, gate, step


def test_whoever_waited_for_the_action_waits_for_the_exits_of_its_fragment() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a"), step("a+y", "h1", "a+x")).end("a@h1")
    assert play.ready() == ["a@h2", "a+x@h1"]
    play.do("a@h2", "a+x@h1")
    assert play.ready() == ["a+y@h1", "b@h2"]
    play.do("a+y@h1")
    assert play.ready() == ["b@h1", "b@h2"]


def test_a_fragment_waits_for_the_action_that_returned_it() -> None:
    play = Play(step("a")).start("a@h1").extend("a@h1", step("a+x", "h1", "a"))
    assert play.ready() == []
    play.end("a@h1", outcome="fail")
    assert play.ends["a+x@h1"] == "Skipped dependency a"


def test_its_actions_come_right_behind_the_node_that_returned_it() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1")).end("a@h1")
    assert play.ready() == ["a@h2", "a+x@h1", "b@h1", "b@h2"]


def test_returned_by_several_hosts_each_adds_its_own_and_the_node_ends_when_no_more_can_come() -> None:
    play = Play(step("a", "h1 h2 h3"), gate("g", "a"), step("b", "h1 h2 h3", "g"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a")).end("a@h1").do("a+x@h1")
    assert play.of("a+x") == ["-"]
    play.start("a@h2").extend("a@h2", step("a+x", "h2", "a")).end("a@h2").do("a@h3")
    assert play.ready() == ["a+x@h2"]
    play.do("a+x@h2", "b@h1")
    assert play.of("a", "a+x", "g") == ["Success"] * 3


def test_a_host_that_is_there_already_is_added_once() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"))
    once = step("a+x", "h9", "a")
    end = gate("a+#end", "a+x")
    play.start("a@h1").extend("a@h1", once, end).end("a@h1")
    play.do("a+x@h9", "b@h1")
    play.start("a@h2").extend("a@h2", replace(once, origin=Origin("f", 1, 1)), end).end("a@h2")
    assert play.ready() == ["b@h2"]
    assert play.run().order.count("a+x@h9") == 1


def test_waiters_wait_for_the_exit_gate_of_a_fragment_that_runs_elsewhere() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"), gate("g", "a@h1"), step("c", "h3", "g"))
    play.start("a@h1", "a@h2")
    play.extend("a@h1", gate("a+x#begin", "a"), step("a+x", "h8 h9", "a+x#begin"), gate("a+#end", "a+x"))
    play.end("a@h1", "a@h2")
    assert play.ready() == ["a+x@h8", "a+x@h9", "b@h2"]
    play.do("a+x@h8", "b@h2")
    assert play.ready() == ["a+x@h9"]
    play.do("a+x@h9")
    assert play.ready() == ["b@h1", "c@h3"]


def test_a_dependency_on_the_returning_node_means_the_returning_action_so_that_batches_cannot_lock_up() -> None:
    play = Play(step("a", "h1 h2", "b2@h2"), gate("b2", "a@h1", budget="0"))
    play.start("a@h1").extend("a@h1", gate("a+x#begin", "a"), step("a+x", "h2", "a+x#begin a")).end("a@h1")
    assert play.ready() == ["a+x@h2"]
    assert play.run().order == ["a@h1", "a+x@h2", "a@h2"]


def test_a_gate_inside_a_fragment_is_one_for_each_action_that_returns_it() -> None:
    def fragment(host: str) -> tuple[ExecutionNode, ...]:
        return step("a+x", host, "a"), gate("a+g", "a+x"), step("a+y", host, "a+g")

    play = Play(step("a", "h1 h2"))
    play.start("a@h1").extend("a@h1", *fragment("h1")).end("a@h1").do("a+x@h1", "a+y@h1")
    play.start("a@h2").extend("a@h2", *fragment("h2")).end("a@h2")
    assert play.ready() == ["a+x@h2"]
    play.do("a+x@h2", outcome="fail")
    assert play.of("a+y@h2", "a+y@h1") == ["Skipped dependency a+x", "Success"]
    assert play.of("a+x", "a+g", "a+y") == ["Failed", "Failed dependency a+x", "Success"]


def test_a_failed_fragment_skips_what_waits_on_that_host_and_fails_the_gate() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"), gate("g", "a"), step("c", "h1", "g"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a")).end("a@h1")
    play.run({"a+x@h1": "fail"})
    assert play.of("b@h1", "b@h2", "c@h1") == ["Skipped dependency a+x", "Success", "Skipped dependency a+x"]
    assert play.status == "Failed"


def test_a_step_for_the_failure_of_a_node_runs_if_its_fragment_failed() -> None:
    nodes = (step("a"), step("rescue", "h1", "a?failure"))
    for outcome, expected in (("fail", "Success"), ("ok", "Skipped condition")):
        play = Play(*nodes).start("a@h1").extend("a@h1", step("a+x", "h1", "a")).end("a@h1")
        assert play.run({"a+x@h1": outcome}).ends["rescue@h1"] == expected


def test_only_the_exits_of_a_fragment_decide_over_what_waits_on_the_host() -> None:
    play = Play(step("a"), step("b", "h1", "a"), gate("g", "a"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a"), step("a+rescue", "h1", "a+x?failure")).end("a@h1")
    play.run({"a+x@h1": "fail"})
    assert play.of("b@h1", "g") == ["Success", "Failed dependency a+x"]


def test_a_fragment_inside_a_fragment() -> None:
    play = Play(step("a"), step("b", "h1", "a"), gate("g", "a"), step("c", "h2", "g"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a"), step("a+y", "h1", "a+x")).end("a@h1")
    play.start("a+x@h1").extend("a+x@h1", step("a+x+z", "h1", "a+x")).end("a+x@h1")
    assert play.ready() == ["a+x+z@h1"]
    play.do("a+x+z@h1")
    assert play.ready() == ["a+y@h1"]
    play.do("a+y@h1")
    assert play.ready() == ["b@h1", "c@h2"]
    assert play.of("a", "a+x", "a+x+z", "a+y") == ["Success"] * 4


def test_a_second_fragment_of_the_same_action_does_not_hold_back_the_first() -> None:
    play = Play(step("a"), step("b", "h1", "a"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a"))
    play.extend("a@h1", step("a+x", "h1", "a"), step("a+y", "h1", "a+x")).end("a@h1")
    assert play.run().order == ["a@h1", "a+x@h1", "a+y@h1", "b@h1"]


def test_an_action_that_is_tried_again_may_return_the_same_fragment_again() -> None:
    play = Play(step("a"), step("b", "h1", "a")).start("a@h1").extend("a@h1", step("a+x", "h1", "a"))
    play.scheduler.defer(Action("a", "h1"))
    play.scheduler.resume(Action("a", "h1"))
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a")).end("a@h1")
    assert play.run().order == ["a@h1", "a@h1", "a+x@h1", "b@h1"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([step("a+x", "h1", "b")], "b, which does not exist"),
        ([step("a+x", "h1", "a+y"), step("a+y", "h1", "a+x")], "circle"),
        ([step("a+x", "h1"), step("a+x", "h2")], "two nodes of the same name"),
        ([step("b", "h1")], "b exists already"),
        ([step("a+old", "h1", max_failures="3")], "a\\+old exists already and is something else"),
        ([step("a+x", "h1"), step("a+y", "h1", global_limit=0)], "below 1"),
        ([step("a+x", "h1"), step("a+y", "h1", max_failures="x")], "neither a number"),
    ],
)
def test_a_fragment_that_does_not_fit_is_refused_and_changes_nothing(nodes: list[ExecutionNode], message: str) -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1", "a"))
    play.start("a@h1").extend("a@h1", step("a+old", "h1", "a")).end("a@h1").start("a@h2")
    with pytest.raises(ValueError, match=message):
        play.extend("a@h2", *nodes)
    with pytest.raises(ValueError, match="no node"):
        play.scheduler.status("a+x")
    play.end("a@h2").run()
    assert play.order == ["a@h1", "a@h2", "a+old@h1", "b@h1"]


def test_after_a_stop_what_a_fragment_adds_is_cancelled_unless_it_belongs_to_an_exempt_hook() -> None:
    play = Play(step("a"), step("always", "h1", hook=Hook.ALWAYS)).start("a@h1", "always@h1").stop("cancel")
    play.extend("a@h1", step("a+x", "h1", "a"))
    play.extend("always@h1", step("always+x", "h1", "always", hook=Hook.ALWAYS))
    assert play.ends["a+x@h1"] == "Cancelled"
    play.end("a@h1", "always@h1").run()
    assert play.ends["always+x@h1"] == "Success"


def test_a_failed_fragment_stops_the_run_under_fail_fast() -> None:
    play = Play(step("a"), step("b", "h1", "a"), policy=FailurePolicy.FAIL_FAST)
    play.start("a@h1").extend("a@h1", step("a+x", "h1", "a"), step("a+y", "h1", "a+x", max_failures="50%")).end("a@h1")
    play.do("a+x@h1").do("a+y@h1", outcome="fail")
    assert play.scheduler.stopped == "failFast"
    assert play.scheduler.done


def test_a_fragment_of_nothing_and_one_without_hosts_change_no_order() -> None:
    play = Play(step("a"), step("b", "h1", "a")).start("a@h1").extend("a@h1")
    play.extend("a@h1", step("a+none", "", "a"), gate("a+g", "a+none")).end("a@h1").run()
    assert play.order == ["a@h1", "b@h1"]
    assert play.ends["a+none"] == "Skipped"


@pytest.mark.parametrize("order", [("n@h1", "n@h2"), ("n@h2", "n@h1")])
def test_what_two_hosts_return_for_a_third_does_not_depend_on_who_was_first(order: tuple[str, ...]) -> None:
    """Only one of them has waited for the gate before which the third left the run."""
    nodes = [step("a", "h3 h4", max_failures="1"), gate("g", "a"), step("n", "h1 h2", "g@h1")]
    play = Play(*nodes, gate("e", "n@h2"), step("z", "h3 h4", "e"))
    play.do("a@h4").do("a@h3", outcome="fail").start(*order)
    for name in order:
        play.extend(name, step("n+x", "h3", "n")).end(name)
    play.run()
    assert play.of("n+x@h3", "z@h3", "z@h4") == ["Success"] * 3


@pytest.mark.parametrize("order", [("n@h1", "n@h2"), ("n@h2", "n@h1")])
def test_a_host_that_left_before_all_that_return_it_stays_behind(order: tuple[str, ...]) -> None:
    play = Play(step("a", "h3", max_failures="1"), gate("g", "a"), step("m", "h1 h2", "g"), step("n", "h1 h2", "m"))
    play.do("a@h3", outcome="fail").do("m@h1", "m@h2").start(*order)
    for name in order:
        play.extend(name, gate("n+g", "n"), step("n+x", "h3", "n"), step("n+y", "h3", "n+g")).end(name)
    assert play.run().of("n+x@h3", "n+y@h3") == ["Skipped dependency a"] * 2


def test_a_host_that_failed_in_an_earlier_batch_stays_behind() -> None:
    play = Play(step("n", "h1 h2 h3", "g2@h2 g3@h3", max_failures="2"), gate("g2", "n@h1"), gate("g3", "g2 n@h2"))
    play.do("n@h1", outcome="fail").start("n@h2").extend("n@h2", step("n+x", "h1", "n")).end("n@h2")
    assert play.of("n+x@h1") == ["Skipped dependency n"]


@pytest.mark.parametrize("early", [True, False])
def test_who_waits_for_what_has_returned_a_fragment_already_waits_for_that_too(*, early: bool) -> None:
    """The action of a fragment was returned by another host, and has returned one itself by now."""
    play = Play(step("n", "h1 h2"), step("b", "h2", "n"), gate("g", "n@h2"), step("c", "h4", "g"))
    mine = (step("n+x", "h2", "n"), gate("n+#end", "n+x"))
    deeper = (step("n+x+y", "h2", "n+x"), gate("n+x+#end", "n+x+y"))
    play.start("n@h1", "n@h2").extend("n@h1", *mine).end("n@h1")
    if early:
        play.start("n+x@h2").extend("n+x@h2", *deeper).end("n+x@h2")
    play.extend("n@h2", *mine).end("n@h2")
    if not early:
        play.start("n+x@h2").extend("n+x@h2", *deeper).end("n+x@h2")
    assert play.ready() == ["n+x+y@h2"]
    play.do("n+x+y@h2", outcome="fail")
    assert play.run().of("b@h2", "c@h4") == ["Skipped dependency n+x+y"] * 2
