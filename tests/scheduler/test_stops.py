from __future__ import annotations

import pytest

from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook
from kubexm_exec.scheduler import Action
from tests.scheduler.build import Play, gate, step


def hooked() -> tuple[ExecutionNode, ...]:
    """A scope with a body of two steps, all hooks, and something behind."""
    return (
        step("pre", "h1", hook=Hook.PRE),
        gate("begin", "pre"),
        step("a", "h1 h2", "begin"),
        step("b", "h1 h2", "a"),
        gate("body", "pre a b"),
        step("post", "h1", "body", hook=Hook.POST),
        gate("outcome", "body post"),
        step("oops", "h1", "outcome?failure", hook=Hook.ON_FAILURE),
        step("oops2", "h1", "outcome?failure oops", hook=Hook.ON_FAILURE),
        gate("handled", "oops?done oops2?done"),
        step("always", "h1", "outcome?done handled?done", hook=Hook.ALWAYS),
        gate("end", "outcome oops oops2 always"),
        step("later", "h1", "end"),
    )


def test_hooks_after_success() -> None:
    play = Play(*hooked()).run()
    assert play.order == ["pre@h1", "a@h1", "a@h2", "b@h1", "b@h2", "post@h1", "always@h1", "later@h1"]
    assert play.of("oops@h1", "oops2@h1") == ["Skipped condition"] * 2
    assert play.status == "Success"


def test_hooks_after_failure() -> None:
    play = Play(*hooked()).run({"a@h1": "fail"})
    assert play.order == ["pre@h1", "a@h1", "a@h2", "b@h2", "oops@h1", "oops2@h1", "always@h1"]
    assert play.of("post@h1", "later@h1", "end") == [
        "Skipped dependency a",
        "Skipped dependency a",
        "Failed dependency a",
    ]


def test_a_failing_pre_hook_fails_its_scope() -> None:
    play = Play(*hooked()).run({"pre@h1": "fail"})
    assert play.order == ["pre@h1", "oops@h1", "oops2@h1", "always@h1"]
    assert play.ends["end"] == "Failed dependency pre"


def test_a_failing_always_hook_fails_the_run() -> None:
    play = Play(*hooked()).run({"always@h1": "fail"})
    assert play.of("end", "later@h1") == ["Failed dependency always", "Skipped dependency always"]
    assert play.status == "Failed"


def test_a_scope_that_never_began_runs_only_its_always_hooks() -> None:
    play = Play(
        step("before", "h3"),
        gate("first", "before"),
        step("a", "h1", "first"),
        gate("body", "a"),
        step("oops", "h1", "body?failure", hook=Hook.ON_FAILURE),
        step("always", "h1", "body?done", hook=Hook.ALWAYS),
    ).run({"before@h3": "fail"})
    assert play.order == ["before@h3", "always@h1"]
    assert play.ends["oops@h1"] == "Skipped condition"


@pytest.mark.parametrize("policy", [FailurePolicy.FAIL_FAST, FailurePolicy.ROLLBACK])
def test_at_the_first_failed_node_nothing_new_starts_but_its_hooks(policy: FailurePolicy) -> None:
    play = Play(*hooked(), step("other", "h3"), policy=policy)
    play.do("pre@h1").start("a@h1", "a@h2").end("a@h1", outcome="fail")
    assert play.scheduler.stopped == policy.value
    assert play.ready() == []
    assert play.of("b@h1", "b@h2", "post@h1", "later@h1", "other@h3") == ["Cancelled a"] * 5
    assert play.messages["other@h3"] == f"stopped: {policy.value}"
    play.end("a@h2").run()
    assert play.order[3:] == ["oops@h1", "oops2@h1", "always@h1"]
    assert play.of("a@h2", "a", "b") == ["Success", "Failed", "Cancelled"]
    assert play.status == "Failed"


