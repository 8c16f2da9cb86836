from __future__ import annotations

from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook
from kubexm_exec.scheduler import Action
from tests.scheduler.build import Play, gate, step


def nested() -> tuple[ExecutionNode, ...]:
    """A group in the body of another one, both with a rescue; the outer rescue has a hook of its own."""
    return (
        step("work", groups="inner.body outer.body"),
        step("mend", after="work?done", groups="inner.rescue outer.body"),
        step("undo", after="work?done mend?done", groups="outer.rescue"),
        step("tidy", after="undo?done", groups="outer.rescue", hook=Hook.ALWAYS),
        step("next", after="work mend undo tidy"),
    )


def test_hook_of_a_rescue_hears_of_an_inner_group_that_the_same_stop_has_ended() -> None:
    # The stop cancels the inner rescue, so that its group has failed, and with it the outer one, whose rescue it
    # cancels as well: what cleans up after that is due.
    play = Play(*nested()).do("work@h1", outcome="fail").start("mend@h1")
    play.scheduler.defer(Action("mend", "h1"))
    assert play.stop("failFast").ready() == ["tidy@h1"]
    assert play.run().of("mend@h1", "undo@h1", "next@h1") == ["Cancelled"] * 3
    assert play.status == "Failed"


def test_hook_of_a_rescue_without_a_reason_is_left_out() -> None:
    play = Play(*nested()).start("work@h1").stop("failFast").end("work@h1").run()
    assert play.order == ["work@h1"]
    assert play.messages["tidy@h1"] == "runs only if a step of the group outer fails"


def test_all_failures_that_a_failed_rescue_leaves_count_before_anybody_outside_hears_of_them() -> None:
    play = Play(
        step("a", groups="g.body", max_failures="1"),
        step("b", after="a", groups="g.body"),
        step("tidy", after="b?done", groups="g.body", hook=Hook.ALWAYS),
        step("mend", after="a?done b?done tidy?done", groups="g.rescue", skip="not selected"),
        step("next", after="b mend"),
        policy=FailurePolicy.FAIL_FAST,
    )
    # The failure of ``a`` alone would skip what follows; that of ``tidy`` stops the run.
    play.run({"a@h1": "fail", "tidy@h1": "fail"})
    assert play.of("b@h1", "next@h1") == ["Skipped dependency a", "Cancelled tidy"]


def test_groups_that_end_at_once_on_several_hosts_count_together() -> None:
    hosts = "h1 h2"
    play = Play(
        step("a", hosts, groups="g.body", max_failures="1"),
        gate("all", "a?done", groups="g.body"),
        step("mend", hosts, "a?done all", groups="g.rescue", skip="not selected"),
        step("next", hosts, "a mend"),
        policy=FailurePolicy.FAIL_FAST,
    )
    play.do("a@h1", "a@h2", outcome="fail").run()
    assert play.of("next@h1", "next@h2") == ["Cancelled a"] * 2


def test_what_a_fragment_does_elsewhere_is_rescued_where_it_came_from_however_deep() -> None:
    play = Play(
        step("a", "h1 h2", groups="g.body"),
        step("mend", "h1 h2", "a?done", groups="g.rescue"),
        step("next", "h1 h2", "a mend"),
    )
    play.start("a@h1").extend("a@h1", *_elsewhere("a", "h2")).end("a@h1")
    play.start("a+x@h2").extend("a+x@h2", *_elsewhere("a+x", "h2")).end("a+x@h2")
    play.do("a@h2").do("a+x+x@h2", outcome="fail").run()
    assert play.of("mend@h1", "mend@h2", "next@h1", "next@h2") == ["Success", "Skipped condition", "Success", "Success"]
    assert play.status == "Success"


def _elsewhere(name: str, host: str) -> list[ExecutionNode]:
    """A step of a fragment on another host than the one that returned it, with the gate behind it."""
    made = step(f"{name}+x", host, name, groups="g.body")
    return [made, gate(f"{name}+#end", made.id, groups="g.body")]
