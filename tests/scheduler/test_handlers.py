"""Handlers: due after a change, served by success alone, once for each host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kubexm_exec.scheduler import Action, Scheduler
from tests.scheduler.build import OUTCOMES, Play, graph, step
from tests.scheduler.duet import Duet
from tests.scheduler.graphs import decisions, make_case


def restart(hosts: str = "h1", due: Sequence[tuple[str, str, str]] = ()) -> Play:
    nodes = step("conf", hosts, notifies="restart"), step("restart", hosts, "conf", handler="restart")
    return Play(*nodes, due=due)


def test_handler_runs_on_hosts_where_something_changed() -> None:
    play = restart(hosts="h1 h2")
    play.do("conf@h1", outcome="change").do("conf@h2")
    assert play.ready() == ["restart@h1"]
    play.run()
    assert play.of("restart@h1", "restart@h2") == ["Success", "Skipped condition"]
    assert play.messages["restart@h2"] == "not notified: nothing changed"
    assert play.status == "Success"


def test_handler_that_was_not_needed_keeps_nothing_from_running() -> None:
    play = Play(
        step("conf", notifies="restart"),
        step("restart", after="conf", handler="restart"),
        step("next", after="restart"),
    )
    play.run()
    assert play.of("restart@h1", "next@h1") == ["Skipped condition", "Success"]


def test_failed_host_is_not_restarted() -> None:
    play = Play(
        step("conf", notifies="restart"), step("check", after="conf"), step("restart", after="check", handler="restart")
    )
    play.run({"conf@h1": "change", "check@h1": "fail"})
    assert play.of("restart@h1") == ["Skipped dependency check"]


def test_flush_serves_what_is_due_and_later_changes_are_served_at_the_end() -> None:
    nodes = (
        step("conf", "h1 h2", notifies="restart"),
        step("flush", "h1 h2", "conf", handler="restart"),
        step("more", "h1 h2", "flush", notifies="restart"),
        step("restart", "h1 h2", "more", handler="restart"),
    )
    play = Play(*nodes)
    play.run({"conf@h1": "change", "more@h2": "change"})
    assert play.of("flush@h1", "restart@h1") == ["Success", "Skipped condition"]
    assert play.of("flush@h2", "restart@h2") == ["Skipped condition", "Success"]


def test_handler_notifies_a_later_one() -> None:
    play = Play(
        step("conf", notifies="restart"),
        step("restart", after="conf", handler="restart", notifies="check"),
        step("check", after="restart", handler="check"),
    )
    play.run({"conf@h1": "change", "restart@h1": "change"})
    assert play.of("restart@h1", "check@h1") == ["Success", "Success"]


def test_satisfied_handler_has_served() -> None:
    play = Play(
        step("conf", notifies="restart"),
        step("flush", after="conf", handler="restart"),
        step("restart", after="flush", handler="restart"),
    )
    play.run({"conf@h1": "change", "flush@h1": "satisfied"})
    assert play.of("restart@h1") == ["Skipped condition"]


def test_ignored_failure_and_a_condition_leave_it_due() -> None:
    for outcome in ("fail", "when"):
        play = Play(
            step("conf", notifies="restart"),
            step("flush", after="conf", handler="restart", ignore=True),
            step("restart", after="flush", handler="restart"),
        )
        play.run({"conf@h1": "change", "flush@h1": outcome})
        assert play.of("restart@h1") == ["Success"]


def test_what_is_due_from_before_runs_although_nothing_changes() -> None:
    play = restart(
        hosts="h1 h2", due=[("restart", "h2", "gone"), ("restart", "elsewhere", "conf"), ("lost", "h1", "x")]
    )
    play.run()
    assert play.of("restart@h1", "restart@h2") == ["Skipped condition", "Success"]


def test_change_while_the_handler_runs_is_not_served_by_it() -> None:
    """Two tasks at the same time: the second changes something after the restart has begun."""
    play = Play(
        step("conf", notifies="restart"),
        step("flush", after="conf", handler="restart"),
        step("other", notifies="restart"),
        step("restart", after="flush other", handler="restart"),
    )
    play.do("conf@h1", outcome="change").start("other@h1", "flush@h1")
    assert play.scheduler.serving(Action("flush", "h1")) == ("conf",)
    play.end("other@h1", outcome="change").end("flush@h1").run()
    assert play.of("flush@h1", "restart@h1") == ["Success", "Success"]


def test_change_while_the_handler_waits_for_its_turn_is_served_by_it() -> None:
    play = Play(
        step("conf", notifies="restart"),
        step("flush", after="conf", handler="restart"),
        step("other", notifies="restart"),
        step("restart", after="flush other", handler="restart"),
    )
    play.start("other@h1").do("conf@h1", outcome="change").end("other@h1", outcome="change").start("flush@h1")
    assert play.scheduler.serving(Action("flush", "h1")) == ("conf", "other")
    play.end("flush@h1").run()
    assert play.of("restart@h1") == ["Skipped condition"]


def test_two_flushes_at_the_same_time_serve_it_once() -> None:
    play = Play(
        step("conf", notifies="restart"),
        step("one", after="conf", handler="restart"),
        step("two", after="conf", handler="restart"),
        step("restart", after="one two", handler="restart"),
    )
    play.run({"conf@h1": "change"})
    assert Counter(play.of("one@h1", "two@h1", "restart@h1")) == {"Success": 1, "Skipped condition": 2}


def test_handler_is_tried_again_and_still_serves() -> None:
    play = restart()
    play.do("conf@h1", outcome="change").start("restart@h1")
    play.scheduler.defer(Action("restart", "h1"))
    play.scheduler.resume(Action("restart", "h1"))
    play.start("restart@h1")
    assert play.scheduler.serving(Action("restart", "h1")) == ("conf",)
    play.end("restart@h1").run()
    assert play.of("restart@h1") == ["Success"]


def test_stopped_run_starts_no_handler() -> None:
    for reason in ("failFast", "rollback", "cancel"):
        play = restart()
        play.do("conf@h1", outcome="change").stop(reason)
        assert play.of("restart@h1") == ["Cancelled"]


@settings(max_examples=6 * settings().max_examples)
@given(data=decisions, seed=st.integers(0, 2**16))
def test_each_notification_is_served_by_one_success_or_stays_due(data: bytes, seed: int) -> None:
    """A ledger of its own: what was notified, without what successes served, is what stays due."""
    case = make_case(data, policies=True)
    duet, dice = Duet(case), Random(seed)
    nodes = duet.model.nodes
    hosts = {name: set(node.may_run_on) for name, node in nodes.items() if node.handler == name}
    made = {one for one in case.due if one[1] in hosts.get(one[0], ())}
    late = {act: [(name, act.host, source) for name, source in more] for act, more in case.late}
    # Those of a handler that stands there itself are due when it is asked, perhaps the moment before it is stopped.
    own = {one for act, more in late.items() for one in more if act.node in nodes and one[0] == nodes[act.node].handler}

    def note_late() -> None:
        """Notifications that were due where an action stands: it has ended."""
        for act in [act for act in late if act not in duet.model.late]:
            made.update(one for one in late.pop(act) if one not in own and one[1] in hosts.get(one[0], ()))

    while not duet.scheduler.done:
        note_late()
        for action in duet.ready():
            duet.start(action)
        action = dice.choice(duet.running)
        if action.host and dice.random() < 0.1:
            duet.defer(action)
            duet.resume(action)
            continue
        outcome = dice.choice(["ok", "change", "change", "fail", "satisfied"]) if action.host else "ok"
        served = duet.scheduler.serving(action) if action.host else ()
        node = nodes[action.node]
        duet.finish(action, outcome)
        assert not node.handler or served, "a handler that is not due runs"
        if node.handler and outcome in ("ok", "change", "satisfied"):
            for source in served:
                one = (node.handler, action.host, source)
                assert one in made or one in own, "each is there: it is served once"
                made.discard(one)
        if OUTCOMES[outcome].notifies:
            made |= {(name, action.host, node.id) for name in node.notifies if action.host in hosts[name]}
    pending = {
        (handler, host, source) for (handler, host), several in duet.model.notified.items() for source in several
    }
    pending |= {
        (nodes[name].handler, host, source)
        for (name, host), several in duet.model.serving.items()
        for source in several
    }
    note_late()
    assert made <= pending <= made | own
    if not duet.scheduler.stopped:
        for handler, host, _ in made:
            end = duet.model.ends[handler, host]
            assert end.what != "Success", "it has run well, and is due all the same"


def test_what_is_due_late_is_served_behind_the_action_that_stands_for_it_though_that_is_not_done_again() -> None:
    made = graph(
        step("early", handler="restart"),
        step("reload", after="early", handler="reload", notifies="restart"),
        step("restart", after="reload", handler="restart"),
    )
    scheduler = Scheduler(made, late={Action("reload", "h1"): [("restart", "reload")]})
    assert scheduler.ready() == [Action("restart", "h1")]
    scheduler.start(Action("restart", "h1"))
    assert scheduler.serving(Action("restart", "h1")) == ("reload",)


def test_handler_that_is_due_at_its_own_place_is_not_served_before() -> None:
    made = graph(step("early", handler="restart"), step("restart", after="early", handler="restart"))
    scheduler = Scheduler(made, late={Action("restart", "h1"): [("restart", "restart")]})
    assert scheduler.ready() == [Action("restart", "h1")]
    scheduler.start(Action("restart", "h1"))
    scheduler.finish(Action("restart", "h1"), OUTCOMES["ok"])
    assert scheduler.done