def test_the_run_stops_at_the_last_action_too_so_that_it_is_rolled_back() -> None:
    play = Play(step("a"), policy=FailurePolicy.ROLLBACK).run({"a@h1": "fail"})
    assert play.scheduler.stopped == "rollback"


def test_a_failure_within_the_budget_or_ignored_stops_nothing() -> None:
    play = Play(
        step("a", "h1 h2", max_failures="1"), step("b", "h1 h2", ignore=True), policy=FailurePolicy.FAIL_FAST
    ).run({"a@h1": "fail", "b@h1": "fail"})
    assert play.scheduler.stopped == ""
    assert play.status == "Success"


def test_cancel_runs_only_always_hooks_and_what_runs_may_finish() -> None:
    play = Play(*hooked()).do("pre@h1").start("a@h1")
    play.stop("cancel")
    assert play.ready() == []
    play.end("a@h1", outcome="cancel").run()
    assert play.order == ["pre@h1", "a@h1", "always@h1"]
    assert play.of("a@h2", "b@h1", "oops@h1", "later@h1", "a") == ["Cancelled"] * 5
    assert play.status == "Cancelled"


def test_cancel_outdoes_fail_fast_and_not_the_other_way_round() -> None:
    play = Play(*hooked(), policy=FailurePolicy.FAIL_FAST)
    play.do("pre@h1").start("a@h1", "a@h2").end("a@h1", outcome="fail").end("a@h2")
    assert play.ready() == ["oops@h1"]
    play.stop("cancel")
    assert play.scheduler.stopped == "cancel"
    assert play.ready() == ["always@h1"]
    play.stop("failFast")
    assert play.scheduler.stopped == "cancel"
    assert play.run().status == "Cancelled"


def test_a_stop_takes_back_what_was_offered_with_its_limits() -> None:
    play = Play(step("a"), step("always", "h1", hook=Hook.ALWAYS), host_limit=1)
    assert play.ready() == ["a@h1"]
    play.stop("cancel")
    assert play.ready() == ["always@h1"]


def test_a_stop_cancels_deferred_actions_and_what_would_be_deferred_later() -> None:
    play = Play(step("a", "h1 h2 h3"))
    play.start("a@h1", "a@h2")
    play.scheduler.defer(Action("a", "h1"))
    play.stop("failFast")
    assert play.of("a@h1", "a@h3") == ["Cancelled"] * 2
    assert play.scheduler.deferred == 0
    play.scheduler.defer(Action("a", "h2"))
    play.drain()
    assert play.ends["a@h2"] == "Cancelled"
    play.scheduler.resume(Action("a", "h1"))
    assert play.ready() == []
    assert play.scheduler.done
    assert play.status == "Cancelled"


def test_exempt_hooks_may_be_tried_again_after_a_stop() -> None:
    play = Play(step("always", "h1", hook=Hook.ALWAYS), step("a"))
    play.start("always@h1")
    play.scheduler.defer(Action("always", "h1"))
    play.stop("cancel")
    play.scheduler.resume(Action("always", "h1"))
    assert play.ready() == ["always@h1"]


def test_after_a_stop_there_are_no_pauses_but_those_that_run() -> None:
    nodes = (
        step("a"),
        gate("g", "a", budget="0", pause=9),
        step("b", "h1", "g"),
        step("always", "h1", "g?done", hook=Hook.ALWAYS),
    )
    play = Play(*nodes).do("a@h1")
    assert play.ready() == ["g@"]
    play.stop("cancel")
    assert play.ready() == ["always@h1"]
    never = Play(*nodes).start("a@h1").stop("cancel").end("a@h1")
    assert never.ready() == ["always@h1"]
    running = Play(*nodes).do("a@h1").start("g@").stop("cancel")
    assert running.ready() == []
    assert running.end("g@").ready() == ["always@h1"]


def test_stopping_what_is_done_changes_nothing() -> None:
    play = Play(step("a")).run().stop("cancel")
    assert play.scheduler.stopped == ""
    assert play.status == "Success"
