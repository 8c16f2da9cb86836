"""`failedWhen` and `retry.until`: what the spec says of a step's result decides, with every executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.executors.dryrun import DryRunExecutor
from kubexm_exec.model.events import ACTION_RETRY
from kubexm_exec.model.graph import ExecutionNode, FailurePolicy
from kubexm_exec.model.result import FailureKind, ForecastState, HostResult, SkipReason, Status
from kubexm_exec.step import Forecast, Outputs, Params, Result, Step, StepContext
from kubexm_steps.command import CommandStep
from tests.executors.kit import Bench, Ran, graph, node


def until(of: ExecutionNode, condition: str) -> ExecutionNode:
    retry = replace(of.policy.retry, until=condition)
    return replace(of, policy=replace(of.policy, retry=retry))


def shell(line: str, *conditions: str, name: str = "a", attempts: int = 1, **with_: Any) -> ExecutionNode:
    return node(name, "command", with_={"shell": line, **with_}, failed_when=conditions, attempts=attempts)


class _Nothing(Params):
    pass


class _Found(Outputs):
    number: int


class Counts(Step[_Nothing]):
    """Only asks, and finds one more each time."""

    outputs_model = _Found
    asked = 0

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.reads()

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        type(self).asked += 1
        return Result(changed=False, outputs={"number": type(self).asked})


def run(*nodes: ExecutionNode, executor: type[Executor] = ConcurrentExecutor, **options: Any) -> Ran:
    bench = Bench()
    bench.steps |= {"command": CommandStep, "counts": type("Counts", (Counts,), {})}
    return bench.run(graph(*nodes, **options), executor)


def outcome(result: HostResult) -> tuple[Status, FailureKind | None, str]:
    return result.status, result.kind, result.message


def test_work_that_was_done_has_failed_if_the_condition_holds() -> None:
    ran = run(node("a", with_={"value": "bad"}, failed_when=("result.value == 'bad'",)), node("b", after=["a"]))
    said = "`failedWhen` holds: result.value == 'bad' (value is 'bad')"
    assert outcome(ran.host("a")) == (Status.FAILED, FailureKind.FAILED, said)
    assert ran.host("a").outputs == {"value": "bad", "longName": 7}
    assert ran.host("b").reason is SkipReason.DEPENDENCY
    assert ran.result.status is Status.FAILED


def test_all_conditions_of_a_list_must_hold() -> None:
    both = ("result.value == 'bad'", "result.longName > 8")
    assert run(node("a", with_={"value": "bad"}, failed_when=both)).host("a").status is Status.SUCCESS
    both = ("result.value == 'bad'", "result.longName > 6")
    done = run(node("a", with_={"value": "bad"}, failed_when=both)).host("a")
    assert done.message == (
        "`failedWhen` holds: result.value == 'bad' and result.longName > 6 (value is 'bad', longName is 7)"
    )


def test_what_is_so_already_is_judged_as_what_was_done() -> None:
    done = run(node("a", with_={"value": "bad", "satisfied": True}, failed_when=("result.value == 'bad'",))).host("a")
    assert done.status is Status.FAILED


@pytest.mark.parametrize(
    ("line", "condition", "status"),
    [
        ("exit 3", "result.exitCode not in [0, 3]", Status.SUCCESS),
        ("exit 4", "result.exitCode not in [0, 3]", Status.FAILED),
        ("echo FATAL", "'FATAL' in result.stdout", Status.FAILED),
    ],
)
def test_exit_code_of_a_command_is_left_to_the_condition(line: str, condition: str, status: Status) -> None:
    done = run(shell(line, condition)).host("a")
    assert done.status is status
    assert done.exit_code == done.outputs["exitCode"]
    assert done.command


def test_guard_that_spares_a_command_leaves_nothing_to_judge() -> None:
    done = run(shell("exit 1", "result.exitCode != 0", creates="/")).host("a")
    assert (done.status, done.reason) == (Status.SKIPPED, SkipReason.PRECHECK)


def test_failure_by_a_condition_is_retried_ignored_and_undone_as_any_other() -> None:
    ran = run(node("a", "counts", attempts=3, failed_when=("result.number < 2",)))
    assert (ran.host("a").status, ran.host("a").attempts) == (Status.SUCCESS, 2)
    ran = run(node("a", failed_when=("true",), ignore_errors=True), node("b", after=["a"]))
    assert (ran.host("a").ignored, ran.host("b").status) == (True, Status.SUCCESS)
    ran = run(node("a", with_={"undo": "x"}, failed_when=("true",)), policy=FailurePolicy.ROLLBACK)
    assert "undo m/t/a h1 x" in ran.book.lines


def test_condition_that_cannot_be_evaluated_is_an_error_of_the_action() -> None:
    done = run(node("a", failed_when=("result.value + 1 == 2",))).host("a")
    assert (done.status, done.kind) == (Status.FAILED, FailureKind.ERRORED)


def test_attempts_are_repeated_until_it_holds_whatever_kinds_are_retried() -> None:
    ran = run(until(node("a", "counts", attempts=5, retry_on=("unreachable",)), "result.number >= 3"))
    assert (ran.host("a").status, ran.host("a").attempts, ran.host("a").outputs) == (Status.SUCCESS, 3, {"number": 3})
    said = [event.data["message"] for event in ran.of(ACTION_RETRY)]
    assert said == [f"`until` does not hold: result.number >= 3 (number is {number})" for number in (1, 2)]


def test_attempts_that_are_used_up_are_a_failure_with_what_was_last_seen() -> None:
    ran = run(until(node("a", "counts", attempts=2), "result.number > 9"))
    said = "`until` does not hold: result.number > 9 (number is 2)"
    assert outcome(ran.host("a")) == (Status.FAILED, FailureKind.FAILED, said)
    assert ran.host("a").attempts == 2


def test_failed_attempt_of_which_it_holds_is_not_repeated() -> None:
    ran = run(until(shell("echo no; exit 2", attempts=5), "result.exitCode == 2"))
    assert (ran.host("a").status, ran.host("a").attempts) == (Status.FAILED, 1)
    ran = run(until(shell("exit 1", attempts=2), "result.exitCode == 2"))
    assert (ran.host("a").status, ran.host("a").attempts) == (Status.FAILED, 2)


def test_check_judges_what_it_asks_and_leaves_the_rest_open() -> None:
    ran = run(
        node("asked", "counts", failed_when=("result.number == 1",)),
        until(node("waits", "counts", attempts=9), "result.number == 9"),
        node("acts", failed_when=("true",)),
        executor=CheckExecutor,
    )
    assert outcome(ran.host("asked"))[:2] == (Status.FAILED, FailureKind.FAILED)
    assert ran.host("waits").forecast is ForecastState.UNKNOWN
    assert ran.host("waits").message == "`until` does not hold: result.number == 9 (number is 2)"
    assert (ran.host("acts").status, ran.host("acts").forecast) == (Status.SUCCESS, ForecastState.CHANGE)


def test_dry_run_asks_nobody_and_judges_nothing() -> None:
    ran = run(node("a", "counts", failed_when=("true",)), executor=DryRunExecutor)
    assert ran.host("a").status is Status.SUCCESS


def test_values_of_a_sensitive_step_are_not_in_the_message() -> None:
    done = run(node("a", with_={"value": "hunter2-hunter2"}, failed_when=("result.value != ''",), sensitive=True))
    assert done.host("a").message == "`failedWhen` holds: result.value != ''"


SECOND = "test -e {0} || {{ touch {0}; echo made; exit {1}; }}"


@pytest.mark.parametrize(
    ("code", "condition", "changed_when", "changed"),
    [
        (0, "result.stdout == ''", "'made' in stdout", True),
        (0, "result.stdout == ''", "'other' in stdout", False),
        (3, None, "'made' in stdout", True),
        (3, None, "'other' in stdout", False),
        (3, None, False, False),
        # It does not say, and so it may have.
        (3, None, "exitCode == 0 and 'made' in stdout.nothing", True),
    ],
)
def test_change_of_an_attempt_that_is_repeated_counts(
    tmp_path: Path, code: int, condition: str | None, changed_when: str | bool, *, changed: bool
) -> None:
    line = SECOND.format(tmp_path / "made", code)
    of = shell(line, attempts=2, changedWhen=changed_when)
    done = run(of if condition is None else until(of, condition)).host("a")
    if "nothing" in str(changed_when):
        assert (done.status, done.attempts) == (Status.FAILED, 2)
    else:
        assert (done.status, done.attempts, done.changed) == (Status.SUCCESS, 2, changed)
