"""debug: one action at a time, driven by commands that come through a pipe."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.executors.debug import DebugExecutor
from kubexm_exec.model.events import ACTION_FORECAST
from kubexm_exec.model.graph import ExecutionNode, Hook, On, Scope
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext
from tests.executors.kit import Bench, Ran, behind, gate, graph, node


def _debug(commands: str, *nodes: ExecutionNode, bench: Bench | None = None, **more: Any) -> Ran:
    bench = bench or Bench()
    bench.input = io.StringIO(commands)
    return bench.run(graph(*nodes, **more), DebugExecutor)


def _runs(ran: Ran) -> list[str]:
    return [line.split("/")[-1].split()[0] for line in ran.book.lines if line.startswith("run")]


def _three(**more: Any) -> list[ExecutionNode]:
    return [node("a", with_={"value": "x"}), node("b", after=["a"], **more), node("c", after=["b"])]


def test_commands_from_a_real_pipe_walk_through_the_actions() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"n\nn\nc\n")
    os.close(writer)
    with os.fdopen(reader) as stream:
        ran = Bench(input=stream).run(graph(*_three()), DebugExecutor)
    assert ran.result.status is Status.SUCCESS
    assert _runs(ran) == ["a", "b", "c"]
    assert ran.result.executor == "debug"


def test_action_is_shown_with_position_parameters_and_forecast_before_it_runs() -> None:
    ran = _debug("c\n", node("a", with_={"value": "one\ntwo\nthree\n", "undo": "{{ host.name }}", "fail": 0}))
    header, params, forecast, *_ = ran.output.splitlines()
    assert header.startswith("[1/1] m/t/a on h1")
    assert header.endswith("act")
    assert params == "  value: 3 lines   undo: h1   fail: 0"
    assert forecast == "  forecast: would act  (diff: d)"
    assert ran.of(ACTION_FORECAST)[0].data["params"]["undo"] == "h1"


def test_nothing_runs_before_next_and_end_of_input_quits() -> None:
    ran = _debug("", *_three())
    assert _runs(ran) == []
    assert ran.result.status is Status.CANCELLED
    assert "The input has ended: quit" in ran.output
    assert ran.host("a").status is Status.CANCELLED


def test_without_any_input_it_quits_and_says_so() -> None:
    ran = Bench().run(graph(*_three()), DebugExecutor)
    assert ran.result.status is Status.CANCELLED
    assert "no terminal and no piped input" in ran.output


def test_skip_leaves_the_action_out_and_what_waits_goes_on() -> None:
    ran = _debug("n\ns\nn\n", *_three())
    assert _runs(ran) == ["a", "c"]
    assert (ran.host("b").status, ran.host("b").reason) == (Status.SKIPPED, SkipReason.CONDITION)
    assert ran.host("b").message == "skipped by hand"
    assert ran.result.status is Status.SUCCESS


def test_failure_stops_also_when_continuing_and_retry_runs_it_again() -> None:
    ran = _debug("c\nr\nc\n", *_three(with_={"fail": 1}))
    assert _runs(ran) == ["a", "b", "b", "c"]
    assert ran.result.status is Status.SUCCESS
    assert "FAILED m/t/b on h1: no, said h1" in ran.output
    assert "→ ask again" in ran.output


def test_last_action_can_be_retried_too() -> None:
    ran = _debug("n\nr\nr\n", node("a", with_={"fail": 2}))
    assert _runs(ran) == ["a", "a", "a"]
    assert ran.result.status is Status.SUCCESS


def test_failure_that_is_accepted_goes_its_usual_way() -> None:
    ran = _debug("n\nn\nc\n", *_three(with_={"fail": 9}))
    assert ran.host("b").status is Status.FAILED
    assert ran.host("c").reason is SkipReason.DEPENDENCY


def test_failure_that_is_skipped_stops_nothing() -> None:
    ran = _debug("c\ns\nn\n", *_three(with_={"fail": 9}))
    assert ran.host("b").status is Status.SKIPPED
    assert ran.host("c").status is Status.SUCCESS


def test_retries_of_the_spec_happen_by_themselves_when_continuing() -> None:
    ran = _debug("c\n", *_three(with_={"fail": 2}, attempts=3))
    assert ran.result.status is Status.SUCCESS
    assert ran.host("b").attempts == 3


def test_breakpoint_stops_a_continue_and_is_marked_in_the_list() -> None:
    ran = _debug("b */c\nc\nl\nn\n", *_three())
    assert "breakpoint: m/t/c" in ran.output
    assert ">* ▸ Running   m/t/c  h1" in ran.output
    assert "   ✔ Success   m/t/a  h1" in ran.output
    assert ran.result.status is Status.SUCCESS


def test_until_goes_on_to_a_node_and_an_unknown_one_is_said() -> None:
    ran = _debug("u nowhere\nu m/t/bb\nuntil c\nq\n", *_three())
    assert _runs(ran) == ["a", "b"]
    assert "no action that is still to come matches 'nowhere'" in ran.output
    assert 'did you mean "m/t/b"?' in ran.output


def test_inspect_evaluates_an_expression_where_the_action_stands() -> None:
    scope = Scope("s", vars={"color": "red", "broken": "{{ vars.nothing }}"})
    commands = "n\ni steps.a.outputs.value\ni vars.color ~ host.name\ni vars.nope\ni\nq\n"
    ran = _debug(commands, *_three(), scope=scope)
    assert "  x\n" in ran.output
    assert "  redh1\n" in ran.output
    assert "vars has no 'nope'" in ran.output
    assert "color: red" in ran.output
    assert "broken: (vars has no 'nothing'" in ran.output
    assert "a: Success, outputs" in ran.output


def test_set_changes_a_parameter_which_is_checked_and_shown_again() -> None:
    ran = _debug("t valeu 1\nt fail many\nset value {\nset value 'new text'\nn\n", node("a", with_={"value": "old"}))
    assert ran.host("a").outputs["value"] == "new text"
    assert 'did you mean "value"?' in ran.output
    assert "parameter fail" in ran.output
    assert "not YAML" in ran.output
    assert ran.output.count("[1/1]") == 2


def test_parameter_set_by_hand_holds_for_the_next_attempt() -> None:
    ran = _debug("t value new\nn\nr\n", node("a", with_={"value": "old", "fail": 1}))
    assert ran.host("a").outputs["value"] == "new"


def test_parameter_set_after_a_failure_holds_for_the_retry_and_the_rest_stays() -> None:
    ran = _debug("c\nt valeu 1\nt fail 0\nr\n", node("a", with_={"value": "old", "fail": 9}))
    assert _runs(ran) == ["a", "a"]
    assert ran.result.status is Status.SUCCESS
    assert ran.host("a").outputs["value"] == "old"
    assert 'did you mean "value"?' in ran.output
    assert "retry runs the action with it" in ran.output


def test_shell_runs_commands_on_the_host() -> None:
    ran = _debug("h echo from the host; exit 3\nh\necho one\necho two\nexit\nq\n", *_three())
    assert "from the host\n" in ran.output
    assert "exit code 3" in ran.output
    assert "h1$ echo one\none\nh1$ echo two\ntwo\n" in ran.output


def test_diff_shows_what_would_change() -> None:
    ran = _debug("d\nq\n", *_three())
    assert "    -old\n    +new" in ran.output


def test_slip_at_the_prompt_never_ends_the_session() -> None:
    ran = _debug("\nnexxt\n?\nr\nu\nb\nset\ni 1 +\ni {{\nh\nexit\nl zzz\nc\n", *_three())
    assert ran.result.status is Status.SUCCESS
    assert 'did you mean "next"?' in ran.output
    assert "until NODE" in ran.output


def test_quit_runs_always_hooks_without_asking() -> None:
    hooks = [gate("body", ["a"]), node("hook", after=[behind("body", On.DONE)], hook=Hook.ALWAYS)]
    ran = _debug("q\n", node("a"), *hooks)
    assert ran.result.status is Status.CANCELLED
    assert _runs(ran) == ["hook"]


def test_condition_that_is_false_is_told_and_not_asked_about() -> None:
    ran = _debug("n\n", node("a", when="false"), node("b"))
    assert "skipped: condition not met: false" in ran.output
    assert _runs(ran) == ["b"]


def test_parameters_of_a_sensitive_step_are_not_shown() -> None:
    ran = _debug("i\nd\nc\n", node("a", with_={"value": "do-not-show"}, sensitive=True))
    assert "do-not-show" not in ran.output
    assert "do-not-show" not in str([event.data for event in ran.events])


def test_broken_step_is_shown_and_can_be_skipped() -> None:
    ran = _debug("s\n", node("a", with_={"value": "{{ vars.nope }}"}))
    assert "forecast: unknown: vars has no 'nope'" in ran.output
    assert ran.host("a").status is Status.SKIPPED


@pytest.fixture
def silent_pipe() -> Iterator[TextIO]:
    reader, writer = os.pipe()
    with os.fdopen(reader) as stream:
        yield stream
    os.close(writer)


def test_interrupt_at_the_prompt_quits(silent_pipe: TextIO) -> None:
    bench = Bench(input=silent_pipe)
    runtime, _, output = bench.runtime(graph(*_three()))
    threading.Timer(0.2, runtime.interrupt).start()
    result = DebugExecutor().execute(runtime)
    assert result.status is Status.CANCELLED
    assert "Interrupted" in output.getvalue()


def test_interrupt_while_a_command_runs_ends_it(tmp_path: Path) -> None:
    class Long(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            threading.Timer(0.2, runtime.interrupt).start()
            ctx.runner.run(Command(shell="sleep 300"))
            return Result()

    bench = Bench(steps={"long": Long}, input=io.StringIO("n\n"))
    runtime, _, _ = bench.runtime(graph(node("a", "long")))
    result = DebugExecutor().execute(runtime)
    assert result.status is Status.CANCELLED
