"""Handlers with every executor: run after a change, foreseen truthfully, and tried again as any step."""

from __future__ import annotations

import io
from typing import Any

import pytest

from kubexm_exec.engine.notifications import Notification
from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.executors.debug import DebugExecutor
from kubexm_exec.executors.dryrun import DryRunExecutor
from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook
from kubexm_exec.model.result import ForecastState, SkipReason, Status
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext
from tests.executors.kit import Bench, Ran, fragment_compiler, graph, node

RESTART = "m/t/restart"


def conf(name: str = "conf", **with_: Any) -> ExecutionNode:
    return node(name, with_=with_, notifies=(RESTART,))


def restart(*after: str, kind: str = "act", **more: Any) -> ExecutionNode:
    return node("restart", kind, after=after or ("conf",), hook=Hook.HANDLER, handler=RESTART, **more)


def run(*nodes: ExecutionNode, executor: type[Executor] = ConcurrentExecutor, due: list[Notification] | None = None,
        bench: Bench | None = None, **options: Any) -> Ran:  # fmt: skip
    bench = bench or Bench()
    runtime, events, output = bench.runtime(graph(*nodes, **options))
    runtime.pending = due or []
    return Ran(executor().execute(runtime), events, bench.book, runtime, output.getvalue())


def ran_handler(ran: Ran) -> int:
    return ran.book.lines.count(f"run {RESTART} h1")


@pytest.mark.parametrize(
    ("with_", "times"), [({}, 1), ({"changed": False}, 0), ({"satisfied": True}, 0), ({"fail": 1}, 0)]
)
def test_handler_runs_after_a_change_and_only_then(with_: dict[str, Any], times: int) -> None:
    ran = run(conf(**with_), restart())
    assert ran_handler(ran) == times
    if not with_.get("fail"):
        assert ran.result.status is Status.SUCCESS
    if not times and not with_.get("fail"):
        skipped = ran.host("restart")
        assert (skipped.status, skipped.reason, skipped.message) == (
            Status.SKIPPED, SkipReason.CONDITION, "not notified: nothing changed",
        )  # fmt: skip


def test_change_that_took_several_attempts_notifies_once() -> None:
    ran = run(node("conf", with_={"fail": 2}, attempts=3, notifies=(RESTART,)), restart())
    assert ran_handler(ran) == 1


def test_handler_is_tried_again() -> None:
    ran = run(conf(), restart(with_={"fail": 1}, attempts=2))
    assert (ran_handler(ran), ran.host("restart").status, ran.host("restart").attempts) == (2, Status.SUCCESS, 2)


@pytest.mark.parametrize("ignored", [False, True])
def test_failed_step_notifies_nobody_even_if_that_is_ignored(ignored: bool) -> None:
    ran = run(node("conf", with_={"fail": 1}, ignore_errors=ignored, notifies=(RESTART,)), restart())
    assert ran_handler(ran) == 0


def test_rollback_of_the_run_starts_no_handler_and_undoes_the_change() -> None:
    bad = node("bad", after=["conf"], with_={"fail": 1})
    ran = run(conf(undo="old"), bad, restart("bad"), policy=FailurePolicy.ROLLBACK)
    assert ran_handler(ran) == 0
    assert "undo m/t/conf h1 old" in ran.book.lines


def test_handler_that_is_due_from_another_run_says_so() -> None:
    due = [Notification(RESTART, "h1", "m/t/conf", "run-0")]
    ran = run(conf(satisfied=True), restart(), due=due)
    assert ran.host("restart").message == "acted (due since run run-0)"
    due = [Notification(RESTART, "h1", "m/t/conf", "run-1")]
    assert run(conf(satisfied=True), restart(), due=due).host("restart").message == "acted"


@pytest.mark.parametrize(
    ("with_", "times"), [({"satisfied": True}, 1), ({"changed": False}, 1), ({}, 1), ({"fail": 1}, 0)]
)
def test_change_that_another_run_may_have_made_is_settled_by_the_step_itself(with_: dict[str, Any], times: int) -> None:
    """It was interrupted beyond precheck: if all is as it should be now, it had done its work, and nobody restarted."""
    due = [Notification(RESTART, "h1", "m/t/conf", "run-0", sure=False)]
    assert ran_handler(run(conf(**with_), restart(), due=due)) == times


