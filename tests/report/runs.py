"""Results of runs, simulated: every action starts when what it waits for has ended, and takes a random time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from kubexm_exec.model.events import ACTION_RETRY, LOG, Event
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Hook, On
from kubexm_exec.model.result import (
    FailureKind,
    ForecastState,
    GraphExecutionResult,
    HostResult,
    NodeResult,
    RunMode,
    SkipReason,
    Status,
)

START = 1_763_258_400.0
Change = Callable[[HostResult, ExecutionNode], None]


def permission_denied(action: HostResult, node: ExecutionNode) -> None:
    """A failure with everything there is to say."""
    action.status, action.kind, action.changed = Status.FAILED, FailureKind.FAILED, False
    action.message = "file /etc/etcd.env: permission denied"
    action.command = "install -m 0600 /tmp/.kubexm-4f1a /etc/etcd.env"
    action.exit_code = 1
    action.stderr = "\n".join(f"line {i} of what it said" for i in range(30)) + "\nopen: permission denied\n"
    action.hint = "the step has no `become`; the host's user cannot write there"
    action.attempts = 3


def unreachable(action: HostResult, node: ExecutionNode) -> None:
    """A host that does not answer."""
    action.status, action.kind, action.changed = Status.FAILED, FailureKind.UNREACHABLE, False
    action.message = f"{action.host_name} does not answer on port 22"


def broke(action: HostResult, node: ExecutionNode) -> None:
    """An exception in a step."""
    action.status, action.kind, action.changed = Status.FAILED, FailureKind.ERRORED, False
    action.message = "KeyError: 'nodes'"
    action.traceback = "Traceback (most recent call last):\n  File \"step.py\", line 3, in run\nKeyError: 'nodes'\n"


def simulate(
    graph: ExecutionGraph,
    changes: Mapping[tuple[str, str], Change] | None = None,
    *,
    seed: int = 1,
    executor: str = "concurrent",
    mode: RunMode = RunMode.ACT,
    scale: float = 1.0,
) -> GraphExecutionResult:
    """The result of a run in which some actions, by (node, host), came to something else than success."""
    chance = random.Random(seed)
    result = GraphExecutionResult(
        graph_name=graph.name, run_id="01JC8Z5S6K", executor=executor, mode=mode, start_time=START
    )
    ends: dict[tuple[str, str], float] = {}
    bad: dict[tuple[str, str], str] = {}
    for node in graph.nodes.values():
        if node.is_gate:
            _pass_gate(graph, node, ends, bad)
            continue
        of = result.node_results[node.id] = NodeResult(node_name=node.id, step_name=node.step_name)
        for host in node.hosts:
            action = of.host_results[host] = HostResult(host_name=host)
            waits = [
                (dep, (dep.node, "" if graph.nodes[dep.node].is_gate else host))
                for dep in node.dependencies
                if "#batch" not in dep.node
            ]
            begin = max([START, *(ends[key] for _, key in waits if key in ends)])
            causes = [bad[key] for dep, key in waits if key in bad and dep.on is On.SUCCESS]
            if causes:
                action.status, action.reason, action.cause = Status.SKIPPED, SkipReason.DEPENDENCY, causes[0]
                action.message = f"Skipped due to failed dependency '{causes[0]}'"
                bad[node.id, host] = causes[0]
                ends[node.id, host] = begin
                continue
            if node.hook is Hook.ON_FAILURE and not any(key in bad for _, key in waits):
                action.status, action.reason, action.message = Status.SKIPPED, SkipReason.CONDITION, "nothing failed"
                ends[node.id, host] = begin
                continue
            action.start_time = begin + 0.002 * scale
            action.end_time = action.start_time + chance.choice([0.05, 0.2, 0.8, 1.5]) * scale * (0.6 + chance.random())
            action.status, action.attempts, action.changed = Status.SUCCESS, 1, chance.random() < 0.7
            if not action.changed:
                action.status, action.reason, action.skipped = Status.SKIPPED, SkipReason.PRECHECK, True
                action.message = "as it should be"
            action.stdout = f"{node.id} done on {host}\n"
            if changes and (node.id, host) in changes:
                action.reason, action.skipped = None, False
                changes[node.id, host](action, node)
                if action.status is Status.FAILED and not action.ignored:
                    bad[node.id, host] = node.id
            ends[node.id, host] = action.end_time
        found = list(of.host_results.values())
        failed = any(action.status is Status.FAILED and not action.ignored for action in found)
        skipped = all(action.reason is SkipReason.DEPENDENCY for action in found)
        of.status = Status.FAILED if failed else Status.SKIPPED if skipped else Status.SUCCESS
    result.end_time = max([START, *ends.values()]) + 0.01
    failed = any(node.status is Status.FAILED for node in result.node_results.values())
    result.status = Status.FAILED if failed else Status.SUCCESS
    return result


def _pass_gate(
    graph: ExecutionGraph, node: ExecutionNode, ends: dict[tuple[str, str], float], bad: dict[tuple[str, str], str]
) -> None:
    keys = [
        (dep.node, host)
        for dep in node.dependencies
        for host in (graph.nodes[dep.node].hosts if not graph.nodes[dep.node].is_gate else ("",))
    ]
    ends[node.id, ""] = max([START, *(ends[key] for key in keys if key in ends)])
    causes = [bad[key] for key in keys if key in bad]
    if causes:
        bad[node.id, ""] = causes[0]


def checked(graph: ExecutionGraph) -> GraphExecutionResult:
    """The result of a check: some would change, some are not known, most are as they should be."""
    result = simulate(graph, executor="check", mode=RunMode.LOOK)
    for index, node in enumerate(result.node_results.values()):
        for action in node.host_results.values():
            action.changed, action.stdout = False, ""
            if index % 4 == 0:
                action.status, action.reason, action.skipped = Status.SUCCESS, None, False
                action.forecast = ForecastState.CHANGE
                text = (
                    "@@ -1,2 +1,2 @@\n ETCD_NAME=node\n-ETCD_INITIAL_CLUSTER_STATE=new\n+ETCD_INITIAL_CLUSTER_STATE=<b>"
                )
                action.diffs = [{"path": "/etc/etcd.env", "note": "0640 -> 0600", "text": text}]
            elif index % 4 == 1:
                action.status, action.reason, action.skipped = Status.SUCCESS, None, False
                action.forecast, action.message = ForecastState.UNKNOWN, "depends on etcd/configure/env"
            else:
                action.status, action.reason, action.skipped = Status.SKIPPED, SkipReason.PRECHECK, True
                action.forecast = ForecastState.SATISFIED
    return result


def events() -> list[Event]:
    """What a run told besides its result."""
    return [
        Event(LOG, "01JC8Z5S6K", START, data={"level": "info", "message": "12 hosts", "forks": 50}),
        Event(
            ACTION_RETRY,
            "01JC8Z5S6K",
            START + 1,
            "etcd/configure/env",
            "node2",
            {"attempt": 1, "attempts": 3, "delay": 2.0, "message": "permission denied"},
        ),
    ]
