"""Undo: in reverse of the order things finished, each exactly once, whatever one of them raises."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.events import ACTION_FINISHED, ACTION_UNDONE, RUN_STOPPING, Event
from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, FailurePolicy, Mode, NodeKind
from kubexm_exec.model.result import Status
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, StepFailed, Undo
from tests.executors.kit import Bench, Ran, graph, node


def _rollback(*nodes: ExecutionNode, **more: Any) -> ExecutionGraph:
    return graph(*nodes, policy=FailurePolicy.ROLLBACK, **more)


def _undone(ran: Ran) -> list[str]:
    return [line for line in ran.book.lines if line.startswith("undo")]


def test_what_was_done_is_undone_backwards_also_the_failed_step_itself() -> None:
    ran = Bench().run(
        _rollback(
            node("a", with_={"undo": "1"}),
            node("b", after=["a"], with_={"undo": "2"}),
            node("c", after=["b"], with_={"undo": "3", "fail": 9}),
            node("d", after=["c"], with_={"undo": "4"}),
        )
    )
    assert _undone(ran) == ["undo m/t/c h1 3", "undo m/t/b h1 2", "undo m/t/a h1 1"]
    assert [ran.host(name).undo for name in "abcd"] == ["undone", "undone", "undone", ""]
    assert ran.result.status is Status.FAILED
    assert ran.of(RUN_STOPPING)[0].data["reason"] == "rollback"
    assert [(event.node, event.data["result"]) for event in ran.of(ACTION_UNDONE)] == [
        ("m/t/c", "undone"),
        ("m/t/b", "undone"),
        ("m/t/a", "undone"),
    ]


def test_order_of_the_undo_is_that_of_finishing_not_of_the_graph() -> None:
    first_is_done = threading.Event()

    class Slow(Step[Params]):
        undo = Undo.REPEATABLE

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            first_is_done.wait(30)
            ctx.save_undo({})
            return Result()

        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            bench.book.write("undo slow")

    def tell(event: Event, runtime: Runtime) -> None:
        if event.kind == ACTION_FINISHED and event.node == "m/t/quick":
            first_is_done.set()

    bench = Bench(steps={"slow": Slow}, on_event=tell)
    ran = bench.run(
        _rollback(
            node("slow", "slow"),
            node("quick", with_={"undo": "q"}),
            node("fails", after=["slow"], with_={"fail": 1}),
            per_host=2,
        )
    )
    assert _undone(ran) == ["undo slow", "undo m/t/quick h1 q"]


def test_undo_that_fails_is_reported_and_does_not_stop_the_others() -> None:
    ran = Bench().run(
        _rollback(
            node("a", with_={"undo": "1"}),
            node("b", after=["a"], with_={"undo": "bad"}),
            node("c", after=["b"], with_={"fail": 1}),
        )
    )
    assert ran.host("a").undo == "undone"
    assert ran.host("b").undo == "undoFailed: cannot be undone today"
    assert ran.of(ACTION_UNDONE)[0].data == {"result": "undoFailed", "message": "cannot be undone today"}


def test_change_that_cannot_be_undone_is_named_and_what_changed_nothing_is_not() -> None:
    ran = Bench().run(
        _rollback(
            node("a"),
            node("b", after=["a"], with_={"changed": False}),
            node("c", after=["b"], with_={"satisfied": True}),
            node("d", after=["c"], with_={"fail": 1}),
        )
    )
    assert ran.result.not_reversible == ["m/t/a on h1"]
    assert [ran.host(name).undo for name in "abcd"] == ["notReversible", "", "", ""]


def test_several_attempts_are_undone_once_and_what_was_there_before_the_first_comes_back() -> None:
    """The second attempt finds what the first one left, which is not what is to come back."""
    state, calls = ["original"], []

    class Twice(Step[Params]):
        undo = Undo.REPEATABLE

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            ctx.save_undo({"before": state[0]})
            state[0] = f"attempt {ctx.attempt}"
            if ctx.attempt == 1:
                raise StepFailed("half done")
            return Result()

        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            calls.append(undo)
            state[0] = undo["before"]

    bench = Bench(steps={"twice": Twice})
    ran = bench.run(_rollback(node("a", "twice", attempts=2), node("b", after=["a"], with_={"fail": 1})))
    assert (state, len(calls)) == (["original"], 1)
    assert len(ran.of(ACTION_UNDONE)) == 1


def test_step_that_was_tried_again_counts_as_finished_when_its_last_attempt_was() -> None:
    ran = Bench(forks=1).run(
        _rollback(
            node("again", with_={"undo": "x", "fail": 1}, attempts=2, delay=0.2),
            node("between", with_={"undo": "y"}),
            node("fails", after=["again"], with_={"fail": 1}),
        )
    )
    undone = ["undo m/t/again h1 x", "undo m/t/between h1 y"]
    assert _undone(ran) == undone


def test_hosts_are_undone_side_by_side_and_a_barrier_holds_on_the_way_back_too() -> None:
    """Both hosts' last steps are undone at once; the first step of either waits for both, as the way there did."""
    both = threading.Barrier(2, timeout=30)
    order: list[str] = []

    class Together(Step[Params]):
        undo = Undo.REPEATABLE

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            ctx.save_undo({})
            return Result()

        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            if ctx.node == "m/t/last":
                both.wait()
            order.append(f"{ctx.node} {ctx.host.name}")

    gate = ExecutionNode(id="gate", kind=NodeKind.GATE, dependencies=(Dependency("m/t/first", Mode.BARRIER),))
    last = replace(node("last", "together", hosts=["h1", "h2"]), dependencies=(Dependency("gate", Mode.BARRIER),))
    ran = Bench(steps={"together": Together}).run(
        _rollback(
            node("first", "together", hosts=["h1", "h2"]),
            gate,
            last,
            node("fails", after=["last"], with_={"fail": 1}),
        )
    )
    assert ran.result.status is Status.FAILED
    assert sorted(order[:2]) == ["m/t/last h1", "m/t/last h2"]
    assert sorted(order[2:]) == ["m/t/first h1", "m/t/first h2"]


