"""What becomes of one action: conditions, parameters, precheck, run, and everything a step can raise."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.events import (
    ACTION_FINISHED,
    ACTION_RETRY,
    ACTION_STARTED,
    NODE_FINISHED,
    RUN_FINISHED,
    RUN_STARTED,
)
from kubexm_exec.model.graph import Scope
from kubexm_exec.model.result import FailureKind, ForecastState, SkipReason, Status
from kubexm_exec.step import AnyStep, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed
from kubexm_exec.testing import StepTest, snapshot
from tests.executors.kit import Bench, graph, node


def test_action_that_runs_is_success_with_message_changed_and_outputs() -> None:
    ran = Bench().run(graph(node("a", with_={"value": "x"})))
    done = ran.host("a")
    assert (done.status, done.changed, done.message, done.attempts) == (Status.SUCCESS, True, "acted", 1)
    assert done.outputs == {"value": "x", "longName": 7}
    assert done.start_time is not None
    assert done.end_time is not None
    assert done.end_time >= done.start_time
    assert ran.result.status is Status.SUCCESS
    assert ran.book.lines == ["precheck m/t/a h1", "run m/t/a h1"]


def test_events_of_a_run_come_in_order_and_finished_is_the_result_as_json() -> None:
    ran = Bench().run(graph(node("a")))
    assert ran.kinds() == [RUN_STARTED, ACTION_STARTED, ACTION_FINISHED, NODE_FINISHED, RUN_FINISHED]
    assert ran.of(ACTION_FINISHED)[0].data == ran.host("a").to_json()
    assert ran.of(RUN_STARTED)[0].data["actions"] == 1
    assert ran.of(RUN_FINISHED)[0].data["counts"]["changed"] == 1


def test_satisfied_precheck_skips_the_run_and_passes_its_outputs_on() -> None:
    ran = Bench().run(
        graph(
            node("a", with_={"satisfied": True, "value": "kept"}),
            node("b", after=["a"], with_={"value": "{{ steps.a.outputs.value }}!"}),
        )
    )
    done = ran.host("a")
    assert (done.status, done.reason, done.skipped) == (Status.SKIPPED, SkipReason.PRECHECK, True)
    assert done.forecast is ForecastState.SATISFIED
    assert "run m/t/a h1" not in ran.book.lines
    assert ran.host("b").outputs["value"] == "kept!"


def test_false_condition_skips_and_what_waits_still_runs() -> None:
    ran = Bench().run(graph(node("a", when="1 > 2"), node("b", after=["a"])))
    assert (ran.host("a").status, ran.host("a").reason) == (Status.SKIPPED, SkipReason.CONDITION)
    assert not ran.host("a").skipped
    assert "1 > 2" in ran.host("a").message
    assert ran.host("b").status is Status.SUCCESS
    assert not any("m/t/a" in line for line in ran.book.lines)


def test_conditions_around_the_step_hold_too() -> None:
    ran = Bench().run(graph(node("a", guards=(("s", "host.name == 'h2'"),), hosts=["h1", "h2"])))
    assert ran.host("a", "h1").reason is SkipReason.CONDITION
    assert ran.host("a", "h2").status is Status.SUCCESS


def test_parameters_are_rendered_for_each_host() -> None:
    ran = Bench().run(graph(node("a", hosts=["h1", "h2"], with_={"value": "on {{ host.name }}"})))
    assert [ran.host("a", host).outputs["value"] for host in ("h1", "h2")] == ["on h1", "on h2"]


def test_outputs_of_the_spec_are_added_to_those_of_the_step() -> None:
    ran = Bench().run(graph(node("a", with_={"value": "x"}, outputs={"twice": "{{ result.value * 2 }}"})))
    assert ran.host("a").outputs == {"value": "x", "longName": 7, "twice": "xx"}


def test_wrong_parameter_at_run_time_is_a_failure_that_names_it() -> None:
    scope = Scope("s", vars={"count": "many"})
    ran = Bench().run(graph(node("a", with_={"fail": "{{ vars.count }}"}), scope=scope))
    done = ran.host("a")
    assert (done.status, done.kind) == (Status.FAILED, FailureKind.ERRORED)
    assert "parameter fail" in done.message
    assert "'many'" in done.message
    assert done.traceback == ""


def test_expression_that_cannot_be_evaluated_is_a_failure_and_is_not_tried_again() -> None:
    ran = Bench().run(graph(node("a", with_={"value": "{{ vars.nothing }}"}, attempts=3)))
    done = ran.host("a")
    assert (done.status, done.kind, done.attempts) == (Status.FAILED, FailureKind.ERRORED, 1)
    assert "nothing" in done.message


def test_step_type_that_is_not_installed_is_the_actions_failure() -> None:
    ran = Bench().run(graph(node("a", "nowhere"), node("b")))
    assert "nowhere" in ran.host("a").message
    assert ran.host("b").status is Status.SUCCESS


class _Raises(Step[Params]):
    error: BaseException = RuntimeError("boom")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        raise self.error


def _raising(raised: BaseException) -> type[AnyStep]:
    return type("Raises", (_Raises,), {"error": raised})


@pytest.mark.parametrize("raised", [RuntimeError("boom"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_anything_a_step_raises_is_its_own_failure_with_the_traceback(raised: BaseException) -> None:
    bench = Bench(steps={"raises": _raising(raised)})
    ran = bench.run(graph(node("a", "raises"), node("b")))
    done = ran.host("a")
    assert (done.status, done.kind) == (Status.FAILED, FailureKind.ERRORED)
    assert type(raised).__name__ in done.message
    assert "Traceback" in done.traceback
    assert "in run" in done.traceback
    assert ran.host("b").status is Status.SUCCESS
    assert ran.result.status is Status.FAILED


def test_connection_that_fails_is_unreachable() -> None:
    ran = Bench(steps={"raises": _raising(ConnectorError("no route"))}).run(graph(node("a", "raises")))
    assert (ran.host("a").kind, ran.host("a").message) == (FailureKind.UNREACHABLE, "no route")


def test_failure_carries_all_that_the_step_said() -> None:
    said = StepFailed("no", command="ls /x", exit_code=2, stdout="o" * 100_000, stderr="e", hint="try /y")
    done = Bench(steps={"raises": _raising(said)}).run(graph(node("a", "raises"))).host("a")
    assert (done.kind, done.message, done.command, done.exit_code) == (FailureKind.FAILED, "no", "ls /x", 2)
    assert (len(done.stdout), done.stderr, done.hint) == (64 << 10, "e", "try /y")


def test_ignored_failure_is_recorded_and_stops_nothing() -> None:
    ran = Bench().run(graph(node("a", with_={"fail": 9}, ignore_errors=True), node("b", after=["a"])))
    assert (ran.host("a").status, ran.host("a").ignored) == (Status.FAILED, True)
    assert ran.host("b").status is Status.SUCCESS
    assert ran.result.status is Status.SUCCESS


class _WrongTypes(Step[Params]):
    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        return None  # type: ignore[return-value]


class _WrongForecast(Step[Params]):
    def precheck(self, ctx: StepContext) -> Forecast:
        return True  # type: ignore[return-value]


class _Undeclared(Step[Params]):
    outputs_model = Outputs

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        return Result(outputs={"surprise": 1})


@pytest.mark.parametrize(
    ("kind", "words"),
    [(_WrongTypes, "must return a Result"), (_WrongForecast, "must return a Forecast"), (_Undeclared, "surprise")],
)
def test_mistake_of_a_steps_author_is_said_clearly(kind: type[AnyStep], words: str) -> None:
    done = Bench(steps={"wrong": kind}).run(graph(node("a", "wrong"))).host("a")
    assert done.kind is FailureKind.ERRORED
    assert words in done.message


def test_step_that_fails_twice_succeeds_at_the_third_attempt_and_prechecks_each_time() -> None:
    ran = Bench().run(graph(node("a", with_={"fail": 2}, attempts=5)))
    done = ran.host("a")
    assert (done.status, done.attempts) == (Status.SUCCESS, 3)
    assert ran.book.lines == ["precheck m/t/a h1", "run m/t/a h1"] * 3
    retries = ran.of(ACTION_RETRY)
    assert [(event.data["attempt"], event.data["attempts"], event.data["kind"]) for event in retries] == [
        (1, 5, "failed"),
        (2, 5, "failed"),
    ]
    assert [event.data["attempt"] for event in ran.of(ACTION_STARTED)] == [1, 2, 3]
    assert len(ran.of(ACTION_FINISHED)) == 1


def test_attempts_are_used_up_then_the_last_failure_stands() -> None:
    done = Bench().run(graph(node("a", with_={"fail": 9}, attempts=3))).host("a")
    assert (done.status, done.attempts, done.message, done.hint) == (Status.FAILED, 3, "no, said h1", "ask again")


@pytest.mark.parametrize(
    ("kind", "chosen", "attempts"),
    [
        (FailureKind.FAILED, ("failed",), 2),
        (FailureKind.FAILED, ("timedOut",), 1),
        (FailureKind.UNREACHABLE, ("unreachable",), 2),
        (FailureKind.ERRORED, ("failed", "timedOut", "unreachable"), 1),
        (FailureKind.ERRORED, ("errored",), 2),
    ],
)
def test_only_the_chosen_kinds_of_failure_are_tried_again(
    kind: FailureKind, chosen: tuple[str, ...], attempts: int
) -> None:
    done = Bench().run(graph(node("a", with_={"fail": 9, "kind": kind}, attempts=2, retry_on=chosen))).host("a")
    assert done.attempts == attempts


def test_precheck_that_becomes_satisfied_between_attempts_ends_the_retry() -> None:
    tried: list[int] = []

    class Heals(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast:
            return Forecast.satisfied("healed") if tried else Forecast.change()

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            tried.append(ctx.attempt)
            raise StepFailed("half done")

    done = Bench(steps={"heals": Heals}).run(graph(node("a", "heals", attempts=3))).host("a")
    assert (done.status, done.reason, done.attempts) == (Status.SKIPPED, SkipReason.PRECHECK, 2)
    assert tried == [1]


class _Sleeps(Step[Params]):
    """Waits as a step should: by its context."""

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        ctx.sleep(60)
        return Result()


def test_timeout_ends_the_attempt_with_its_own_kind_and_each_attempt_has_all_of_it() -> None:
    left: list[float | None] = []

    class Watches(_Sleeps):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            left.append(ctx.time_left())
            return super().run(ctx, forecast)

    done = Bench(steps={"sleeps": Watches}).run(graph(node("a", "sleeps", timeout=0.2, attempts=2))).host("a")
    assert (done.status, done.kind, done.attempts) == (Status.FAILED, FailureKind.TIMED_OUT, 2)
    assert done.message == "timed out after 0.2s"
    assert all(each is not None and 0.1 < each <= 0.2 for each in left)


def test_timeout_covers_the_precheck_too() -> None:
    class SlowLook(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast:
            ctx.sleep(60)
            return Forecast.change()

    done = Bench(steps={"slow": SlowLook}).run(graph(node("a", "slow", timeout=0.1))).host("a")
    assert done.kind is FailureKind.TIMED_OUT


def test_step_that_comes_back_too_late_is_timed_out_although_it_succeeded() -> None:
    class Late(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            left = ctx.time_left()
            assert left is not None
            time.sleep(left + 0.01)
            return Result()

    done = Bench(steps={"late": Late}, grace=30).run(graph(node("a", "late", timeout=0.05))).host("a")
    assert done.kind is FailureKind.TIMED_OUT


def test_step_that_wraps_the_timeout_in_its_own_failure_is_still_timed_out() -> None:
    class Wraps(_Sleeps):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            try:
                return super().run(ctx, forecast)
            except Exception as error:
                raise StepFailed("waiting went wrong", stderr="details") from error

    done = Bench(steps={"wraps": Wraps}).run(graph(node("a", "wraps", timeout=0.1))).host("a")
    assert done.kind is FailureKind.TIMED_OUT
    assert done.message == "timed out after 0.1s: waiting went wrong"
    assert done.stderr == "details"


def test_hosts_share_checked_parameters_but_not_the_step_object() -> None:
    seen: list[tuple[int, int]] = []
    kept: list[object] = []

    class Look(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            kept.extend((self, self.params))
            seen.append((id(self), id(self.params)))
            return Result()

    Bench(steps={"look": Look}).run(graph(node("a", "look", hosts=["h1", "h2", "h3"])))
    assert len({step for step, _ in seen}) == 3


def test_diffs_of_what_was_changed_are_in_the_result() -> None:
    done = Bench().run(graph(node("a"))).host("a")
    assert done.diffs == [{"path": "/a", "text": "@@ -1 +1 @@\n-old\n+new", "note": ""}]


def test_run_gets_what_precheck_has_seen_in_the_same_attempt_and_a_retry_looks_again() -> None:
    looks: list[int] = []
    given: list[int] = []

    class Looks(Step[Params, int]):
        def precheck(self, ctx: StepContext) -> Forecast[int]:
            looks.append(ctx.attempt)
            return Forecast.change(seen=len(looks))

        def run(self, ctx: StepContext, forecast: Forecast[int]) -> Result:
            given.append(forecast.seen)
            if len(given) == 1:
                raise StepFailed("not yet")
            return Result()

    done = Bench(steps={"looks": Looks}).run(graph(node("a", "looks", attempts=2))).host("a")
    assert done.status is Status.SUCCESS
    assert (looks, given) == ([1, 2], [1, 2])


class _Given(Outputs):
    count: int = 0


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Result(outputs={"count": "abc"}), "Gives returned the output 'count', which is not as _Given declares it"),
        (Result(message=5), "Gives.run: the message must be text, not 5"),  # type: ignore[arg-type]
        (None, "Gives.run must return a Result, not NoneType"),
    ],
)
def test_what_run_returns_is_checked_the_same_way_by_the_engine_and_by_the_kit(
    result: Result, said: str, tmp_path: Path
) -> None:
    class Gives(Step[Params]):
        outputs_model = _Given

        def run(self, ctx: StepContext, forecast: Forecast[Any]) -> Result:
            return result

    done = Bench(steps={"gives": Gives}).run(graph(node("a", "gives"))).host("a")
    assert done.status is Status.FAILED
    assert said in done.message
    with StepTest(tmp_path, Gives, {}) as kit, pytest.raises(TypeError, match=re.escape(said)):
        kit.run()


@pytest.mark.parametrize(
    "change",
    [
        lambda runner, path: runner.write(path, "x"),
        lambda runner, path: runner.mkdir(path),
        lambda runner, path: runner.symlink("/", path),
        lambda runner, path: runner.chmod(str(Path(path).parent), 0o700),
        lambda runner, path: runner.remove(path),
        lambda runner, path: runner.send(Path(__file__), path),
    ],
)
def test_precheck_that_would_change_something_is_stopped(change: Callable[[Any, str], Any], tmp_path: Path) -> None:
    path = tmp_path / "made"

    class Writes(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast[Any]:
            change(ctx.runner, str(path))
            return Forecast.change("it would")

        def run(self, ctx: StepContext, forecast: Forecast[Any]) -> Result:
            return Result()

    with StepTest(tmp_path, Writes, {}) as kit:
        before = snapshot(tmp_path, exact=True)
        with pytest.raises(TypeError, match=r"precheck would .*, and must change nothing: do it in `run`"):
            kit.forecast()
        assert snapshot(tmp_path, exact=True) == before
