"""Actions that work for a host at another place belong to that host; limits are counted at the place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubexm_exec.model.graph import ExecutionGraph, GraphHost, Hook
from kubexm_exec.scheduler import Scheduler
from tests.scheduler.build import Play, action, step

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