def test_nothing_is_undone_without_the_policy_or_without_a_failure() -> None:
    fails = [node("a", with_={"undo": "1"}), node("b", after=["a"], with_={"fail": 1})]
    for policy in (FailurePolicy.CONTINUE, FailurePolicy.FAIL_FAST):
        assert _undone(Bench().run(graph(*fails, policy=policy))) == []
    assert _undone(Bench().run(_rollback(node("a", with_={"undo": "1"})))) == []


def test_content_that_was_kept_comes_back(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"\x00old" * 100_000)

    class Write(Step[Params]):
        undo = Undo.REPEATABLE

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            ctx.save_undo({"token": ctx.keep(target.read_bytes())})
            target.write_bytes(b"new")
            return Result()

        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            target.write_bytes(ctx.kept(undo["token"]))

    Bench(steps={"write": Write}).run(_rollback(node("a", "write"), node("b", after=["a"], with_={"fail": 1})))
    assert target.read_bytes() == b"\x00old" * 100_000


class _Breaks(Step[Params]):
    undo = Undo.REPEATABLE

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        ctx.save_undo({})
        return Result()

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        raise SystemExit(1)


def test_exception_in_an_undo_is_its_own_failure() -> None:
    bench = Bench(steps={"breaks": _Breaks})
    ran = bench.run(
        _rollback(
            node("a", with_={"undo": "1"}),
            node("b", "breaks", after=["a"]),
            node("c", after=["b"], with_={"fail": 1}),
        )
    )
    assert ran.host("b").undo.startswith("undoFailed: SystemExit")
    assert ran.host("a").undo == "undone"


def test_undo_that_never_comes_back_is_left_behind_after_its_timeout() -> None:
    release = threading.Event()

    class Hangs(_Breaks):
        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            release.wait(30)

    bench = Bench(steps={"hangs": Hangs})
    ran = bench.run(
        _rollback(
            node("a", with_={"undo": "1"}),
            node("b", "hangs", after=["a"], timeout=0.1),
            node("c", after=["b"], with_={"fail": 1}),
        )
    )
    release.set()
    assert ran.host("b").undo.startswith("undoFailed: timed out after 0.1s")
    assert ran.host("a").undo == "undone"


@pytest.mark.parametrize("times", [1, 2])
def test_first_interrupt_does_not_end_the_undo_and_the_second_does(times: int) -> None:
    class Slow(_Breaks):
        def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
            for _ in range(times):
                runtimes[0].interrupt()
            ctx.sleep(0.2)
            bench.book.write("undo slow")

    runtimes: list[Runtime] = []

    def remember(event: Event, runtime: Runtime) -> None:
        if not runtimes:
            runtimes.append(runtime)

    bench = Bench(steps={"slow": Slow}, on_event=remember)
    ran = bench.run(
        _rollback(
            node("a", with_={"undo": "1"}),
            node("b", "slow", after=["a"]),
            node("c", after=["b"], with_={"fail": 1}),
        )
    )
    if times == 1:
        assert _undone(ran) == ["undo slow", "undo m/t/a h1 1"]
    else:
        assert _undone(ran) == []
        assert ran.host("b").undo.startswith("undoFailed")
        assert ran.host("a").undo.startswith("undoFailed: the run was ended")


def test_undo_data_must_be_plain() -> None:
    class Odd(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            ctx.save_undo({"what": object()})
            return Result()

    done = Bench(steps={"odd": Odd}).run(_rollback(node("a", "odd"))).host("a")
    assert "save_undo takes plain JSON data" in done.message
