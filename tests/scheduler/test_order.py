from __future__ import annotations

import pytest

from kubexm_exec.model.graph import Dependency, ExecutionFragment, ExecutionNode, Mode
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Action, Outcome, Scheduler
from tests.scheduler.build import Play, gate, graph, step


def test_a_host_goes_on_as_soon_as_the_step_before_is_done_on_that_host() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"))
    assert play.ready() == ["a@h1", "a@h2"]
    play.start("a@h1", "a@h2").end("a@h2")
    assert play.ready() == ["b@h2"]


def test_a_host_that_the_other_node_does_not_run_on_does_not_wait() -> None:
    assert Play(step("a", "h1"), step("b", "h1 h2", "a")).ready() == ["a@h1", "b@h2"]


def test_a_host_edge_limited_to_some_hosts_concerns_only_those() -> None:
    assert Play(step("a", "h1 h2"), step("b", "h1 h2", "a@h2")).ready() == ["a@h1", "a@h2", "b@h1"]


def test_behind_a_gate_nobody_starts_before_all_hosts_are_done() -> None:
    play = Play(step("a", "h1 h2"), gate("g", "a"), step("b", "h1 h2", "g"))
    play.do("a@h1")
    assert play.ready() == ["a@h2"]
    play.do("a@h2")
    assert play.ready() == ["b@h1", "b@h2"]
    assert play.ends["g"] == "Success"


def test_a_gate_waits_for_gates() -> None:
    play = Play(step("a"), gate("g", "a"), gate("end", "g"), step("b", "h1", "end"))
    assert play.ready() == ["a@h1"]
    assert play.do("a@h1").ready() == ["b@h1"]


def test_only_the_named_hosts_wait_for_a_gate_and_only_those_are_waited_for() -> None:
    play = Play(step("a", "h1 h2"), gate("g", "a@h1"), step("b", "h1 h2", "g@h2"))
    assert play.ready() == ["a@h1", "a@h2", "b@h1"]
    play.do("a@h1")
    assert play.ready() == ["a@h2", "b@h1", "b@h2"]


def test_an_action_waits_for_all_its_dependencies() -> None:
    play = Play(step("a"), step("b"), step("c", "h1", "a b"))
    assert play.do("b@h1").ready() == ["a@h1"]
    assert play.do("a@h1").ready() == ["c@h1"]


def test_what_is_ready_is_offered_in_graph_order_then_host_order() -> None:
    play = Play(step("first", "h3 h1"), step("root", "h1 h3"), step("z", "h3 h1", "root"), step("a", "h1", "root"))
    play.do("root@h1", "root@h3")
    assert play.ready() == ["first@h3", "first@h1", "z@h3", "z@h1", "a@h1"]


def test_the_order_of_writing_need_not_be_the_order_of_running() -> None:
    play = Play(step("b", "h1", "g"), gate("g", "a"), step("a"))
    play.run()
    assert play.order == ["a@h1", "b@h1"]


def test_what_is_offered_stays_offered_until_it_is_started() -> None:
    play = Play(step("a"), step("b"), forks=2)
    assert play.ready() == play.ready() == ["a@h1", "b@h1"]
    play.start("b@h1")
    assert play.ready() == ["a@h1"]


def test_a_node_without_hosts_is_skipped_and_host_edges_pass_it_by() -> None:
    play = Play(step("a"), step("none", "", "a"), step("c", "h1", "none"))
    assert play.ready() == ["a@h1", "c@h1"]
    play.run()
    assert play.ends["none"] == "Skipped"
    assert play.status == "Success"


def test_gates_wait_through_a_node_without_hosts() -> None:
    nodes = (step("a"), gate("g", "a"), step("none", "", "g"), gate("end", "none"), step("c", "h1", "end"))
    assert Play(*nodes).ready() == ["a@h1"]
    assert Play(*nodes).run().order == ["a@h1", "c@h1"]
    failed = Play(*nodes).run({"a@h1": "fail"})
    assert failed.of("c@h1", "g", "end") == ["Skipped dependency a", "Failed dependency a", "Skipped dependency a"]


def test_a_graph_without_actions_is_done_at_once() -> None:
    play = Play(step("none", ""), gate("g", "none"))
    assert play.scheduler.done
    assert play.status == "Success"
    assert play.of("none", "g") == ["Skipped", "Success"]


def test_long_chains_of_skips_and_gates_need_no_recursion() -> None:
    nodes = [step("n0")]
    for number in range(1, 5000):
        nodes += [gate(f"g{number}", f"n{number - 1}"), step(f"n{number}", "h1", f"g{number}")]
    nodes += [gate("end0", "n4999"), *(gate(f"end{number}", f"end{number - 1}") for number in range(1, 5000))]
    play = Play(*nodes).run({"n0@h1": "fail"})
    assert play.ends["n4999@h1"] == "Skipped dependency n0"


