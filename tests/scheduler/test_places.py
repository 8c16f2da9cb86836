"""Actions that work for a host at another place belong to that host; limits are counted at the place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubexm_exec.model.graph import ExecutionGraph, GraphHost, Hook
from kubexm_exec.scheduler import Scheduler
from tests.scheduler.build import Play, action, gate, step

AT_LB = {"h1": "lb", "h2": "lb"}


def test_what_is_done_at_one_place_for_several_hosts_waits_for_its_turn_there() -> None:
    play = Play(step("a", "h1 h2", places=AT_LB), step("b", "lb"), host_limit=1)
    assert play.ready() == ["a@h1"]
    play.do("a@h1")
    assert play.ready() == ["a@h2"]
    assert play.do("a@h2").ready() == ["b@lb"]


def test_what_is_done_elsewhere_takes_no_turn_at_the_host_it_is_for() -> None:
    play = Play(step("a", "h1", places={"h1": "lb"}), step("b", "h1"), host_limit=1)
    assert play.ready() == ["a@h1", "b@h1"]


def test_the_limit_of_a_step_for_one_host_is_counted_at_the_place() -> None:
    play = Play(step("a", "h1 h2", places=AT_LB, per_host_limit=1))
    assert play.ready() == ["a@h1"]


def test_a_failure_at_a_place_is_one_of_the_host_it_is_for_and_the_place_stays_in_the_run() -> None:
    play = Play(
        step("a", "h1 h2", places=AT_LB),
        step("b", "h1 h2", "a"),
        step("c", "lb h1"),
        step("d", "lb h1", "c"),
        step("bad", "h1 h2", "a?failure", hook=Hook.ON_FAILURE, places=AT_LB),
    )
    play.run({"a@h1": "fail"})
    assert play.of("a@h1", "b@h1", "bad@h1") == ["Failed", "Skipped dependency a", "Success"]
    assert play.of("a@h2", "b@h2", "bad@h2") == ["Success", "Success", "Skipped condition"]
    assert play.of("c@lb", "d@lb") == ["Success", "Success"]


def test_hosts_that_return_the_same_fragment_are_each_served_at_their_own_place() -> None:
    play = Play(step("a", "h1 h2"), step("other", "lb"), host_limit=1).do("other@lb")
    play.start("a@h1", "a@h2")
    grown = step("a+x", "h1", "a", places={"h1": "lb"})
    play.extend("a@h1", grown).extend("a@h2", replace(grown, hosts=("h2",), places={"h2": "lb"}))
    play.end("a@h1", "a@h2")
    assert play.ready() == ["a+x@h1"]
    play.do("a+x@h1")
    assert play.ready() == ["a+x@h2"]


@pytest.mark.parametrize("limit", [1, 2])
def test_as_many_work_at_a_place_as_it_allows(limit: int) -> None:
    hosts = [f"h{number}" for number in range(4)]
    node = step("a", " ".join(hosts), places=dict.fromkeys(hosts, "lb"))
    graph = ExecutionGraph(name="", nodes={"a": node}, hosts={"lb": GraphHost("lb", per_host_limit=limit)}, scopes={})
    scheduler = Scheduler(graph)
    assert scheduler.ready() == [action(f"a@{host}") for host in hosts[:limit]]


def test_of_several_places_the_first_that_is_still_in_the_run_is_taken() -> None:
    play = Play(
        step("a", "cp1 cp2", max_failures="1"), gate("end", "a"), step("drain", "h1 h2", "end", one="cp1 cp2"),
        host_limit=1,
    )  # fmt: skip
    play.do("a@cp1", outcome="fail").do("a@cp2")
    assert play.ready() == ["drain@h1"]
    assert play.do("drain@h1").ready() == ["drain@h2"]
    assert play.do("drain@h2").places == {"drain@h1": "cp2", "drain@h2": "cp2"}


def test_if_no_place_is_left_the_action_has_failed_for_its_host_without_having_begun() -> None:
    nodes = (
        step("a", "cp1 cp2", max_failures="2"),
        gate("end", "a"),
        step("drain", "h1", "end", one="cp1 cp2"),
        step("upgrade", "h1", "drain"),
        step("back", "h1", "drain?begun upgrade?begun", hook=Hook.ALWAYS, one="cp1 cp2"),
    )
    play = Play(*nodes).run({"a@cp1": "fail", "a@cp2": "fail"})
    assert play.of("drain@h1", "upgrade@h1", "back@h1") == ["Failed", "Skipped dependency drain", "Skipped condition"]
    assert "cp1, cp2" in play.messages["drain@h1"]
    assert play.status == "Failed"


def test_hooks_that_run_in_any_case_take_a_place_that_has_left_the_run_if_there_is_no_other() -> None:
    nodes = (
        step("a", "cp1 cp2", max_failures="2"),
        gate("end", "a"),
        step("back", "h1", "end?done", hook=Hook.ALWAYS, one="cp1 cp2"),
    )
    assert Play(*nodes).run({"a@cp1": "fail"}).places == {"back@h1": "cp2"}
    play = Play(*nodes).run({"a@cp1": "fail", "a@cp2": "fail"})
    assert (play.of("back@h1"), play.places) == (["Success"], {})


def test_an_action_that_is_done_at_another_place_waits_for_its_turn_there() -> None:
    play = Play(step("drain", "h1", one="cp1 cp2"), step("b", "cp2"), host_limit=1).start("drain@h1", "b@cp2")
    assert play.move("drain@h1", "cp2").ready() == []
    assert play.end("b@cp2").ready() == ["drain@h1"]
    with pytest.raises(ValueError, match="drain on h1 cannot be done at cp9"):
        play.start("drain@h1").move("drain@h1", "cp9")


@pytest.mark.parametrize(
    ("outcome", "runs"), [("ok", True), ("satisfied", True), ("fail", True), ("early", False), ("when", False)]
)
def test_what_waits_for_something_that_began_runs_only_if_it_did(outcome: str, runs: bool) -> None:
    play = Play(step("pre", "h1"), step("back", "h1", "pre?begun", hook=Hook.ALWAYS)).run({"pre@h1": outcome})
    assert play.of("back@h1") == ["Success" if runs else "Skipped condition"]


@pytest.mark.parametrize(("outcome", "runs"), [("cancel", True), ("unbegun", False)])
def test_what_was_cancelled_while_it_ran_has_begun_and_what_was_never_started_has_not(outcome: str, runs: bool) -> None:
    nodes = (step("pre", "h1 h2"), step("back", "h1 h2", "pre?begun", hook=Hook.ALWAYS))
    play = Play(*nodes, forks=1).start("pre@h1").stop("cancel").end("pre@h1", outcome=outcome).run()
    assert play.of("back@h1", "back@h2") == ["Success" if runs else "Skipped condition", "Skipped condition"]


def test_what_is_owed_to_an_earlier_session_runs_even_if_nothing_begins_in_this_one() -> None:
    nodes = (
        step("a", "h1"), step("pre", "h1 h2", "a"), step("back", "h1 h2", "pre?begun", hook=Hook.ALWAYS),
    )  # fmt: skip
    play = Play(*nodes, owed="back@h1").run({"a@h1": "fail", "pre@h2": "early"})
    assert play.of("pre@h1", "back@h1", "back@h2") == ["Skipped dependency a", "Success", "Skipped condition"]
