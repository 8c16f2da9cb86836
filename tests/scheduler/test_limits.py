from __future__ import annotations

from msgspec.structs import replace

from kubexm_exec.scheduler import Action, Scheduler
from tests.scheduler.build import Play, graph, step


def test_no_more_than_forks_run_at_once() -> None:
    play = Play(step("a", "h1 h2 h3"), forks=2)
    assert play.ready() == ["a@h1", "a@h2"]
    play.start("a@h1", "a@h2")
    assert play.ready() == []
    play.end("a@h2")
    assert play.ready() == ["a@h3"]


def test_a_host_runs_one_at_a_time_unless_it_is_given_more() -> None:
    assert Play(step("a", "h1 h2"), step("b", "h1 h2"), host_limit=1).ready() == ["a@h1", "a@h2"]
    assert Play(step("a"), step("b"), step("c"), host_limit=2).ready() == ["a@h1", "b@h1"]


def test_a_host_that_the_graph_does_not_know_runs_one_at_a_time() -> None:
    known = graph(step("a"), step("b"))
    assert len(Scheduler(known).ready()) == 2
    assert len(Scheduler(replace(known, hosts={})).ready()) == 1


def test_a_node_runs_on_no_more_hosts_at_once_than_its_global_limit() -> None:
    play = Play(step("a", "h1 h2 h3", global_limit=2), step("b", "h3"))
    assert play.ready() == ["a@h1", "a@h2", "b@h3"]
    assert play.do("a@h1").ready() == ["a@h2", "a@h3", "b@h3"]


def test_items_of_one_step_run_no_more_at_once_on_a_host_than_its_per_host_limit() -> None:
    items = [replace(step(f"s[{key}]", "h1 h2", per_host_limit=2), has_item=True, item=key) for key in "abc"]
    play = Play(*items)
    assert play.ready() == ["s[a]@h1", "s[a]@h2", "s[b]@h1", "s[b]@h2"]
    assert play.do("s[a]@h2").ready() == ["s[a]@h1", "s[b]@h1", "s[b]@h2", "s[c]@h2"]


def test_a_lock_is_held_by_as_many_as_it_counts_and_by_one_if_it_is_not_declared() -> None:
    play = Play(step("a", "h1 h2 h3", locks=("db",)), step("b", "h1 h2", locks=("own",)), locks={"db": 2})
    assert play.ready() == ["a@h1", "a@h2", "b@h1"]
    assert play.do("b@h1", "a@h2").ready() == ["a@h1", "a@h3", "b@h2"]


def test_a_lock_that_is_named_twice_is_held_once() -> None:
    assert Play(step("a", "h1 h2", locks=("db", "db")), locks={"db": 2}).ready() == ["a@h1", "a@h2"]


def test_what_fits_overtakes_what_does_not_and_nobody_is_forgotten() -> None:
    play = Play(
        step("x", locks=("p",)),
        step("y", "h2", locks=("q",)),
        step("both", "h3", locks=("p", "q")),
        step("p2", "h4", locks=("p",)),
        step("q2", "h5", locks=("q",)),
    )
    play.start("x@h1", "y@h2").end("x@h1")
    assert play.ready() == ["p2@h4"]
    play.start("p2@h4").end("y@h2")
    assert play.ready() == ["q2@h5"]
    play.start("q2@h5").end("p2@h4", "q2@h5")
    assert play.ready() == ["both@h3"]


def test_a_free_slot_goes_to_the_first_in_graph_order_of_all_who_wait() -> None:
    play = Play(step("late", "h1", "early"), step("early"), step("a"), step("b"), host_limit=2)
    play.start("early@h1", "a@h1").end("early@h1")
    assert play.ready() == ["late@h1"]
    assert play.start("late@h1").end("a@h1").ready() == ["b@h1"]


def test_what_was_offered_keeps_its_place() -> None:
    play = Play(step("late", "h1", "before", locks=("db",)), step("before", "h1"), step("a", "h3", locks=("db",)))
    play.start("before@h1")
    assert play.ready() == ["a@h3"]
    play.end("before@h1")
    assert play.ready() == ["a@h3"]


def test_an_action_that_waits_for_its_next_attempt_holds_nothing() -> None:
    play = Play(step("a", locks=("db",), global_limit=1), step("b", locks=("db",)), forks=1, host_limit=1)
    play.start("a@h1")
    play.scheduler.defer(Action("a", "h1"))
    assert play.ready() == ["b@h1"]
    play.scheduler.resume(Action("a", "h1"))
    assert play.ready() == ["b@h1"]
    play.do("b@h1")
    assert play.ready() == ["a@h1"]
    play.run()
    assert play.ends["a@h1"] == "Success"
