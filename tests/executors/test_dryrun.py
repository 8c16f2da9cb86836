"""dry-run: every action in order with its parameters, and no host is contacted."""

from __future__ import annotations

from typing import Any, NoReturn

from kubexm_exec.executors.dryrun import DryRunExecutor
from kubexm_exec.model.events import ACTION_FORECAST, ACTION_STARTED
from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Scope
from kubexm_exec.model.result import ForecastState, SkipReason, Status
from tests.executors.kit import Bench, Ran, graph, node


def _no_contact(*_: Any) -> NoReturn:
    raise AssertionError("a dry run has contacted a host")


def _dry(*nodes: ExecutionNode, **more: Any) -> Ran:
    bench = Bench(connectors={"local": _no_contact})
    return bench.run(graph(*nodes, **more), DryRunExecutor)


def test_no_step_is_asked_or_run_and_no_connection_is_made() -> None:
    ran = _dry(node("a", with_={"value": "x"}), node("b", after=["a"]))
    assert ran.book.lines == []
    assert (ran.host("a").status, ran.host("a").changed) == (Status.SUCCESS, False)
    assert ran.host("a").forecast is ForecastState.CHANGE
    assert ran.host("a").message == "would run act"
    assert ran.result.executor == "dry-run"


def test_actions_come_in_graph_order_host_by_host() -> None:
    hosts = ["h2", "h1"]
    ran = _dry(node("a", hosts=hosts), node("b", hosts=hosts, after=["a"]), node("c", hosts=hosts))
    order = [(event.node[-1], event.host) for event in ran.of(ACTION_STARTED)]
    assert order == [(name, host) for name in "abc" for host in hosts]


def test_rendered_parameters_are_told_and_unknown_ones_named_as_written() -> None:
    ran = _dry(
        node("a", with_={"value": "{{ host.name }}-{{ vars.color }}"}),
        node("b", after=["a"], with_={"value": "{{ steps.a.outputs.value }}", "undo": "{{ facts.kernel }}"}),
        scope=Scope("s", vars={"color": "red"}),
    )
    first, second = ran.of(ACTION_FORECAST)
    assert (first.data["params"], first.data["unknown"], first.data["state"]) == ({"value": "h1-red"}, [], "change")
    assert second.data["params"] == {"value": "{{ steps.a.outputs.value }}", "undo": "{{ facts.kernel }}"}
    assert second.data["unknown"] == ["steps.a.outputs", "facts of h1"]
    assert second.data["state"] == "unknown"
    assert ran.host("b").forecast is ForecastState.UNKNOWN
    assert "steps.a.outputs" in ran.host("b").message


def test_condition_is_true_false_or_unknown() -> None:
    ran = _dry(
        node("yes", when="host.name == 'h1'"),
        node("no", when="host.name == 'h2'"),
        node("later", after=["yes"], when="steps.yes.changed"),
    )
    assert [event.data["condition"] for event in ran.of(ACTION_FORECAST)] == ["true", "false", "unknown"]
    assert (ran.host("no").status, ran.host("no").reason) == (Status.SKIPPED, SkipReason.CONDITION)
    assert "if steps.yes.changed" in ran.host("later").message


def test_wrong_value_is_found_before_the_run_and_stops_nothing() -> None:
    ran = _dry(node("a", with_={"fail": "{{ 'many' }}"}), node("b", hosts=["h2"]), policy=FailurePolicy.FAIL_FAST)
    assert (ran.host("a").status, ran.result.status) == (Status.FAILED, Status.FAILED)
    assert "parameter fail" in ran.host("a").message
    assert ran.host("b", "h2").status is Status.SUCCESS