def test_statuses_and_counts_follow_the_run() -> None:
    play = Play(step("a", "h1 h2"), step("b", "h1 h2", "a"))
    scheduler = play.scheduler
    assert (scheduler.run_status(), scheduler.status("a"), scheduler.status("a", "h1")) == ("Pending",) * 3
    assert (scheduler.pending, scheduler.running, scheduler.deferred, scheduler.done) == (4, 0, 0, False)
    play.start("a@h1", "a@h2")
    assert (scheduler.run_status(), scheduler.status("a"), scheduler.status("a", "h1")) == ("Running",) * 3
    play.end("a@h1")
    scheduler.defer(Action("a", "h2"))
    assert (scheduler.status("a"), scheduler.status("a", "h1"), scheduler.status("a", "h2")) == (
        "Running",
        "Success",
        "Running",
    )
    assert (scheduler.pending, scheduler.running, scheduler.deferred) == (2, 0, 1)
    scheduler.resume(Action("a", "h2"))
    play.run()
    assert (scheduler.run_status(), scheduler.status("a"), scheduler.pending, scheduler.done) == (
        "Success",
        "Success",
        0,
        True,
    )


def test_drain_tells_each_end_once_and_not_the_ends_of_actions_it_was_told() -> None:
    play = Play(step("a"), step("b", "h1", "a"))
    play.start("a@h1")
    play.scheduler.finish(Action("a", "h1"), Outcome(Status.FAILED))
    told = [(one.node, one.host, one.status) for one in play.drain()]
    assert told == [("a", "", "Failed"), ("b", "h1", "Skipped"), ("b", "", "Skipped")]
    assert play.drain() == []


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([step("a", "h1", "b")], "b, which does not exist"),
        ([step("a", "h1", "b"), step("b", "h1", "a")], "in a circle: "),
        ([step("a", "h1", "a")], "in a circle: a -> a"),
        ([step("a", "h1 h2", "g@h1"), gate("g", "a@h1")], "in a circle: "),
        ([step("a", "h1 h1")], "a host twice"),
        ([step("a", global_limit=0)], "limit of a is below 1"),
        ([step("a", max_failures="some")], "neither a number nor a percentage"),
        ([gate("g", budget="x")], "neither a number nor a percentage"),
        (
            [step("a"), ExecutionNode(id="b", hosts=("h1",), dependencies=(Dependency("a", Mode.BARRIER),))],
            "without a gate between",
        ),
    ],
)
def test_a_graph_that_could_never_run_is_refused(nodes: list[ExecutionNode], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scheduler(graph(*nodes))


def test_batches_of_one_node_that_follow_each_other_are_no_circle() -> None:
    play = Play(step("a", "h1 h2 h3", "g2@h2 g3@h3"), gate("g2", "a@h1"), gate("g3", "a@h2"))
    assert play.run().order == ["a@h1", "a@h2", "a@h3"]


def test_forks_and_limits_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="forks is 0"):
        Scheduler(graph(step("a")), forks=0)
    with pytest.raises(ValueError, match="lock db is 0"):
        Scheduler(graph(step("a"), locks={"db": 0}))


def test_calls_out_of_turn_are_refused() -> None:
    play = Play(step("a"), step("b", "h1", "a"))
    scheduler = play.scheduler
    a, b = Action("a", "h1"), Action("b", "h1")
    with pytest.raises(ValueError, match="a on h1 is not offered: it is Pending"):
        scheduler.start(a)
    play.start("a@h1")
    for call in (scheduler.start, scheduler.resume):
        with pytest.raises(ValueError, match="it is Running"):
            call(a)
    with pytest.raises(ValueError, match="b on h1 does not run"):
        scheduler.finish(b, Outcome(Status.SUCCESS))
    with pytest.raises(ValueError, match="b on h1 cannot wait"):
        scheduler.defer(b)
    with pytest.raises(ValueError, match="b on h1 does not run"):
        scheduler.extend(b, ExecutionFragment())
    with pytest.raises(ValueError, match="without a reason"):
        scheduler.finish(a, Outcome(Status.SKIPPED))
    with pytest.raises(ValueError, match="cannot end as Running"):
        scheduler.finish(a, Outcome(Status.RUNNING))
    assert scheduler.running == 1
    play.end("a@h1")
    with pytest.raises(ValueError, match="it is Success"):
        scheduler.finish(a, Outcome(Status.SUCCESS))
    with pytest.raises(ValueError, match="no action c on h9"):
        scheduler.start(Action("c", "h9"))
    with pytest.raises(ValueError, match="no node c"):
        scheduler.status("c")
    play.run()
