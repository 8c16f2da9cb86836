from __future__ import annotations

from collections.abc import Mapping

import pytest

from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, GraphHost, Mode, NodeKind
from kubexm_exec.model.result import GraphExecutionResult, HostResult, NodeResult, Status
from kubexm_exec.report.critical import CriticalPath, critical_path
from tests.draw.graphs import cluster
from tests.report.runs import START, simulate

Times = Mapping[tuple[str, str], tuple[float, float]]


def graph_of(*nodes: ExecutionNode) -> ExecutionGraph:
    hosts = dict.fromkeys(host for node in nodes for host in node.hosts)
    return ExecutionGraph("g", {node.id: node for node in nodes}, {host: GraphHost(host) for host in hosts}, {})


def step(ident: str, *deps: Dependency, hosts: tuple[str, ...] = ("a", "b")) -> ExecutionNode:
    return ExecutionNode(id=ident, step_name="x", hosts=hosts, dependencies=deps)


def gate(ident: str, *deps: Dependency) -> ExecutionNode:
    return ExecutionNode(id=ident, kind=NodeKind.GATE, dependencies=deps)


def result_of(times: Times, untimed: tuple[tuple[str, str], ...] = ()) -> GraphExecutionResult:
    result = GraphExecutionResult(graph_name="g", start_time=0.0)
    for (node, host), (start, end) in times.items():
        found = result.node_results.setdefault(node, NodeResult(node_name=node, step_name="x"))
        found.host_results[host] = HostResult(host_name=host, status=Status.SUCCESS, start_time=start, end_time=end)
    for node, host in untimed:
        found = result.node_results.setdefault(node, NodeResult(node_name=node, step_name="x"))
        found.host_results[host] = HostResult(host_name=host, status=Status.SKIPPED)
    return result


def names(path: CriticalPath) -> list[str]:
    return [f"{action.node}@{action.host}" for action in path.actions]


def test_nothing_ran_so_there_is_no_path() -> None:
    path = critical_path(graph_of(step("s")), result_of({}, (("s", "a"),)))
    assert path == CriticalPath()
    assert (path.busy, path.waited) == (0.0, 0.0)


def test_host_edges_are_followed_on_their_own_host() -> None:
    graph = graph_of(step("one"), step("two", Dependency("one")))
    times = {("one", "a"): (0, 9), ("one", "b"): (0, 1), ("two", "a"): (9, 10), ("two", "b"): (1, 20)}
    assert names(critical_path(graph, result_of(times))) == ["one@b", "two@b"]


def test_through_a_gate_the_one_that_finished_last_counts_whatever_its_host() -> None:
    graph = graph_of(
        step("one"),
        gate("end", Dependency("one", Mode.BARRIER)),
        step("two", Dependency("end", Mode.BARRIER), hosts=("b",)),
    )
    times = {("one", "a"): (0.0, 5.0), ("one", "b"): (0.0, 1.0), ("two", "b"): (5.5, 7.0)}
    path = critical_path(graph, result_of(times))
    assert names(path) == ["one@a", "two@b"]
    assert [action.waited for action in path.actions] == [0.0, 0.5]
    assert (path.busy, path.waited) == (6.5, 0.5)


def test_a_gate_limited_to_some_hosts_waits_for_those_only() -> None:
    graph = graph_of(
        step("one"),
        gate("batch2", Dependency("one", Mode.BARRIER, hosts=("a",))),
        step("two", Dependency("batch2", Mode.BARRIER, hosts=("b",)), hosts=("a", "b")),
    )
    times = {("one", "a"): (0, 1), ("one", "b"): (0, 8), ("two", "b"): (9, 10), ("two", "a"): (1, 2)}
    assert names(critical_path(graph, result_of(times))) == ["one@a", "two@b"]


def test_a_host_that_a_gate_does_not_hold_up_does_not_wait_for_it() -> None:
    graph = graph_of(
        step("one"),
        gate("batch2", Dependency("one", Mode.BARRIER)),
        step("two", Dependency("batch2", Mode.BARRIER, hosts=("b",))),
    )
    times = {("one", "a"): (0, 1), ("one", "b"): (0, 2), ("two", "b"): (2, 3), ("two", "a"): (4, 5)}
    assert names(critical_path(graph, result_of(times))) == ["two@a"]


def test_the_walk_goes_through_actions_that_never_ran() -> None:
    graph = graph_of(step("one"), step("two", Dependency("one")), step("three", Dependency("two")))
    result = result_of({("one", "a"): (0, 3), ("three", "a"): (3, 4)}, (("two", "a"),))
    assert names(critical_path(graph, result)) == ["one@a", "three@a"]


def test_a_long_chain_of_actions_that_never_ran_is_no_recursion() -> None:
    chain = [step("0"), *(step(str(i), Dependency(str(i - 1))) for i in range(1, 5001))]
    untimed = tuple((str(i), "a") for i in range(1, 5000))
    result = result_of({("0", "a"): (0, 3), ("5000", "a"): (3, 4)}, untimed)
    assert names(critical_path(graph_of(*chain), result)) == ["0@a", "5000@a"]


def test_a_cycle_of_gates_ends() -> None:
    graph = graph_of(
        gate("g1", Dependency("g2", Mode.BARRIER)),
        gate("g2", Dependency("g1", Mode.BARRIER), Dependency("one", Mode.BARRIER)),
        step("one"),
        step("two", Dependency("g1", Mode.BARRIER)),
    )
    result = result_of({("one", "a"): (0, 1), ("two", "a"): (1, 2)})
    assert names(critical_path(graph, result)) == ["one@a", "two@a"]


def test_a_step_of_a_fragment_follows_the_step_that_returned_it() -> None:
    result = result_of({("m/t/s", "a"): (0, 1), ("m/t/s+more", "a"): (1, 5)})
    assert names(critical_path(graph_of(step("m/t/s")), result)) == ["m/t/s@a", "m/t/s+more@a"]


def test_of_two_that_end_together_always_the_same_is_taken() -> None:
    graph = graph_of(step("one"), step("two"))
    result = result_of({("one", "a"): (0, 5), ("one", "b"): (0, 5), ("two", "a"): (0, 5)})
    assert names(critical_path(graph, result)) == ["two@a"]


def test_with_workers_enough_the_path_is_as_long_as_the_run() -> None:
    result = simulate(cluster())
    path = critical_path(cluster(), result)
    assert path.busy + path.waited == pytest.approx((result.end_time or 0) - START, abs=0.02)
    assert path.waited < 0.02 * len(path.actions)
    for before, after in zip(path.actions, path.actions[1:], strict=False):
        assert before.end <= after.start