def test_change_that_a_step_may_have_made_which_is_gone_counts() -> None:
    due = [Notification(RESTART, "h1", "m/t/gone", "run-0", sure=False)]
    assert ran_handler(run(conf(satisfied=True), restart(), due=due)) == 1


def test_handler_cannot_return_steps() -> None:
    class Returns(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast:
            return Forecast.change("would return")

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(fragment=[{}])

    bench = Bench(steps={"returns": Returns}, compile_fragment=fragment_compiler(lambda *_: node("restart+x")))
    ran = run(conf(), restart(kind="returns"), bench=bench)
    failed = ran.host("restart")
    assert (failed.status, failed.message) == (
        Status.FAILED, "the returned steps cannot be run: a handler cannot return steps",
    )  # fmt: skip


# What would be done


class _Runs(Step[Params]):
    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.change("would run: it says afterwards whether that changed anything")


def test_check_shows_a_handler_whose_step_would_change_something() -> None:
    ran = run(conf(), restart(), executor=CheckExecutor)
    assert (ran.host("restart").forecast, ran.host("restart").message) == (ForecastState.CHANGE, "would act")
    assert ran_handler(ran) == 0


def test_check_shows_no_handler_whose_steps_would_change_nothing() -> None:
    ran = run(conf(satisfied=True), restart(), executor=CheckExecutor)
    assert (ran.host("restart").reason, ran.host("restart").forecast) == (SkipReason.CONDITION, None)


def test_check_does_not_claim_to_know_what_only_the_run_can_tell() -> None:
    bench = Bench(steps={"runs": _Runs})
    ran = run(node("conf", "runs", notifies=(RESTART,)), restart(), executor=CheckExecutor, bench=bench)
    assert (ran.host("restart").forecast, ran.host("restart").message) == (
        ForecastState.UNKNOWN, "runs only if m/t/conf changes something",
    )  # fmt: skip


def test_check_is_sure_if_one_of_several_steps_would_change_something() -> None:
    bench = Bench(steps={"runs": _Runs})
    first = node("first", "runs", notifies=(RESTART,))
    ran = run(first, conf(), restart("first", "conf"), executor=CheckExecutor, bench=bench)
    assert ran.host("restart").forecast is ForecastState.CHANGE


def test_check_shows_what_is_due_from_another_run() -> None:
    due = [Notification(RESTART, "h1", "m/t/conf", "run-0")]
    ran = run(conf(satisfied=True), restart(), executor=CheckExecutor, due=due)
    assert (ran.host("restart").forecast, ran.host("restart").message) == (
        ForecastState.CHANGE, "would act (due since run run-0)",
    )  # fmt: skip


def test_check_follows_a_handler_to_the_one_that_it_notifies() -> None:
    tell = node("tell", after=["restart"], hook=Hook.HANDLER, handler="m/t/tell")
    ran = run(conf(), restart(notifies=("m/t/tell",)), tell, executor=CheckExecutor)
    assert ran.host("tell").forecast is ForecastState.CHANGE


def test_dry_run_says_on_what_a_handler_depends() -> None:
    ran = run(conf("first"), conf(), restart("first", "conf"), executor=DryRunExecutor)
    assert (ran.host("restart").forecast, ran.host("restart").message) == (
        ForecastState.UNKNOWN, "would run act if m/t/conf, m/t/first changes something",
    )  # fmt: skip


def test_debugger_stops_at_a_handler_that_is_due() -> None:
    bench = Bench(input=io.StringIO("n\nn\n"))
    ran = run(conf(), restart(), executor=DebugExecutor, bench=bench)
    assert "m/t/restart on h1" in ran.output
    assert ran_handler(ran) == 1
    bench = Bench(input=io.StringIO("s\nn\n"))
    ran = run(conf(), restart(), executor=DebugExecutor, bench=bench)
    assert ran_handler(ran) == 0, "what was skipped by hand has changed nothing"
