from __future__ import annotations

import pytest

from tests.scheduler.build import Play, gate, step


def test_what_waits_for_a_failed_action_is_skipped_with_the_nearest_failed_node_and_nothing_else_is() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"), step("c", "h1 h2", "b"), step("other", "h1"))
    play.run({"a@h1": "fail"})
    assert play.of("b@h1", "c@h1") == ["Skipped dependency a"] * 2
    assert play.of("b@h2", "c@h2", "other@h1") == ["Success"] * 3
    assert play.of("a", "b", "c", "other") == ["Failed", "Success", "Success", "Success"]
    assert play.status == "Failed"


def test_a_node_is_skipped_when_all_its_actions_were_skipped_for_a_dependency() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"))
    play.run({"a@h1": "fail", "a@h2": "fail"})
    assert play.of("a", "b") == ["Failed", "Skipped dependency a"]


@pytest.mark.parametrize("outcome", ["satisfied", "when"])
def test_an_action_that_had_nothing_to_do_poisons_nothing(outcome: str) -> None:
    play = Play(step("a", "h1"), step("b", "h1", "a"), gate("g", "a"), step("c", "h1", "g"))
    play.run({"a@h1": outcome})
    assert play.of("a", "b@h1", "c@h1") == ["Success"] * 3
    assert play.status == "Success"


def test_an_ignored_failure_counts_as_success_for_what_waits_and_for_the_run() -> None:
    play = Play(step("a", "h1", ignore=True), step("b", "h1", "a"), gate("g", "a"), step("c", "h1", "g"))
    play.run({"a@h1": "fail"})
    assert play.of("a@h1", "a", "b@h1", "c@h1") == ["Failed", "Success", "Success", "Success"]
    assert play.status == "Success"


def test_a_cancelled_action_is_bad_for_what_waits() -> None:
    play = Play(step("a"), step("b", "h1", "a"), gate("g", "a"), step("c", "h1", "g"))
    play.run({"a@h1": "cancel"})
    assert play.of("a", "b@h1", "c@h1") == ["Cancelled", "Skipped dependency a", "Skipped dependency a"]
    assert play.status == "Cancelled"


def test_a_step_for_the_failure_runs_only_on_hosts_where_it_failed() -> None:
    play = Play(step("a", "h1 h2 h3"), step("rescue", "h1 h2 h3", "a?failure"), step("next", "h1", "rescue"))
    play.run({"a@h1": "fail", "a@h2": "when"})
    assert play.of("rescue@h1", "rescue@h2", "rescue@h3") == ["Success", "Skipped condition", "Skipped condition"]
    assert play.ends["next@h1"] == "Success"


def test_one_failure_of_several_that_are_waited_for_is_enough() -> None:
    nodes = (step("a"), step("b", "h1", "a"), step("rescue", "h1", "a?failure b?failure"))
    assert Play(*nodes).run({"a@h1": "fail"}).ends["rescue@h1"] == "Success"
    assert Play(*nodes).run({"b@h1": "fail"}).ends["rescue@h1"] == "Success"
    assert Play(*nodes).run().ends["rescue@h1"] == "Skipped condition"


def test_an_unmet_condition_poisons_nothing_behind_it() -> None:
    play = Play(step("a"), step("rescue", "h1", "a?failure"), step("b", "h1", "rescue"), gate("g", "rescue"))
    play.run()
    assert play.of("rescue@h1", "rescue", "b@h1", "g") == ["Skipped condition", "Success", "Success", "Success"]


def test_a_bad_dependency_counts_more_than_an_unmet_condition() -> None:
    play = Play(step("bad"), step("a"), step("c", "h1", "bad a?failure"))
    play.run({"bad@h1": "fail"})
    assert play.ends["c@h1"] == "Skipped dependency bad"


def test_done_waits_for_the_end_whatever_it_is() -> None:
    play = Play(step("a"), step("b", "h1", "a"), step("c", "h1", "a?done b?done"))
    play.run({"a@h1": "fail"})
    assert play.ends["c@h1"] == "Success"
    assert play.order == ["a@h1", "c@h1"]


def test_a_node_that_was_not_selected_is_skipped_without_being_offered_once_its_dependencies_are_done() -> None:
    play = Play(step("a"), step("b", "h1", "a", skip="tags not selected"), step("c", "h1", "b"))
    assert play.of("b@h1") == ["-"]
    play.run()
    assert play.order == ["a@h1", "c@h1"]
    assert play.of("b@h1", "b") == ["Skipped condition", "Success"]
    assert play.messages["b@h1"] == "tags not selected"


def test_a_node_that_was_not_selected_passes_a_failed_dependency_on() -> None:
    play = Play(step("a"), step("b", "h1", "a", skip="tags not selected"), step("c", "h1", "b"))
    play.run({"a@h1": "fail"})
    assert play.of("b@h1", "c@h1") == ["Skipped dependency a"] * 2


