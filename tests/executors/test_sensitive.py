"""Secrets and sensitive steps: their values reach the steps that need them, and nobody else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.executors.dryrun import DryRunExecutor
from kubexm_exec.model.graph import FailurePolicy, Scope
from kubexm_exec.model.result import Status
from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed, Undo
from tests.executors.kit import Bench, Ran, graph, node

SECRET = "hunter2-correct-horse"


class TalkParams(Params):
    text: str
    fail: bool = False
    split: bool = False


class TalkOutputs(Outputs):
    text: str = ""


class Talk(Step[TalkParams]):
    """Tells its text in every way there is."""

    outputs_model = TalkOutputs
    undo = Undo.REPEATABLE

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.change(f"would say {self.params.text}", [Diff("/x", None, self.params.text)])

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        text = self.params.text
        ctx.progress(f"saying {text}")
        ctx.save_undo({"text": text})
        script = (
            'printf %s "${1%????}"; sleep 0.2; printf "%s\\n" "${1#"${1%????}"}"' if self.params.split else 'echo "$1"'
        )
        said = ctx.runner.run(Command(argv=("sh", "-c", script, "kx", text)))
        if self.params.fail:
            raise StepFailed(f"will not say {text}", command=f"echo {text}", stdout=said.out, hint=f"say {text}")
        return Result(
            message=f"said {text}", outputs={"text": text}, stdout=said.out, stderr=text, command=f"echo {text}"
        )

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        raise StepFailed(f"cannot take back {undo['text']}")


def _everything(ran: Ran) -> str:
    return json.dumps(
        [ran.runtime.redactor.mask(ran.result.to_json()), [event.to_json() for event in ran.events]], default=str
    )


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KX_TEST_SECRET", SECRET)


@pytest.mark.parametrize("executor", [ConcurrentExecutor, CheckExecutor, DryRunExecutor])
@pytest.mark.parametrize("more", [{}, {"fail": True}, {"split": True}])
def test_secret_value_is_masked_in_events_and_result(executor: type[Executor], more: Mapping[str, Any]) -> None:
    with_ = {"text": "{{ secret('env:KX_TEST_SECRET') }}", **more}
    bench = Bench(steps={"talk": Talk})
    ran = bench.run(graph(node("a", "talk", with_=with_), policy=FailurePolicy.ROLLBACK), executor)
    told = _everything(ran)
    assert SECRET not in told
    assert SECRET[:-4] not in told
    assert ("***" in told) is (executor is not DryRunExecutor)  # which looks no secret up
    assert SECRET not in str(ran.result)


def test_output_that_holds_a_secret_is_masked_for_people_and_real_for_later_steps() -> None:
    bench = Bench(steps={"talk": Talk})
    with_ = {"text": "{{ secret('env:KX_TEST_SECRET') }}"}
    ran = bench.run(
        graph(
            node("a", "talk", with_=with_),
            node("b", after=["a"], with_={"value": "{{ steps.a.outputs.text | length }}"}),
        )
    )
    assert ran.host("a").outputs == {"text": "***"}
    assert ran.host("b").status is Status.FAILED  # an int, not a text: the real value was seen
    assert str(len(SECRET)) in ran.host("b").message


@pytest.mark.parametrize("executor", [ConcurrentExecutor, CheckExecutor, DryRunExecutor])
@pytest.mark.parametrize("fail", [False, True])
def test_sensitive_step_shows_neither_parameters_nor_output_nor_diff(executor: type[Executor], fail: bool) -> None:
    scope = Scope("s", vars={"made": "a-value-nobody-knows"})
    with_ = {"text": "{{ vars.made }}", "fail": fail}
    bench = Bench(steps={"talk": Talk})
    of = graph(node("a", "talk", with_=with_, sensitive=True), scope=scope, policy=FailurePolicy.ROLLBACK)
    ran = bench.run(of, executor)
    assert "a-value-nobody-knows" not in _everything(ran)
    if executor is ConcurrentExecutor:
        done = ran.host("a")
        assert done.stdout == done.command == "(sensitive)"
        if not fail:
            assert done.outputs == {"text": "(sensitive)"}
            assert done.diffs == [{"path": "/x", "text": "", "note": "(sensitive)"}]


def test_outputs_of_a_sensitive_step_can_still_be_used() -> None:
    bench = Bench(steps={"talk": Talk})
    ran = bench.run(
        graph(
            node("a", "talk", with_={"text": "a-value"}, sensitive=True),
            node("b", after=["a"], with_={"value": "{{ steps.a.outputs.text }}"}),
        )
    )
    assert ran.host("a").outputs == {"text": "(sensitive)"}
    assert ran.host("b").outputs["value"] == "a-value"


def test_secret_that_is_not_there_is_a_clear_failure() -> None:
    ran = Bench(steps={"talk": Talk}).run(graph(node("a", "talk", with_={"text": "{{ secret('env:KX_NOT_SET') }}"})))
    assert "KX_NOT_SET is not set" in ran.host("a").message


def test_secret_that_a_step_resolves_itself_is_masked_from_then_on() -> None:
    class Knows(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(message=f"it is {ctx.secret('env:KX_TEST_SECRET')}")

    ran = Bench(steps={"knows": Knows}).run(graph(node("a", "knows")))
    assert ran.host("a").message == "it is ***"
