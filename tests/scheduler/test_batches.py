from __future__ import annotations

from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook
from tests.scheduler.build import Play, gate, step


def batches(budget: str = "0", pause: float = 0.0, steps_budget: str | None = None) -> tuple[ExecutionNode, ...]:
    """Two steps on four hosts, two at a time; then a gate and something behind it."""
    own = budget if steps_budget is None else steps_budget
    return (
        step("a", "h1 h2 h3 h4", "b2@h3,h4", max_failures=own),
        step("b", "h1 h2 h3 h4", "a", max_failures=own),
        gate("b2", "a@h1,h2 b@h1,h2", budget=budget, pause=pause),
        gate("end", "a b b2"),
        step("after", "h1 h2 h3 h4", "end"),
    )


def test_a_batch_starts_when_the_one_before_is_through_all_steps() -> None:
    play = Play(*batches())
    assert play.ready() == ["a@h1", "a@h2"]
    play.do("a@h1", "a@h2", "b@h1")
    assert play.ready() == ["b@h2"]
    play.do("b@h2")
    assert play.ready() == ["a@h3", "a@h4"]
    assert play.run().status == "Success"


def test_a_batch_does_not_start_when_more_hosts_have_failed_than_allowed() -> None:
    play = Play(*batches()).run({"b@h1": "fail"})
    assert play.of("a@h3", "a@h4") == ["Skipped limit b"] * 2
    assert play.of("b@h3", "after@h2") == ["Skipped dependency b"] * 2
    assert play.of("b2", "end") == ["Failed limit b", "Failed dependency b"]
    assert play.status == "Failed"


def test_within_the_limit_the_next_batch_starts_and_the_failed_host_stays_behind() -> None:
    play = Play(*batches("1")).run({"a@h1": "fail"})
    assert play.of("a@h3", "b@h4", "after@h2") == ["Success"] * 3
    assert play.of("b@h1", "after@h1") == ["Skipped dependency a"] * 2
    assert play.status == "Success"


def test_different_hosts_that_failed_in_different_steps_add_up_to_the_limit_and_fail_the_run() -> None:
    play = Play(*batches("1")).run({"a@h1": "fail", "b@h2": "fail"})
    assert play.of("a", "b", "a@h3", "b2") == ["Success", "Success", "Skipped limit a", "Failed limit a"]
    assert play.status == "Failed"


def test_a_host_that_failed_twice_counts_once_and_ignored_failures_do_not_count() -> None:
    nodes = (
        step("a", "h1 h2", "g@h2", max_failures="1"),
        step("b", "h1 h2", "a?done", max_failures="1"),
        step("c", "h1 h2", "a?done", ignore=True),
        gate("g", "a@h1 b@h1 c@h1", budget="1"),
    )
    play = Play(*nodes).run({"a@h1": "fail", "b@h1": "fail", "c@h1": "fail"})
    assert play.ends["a@h2"] == "Success"


def test_failures_of_earlier_batches_count_for_later_ones() -> None:
    nodes = (
        step("a", "h1 h2 h3 h4", "b2@h2 b3@h3 b4@h4", max_failures="1"),
        gate("b2", "a@h1", budget="1"),
        gate("b3", "a@h2 b2", budget="1"),
        gate("b4", "a@h3 b3", budget="1"),
    )
    play = Play(*nodes).run({"a@h1": "fail", "a@h2": "fail"})
    assert play.of("b2", "b3", "b4") == ["Success", "Failed limit a", "Failed limit a"]
    assert play.of("a@h3", "a@h4", "a") == ["Skipped limit a", "Skipped limit a", "Failed"]


def test_a_node_over_its_own_budget_in_several_batches_closes_the_gates_behind_the_batch_gate() -> None:
    nodes = (
        step("a", "h1 h2 h3", "b2@h2,h3", max_failures="1"),
        gate("b2", "a@h1", budget="2"),
        gate("all2", "a@h2,h3 b2"),
        step("b", "h1 h2 h3", "all2@h2,h3"),
    )
    play = Play(*nodes).run({"a@h1": "fail", "a@h2": "fail"})
    assert play.of("a@h3", "all2", "b@h3", "b@h1") == [
        "Success",
        "Failed dependency a",
        "Skipped dependency a",
        "Success",
    ]


def test_a_percentage_is_of_all_hosts_of_the_task() -> None:
    play = Play(*batches("25%")).run({"a@h1": "fail"})
    assert play.ends["a@h3"] == "Success"
    play = Play(*batches("24%")).run({"a@h1": "fail"})
    assert play.ends["a@h3"] == "Skipped limit a"


def test_a_batch_gate_closed_by_an_earlier_failure_elsewhere_names_that_dependency() -> None:
    nodes = (step("before"), gate("g", "before"), step("a", "h1 h2", "g b2@h2"), gate("b2", "a@h1", budget="0"))
    play = Play(*nodes).run({"before@h1": "fail"})
    assert play.of("a@h1", "a@h2", "b2") == ["Skipped dependency before"] * 3


def test_a_pause_is_offered_before_the_next_batch_and_takes_no_fork() -> None:
    play = Play(step("other", "h9"), *batches(pause=30), forks=1)
    play.do("other@h9", "a@h1", "a@h2", "b@h1", "b@h2")
    assert play.ready() == ["b2@"]
    play.start("b2@")
    assert play.scheduler.running == 1
    assert play.scheduler.status("b2") == "Running"
    assert play.ready() == []
    play.end("b2@")
    assert play.ready() == ["a@h3"]


def test_a_pause_is_offered_while_all_forks_are_taken() -> None:
    play = Play(*batches(pause=30), step("other", "h9"), forks=1)
    play.do("a@h1", "a@h2", "b@h1")
    play.start("b@h2")
    play.end("b@h2")
    assert play.ready() == ["b2@", "other@h9"]


def test_there_is_no_pause_when_nothing_waits_for_it() -> None:
    assert Play(*batches(pause=30)).run({"a@h1": "fail"}).order == ["a@h1", "a@h2", "b@h2"]
    lonely = (step("a"), gate("g", "a", budget="0", pause=5), gate("end", "g"))
    assert Play(*lonely).run().order == ["a@h1"]
    unselected = (step("a"), gate("g", "a", budget="0", pause=5), step("b", "h1", "g", skip="no"))
    assert Play(*unselected).run().order == ["a@h1"]


def test_too_many_failed_hosts_stop_the_run_under_fail_fast() -> None:
    play = Play(*batches("1"), step("other", "h9", "b"), policy=FailurePolicy.FAIL_FAST)
    play.run({"a@h1": "fail", "b@h2": "fail"})
    assert play.scheduler.stopped == "failFast"
    assert play.of("a@h3", "after@h2") == ["Cancelled a"] * 2
    assert play.status == "Failed"


def test_handler_that_nobody_notifies_makes_no_circle_of_batches_and_host_hooks() -> None:
    hosts = "h1 h2"
    play = Play(
        step("a", hosts, "batch2@h2"),
        gate("all1", "a@h1"),
        gate("all2", "a@h2 batch2"),
        step("handler", "", "all1@h1 all2@h2"),
        step("always", hosts, "a?begun handler?begun", hook=Hook.ALWAYS),
        gate("batch2", "a@h1 always@h1", budget="0"),
    )
    assert play.run().order == ["a@h1", "always@h1", "a@h2", "always@h2"]