def test_the_nearest_failed_node_is_named_and_of_equally_near_ones_the_first_in_graph_order() -> None:
    nodes = (step("far"), step("mid", "h1", "far?done"), step("x", "h1", "far"), step("near"))
    play = Play(*nodes, step("c", "h1", "x near"), step("d", "h1", "near far mid"))
    play.run({"far@h1": "fail", "near@h1": "fail", "mid@h1": "fail"})
    assert play.of("c@h1", "d@h1") == ["Skipped dependency near", "Skipped dependency far"]


def test_a_failed_node_closes_the_gate_for_all_hosts() -> None:
    play = Play(step("a", "h1 h2"), gate("g", "a"), step("b", "h1 h2 h3", "g"))
    play.run({"a@h1": "fail"})
    assert play.of("g", "b@h1", "b@h2", "b@h3") == ["Failed dependency a", *["Skipped dependency a"] * 3]


def test_within_the_budget_the_failed_host_leaves_the_run_and_the_others_go_on_past_gates() -> None:
    play = Play(
        step("a", "h1 h2 h3", max_failures="1"),
        gate("g", "a"),
        step("b", "h1 h2 h3", "g"),
        gate("end", "g b"),
        step("c", "h1 h2 h3", "end"),
    )
    play.run({"a@h1": "fail"})
    assert play.of("a", "g", "end", "b", "c") == ["Success"] * 5
    assert play.of("b@h1", "c@h1") == ["Skipped dependency a"] * 2
    assert play.of("b@h2", "c@h3") == ["Success"] * 2
    assert play.status == "Success"


@pytest.mark.parametrize(
    ("budget", "status"), [("1", "Failed"), ("2", "Success"), ("49%", "Failed"), ("50%", "Success")]
)
def test_the_budget_is_a_number_or_a_percentage_of_the_hosts(budget: str, status: str) -> None:
    play = Play(step("a", "h1 h2 h3 h4", max_failures=budget))
    play.run({"a@h1": "fail", "a@h2": "fail"})
    assert play.ends["a"] == status


def test_hosts_leave_the_run_through_host_edges_and_gates_behind_them() -> None:
    play = Play(
        step("a", "h1 h2", max_failures="1"),
        step("b", "h1 h2", "a"),
        gate("g", "b"),
        step("c", "h1 h2 h3", "g"),
    )
    play.run({"a@h1": "fail"})
    assert play.of("b@h1", "c@h1", "c@h2", "c@h3") == [*["Skipped dependency a"] * 2, *["Success"] * 2]


def test_a_gate_behind_something_blocked_is_closed_but_has_not_failed() -> None:
    play = Play(
        step("a"),
        gate("g", "a"),
        step("b", "h2", "g"),
        step("c", "h2", "b"),
        gate("end", "c"),
        step("d", "h3", "end"),
        step("rescue", "h3", "end?failure"),
        step("rescue-a", "h3", "g?failure"),
    )
    play.run({"a@h1": "fail"})
    assert play.of("end", "d@h3") == ["Skipped dependency a"] * 2
    assert play.of("rescue@h3", "rescue-a@h3") == ["Skipped condition", "Success"]


def test_a_failed_gate_makes_the_gates_behind_it_failed_unless_they_only_wait_for_its_end() -> None:
    play = Play(step("a"), gate("g", "a"), gate("module", "g"), gate("after", "g?done"), step("b", "h1", "after"))
    play.run({"a@h1": "fail"})
    assert play.of("module", "after", "b@h1") == ["Failed dependency a", "Success", "Success"]


def test_a_gate_that_only_waits_for_the_end_of_a_node_is_not_closed_by_it() -> None:
    play = Play(step("a", "h1 h2", max_failures="1"), gate("g", "a?done"), step("b", "h1 h2", "g"))
    play.run({"a@h1": "fail", "a@h2": "fail"})
    assert play.of("g", "b@h1", "b@h2") == ["Success"] * 3


def test_steps_behind_a_gate_for_a_failure_run_only_after_one() -> None:
    nodes = (step("a", "h1 h2"), gate("g", "a?failure"), step("b", "h1", "g"), gate("end", "b"))
    assert Play(*nodes).run({"a@h2": "fail"}).of("b@h1", "end") == ["Success", "Success"]
    assert Play(*nodes).run().of("b@h1", "end") == ["Skipped condition", "Success"]


def test_a_gate_for_some_hosts_is_judged_by_the_failures_of_those() -> None:
    play = Play(
        step("a", "h1 h2"), gate("g1", "a@h1"), gate("g2", "a@h2"), step("b", "h3", "g1"), step("c", "h3", "g2")
    )
    play.run({"a@h1": "fail"})
    assert play.of("g1", "g2", "b@h3", "c@h3") == [
        "Failed dependency a",
        "Success",
        "Skipped dependency a",
        "Success",
    ]
