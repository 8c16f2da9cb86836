"""Builds small graphs, and plays runs of them: the events and the result that an engine would give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import (
    Dependency,
    ExecutionGraph,
    ExecutionNode,
    GraphHost,
    Mode,
    NodeKind,
    Origin,
    Policy,
    Retry,
)
from kubexm_exec.model.result import (
    FailureKind,
    GraphExecutionResult,
    HostResult,
    NodeResult,
    RunMode,
    SkipReason,
    Status,
)

START = 1_700_000_000.0
"""22:13:20 UTC, a night in November."""
RUN = "01JC8ZK3M4N5P6Q7R8S9T0V1W2"


def step(
    path: str,
    hosts: Iterable[str],
    *needs: str,
    type: str = "command",
    attempts: int = 1,
    **more: Any,
) -> ExecutionNode:
    """A step ``module/task/name``; ``needs`` names steps (on the same host) and gates (which have a #)."""
    parts = path.split("/")
    dependencies = tuple(Dependency(need, Mode.BARRIER if "#" in need else Mode.HOST) for need in needs)
    with_ = more.pop("with_", {"shell": f"do {parts[-1]}"})
    return ExecutionNode(
        id=path,
        name=parts[-1],
        step_name=type,
        module=more.pop("module", parts[0]),
        task=more.pop("task", parts[1] if len(parts) > 2 else ""),
        hosts=tuple(hosts),
        dependencies=dependencies,
        with_=with_,
        policy=Policy(retry=Retry(attempts=attempts)),
        origin=more.pop("origin", Origin("specs/site.yaml", 10 + len(path), 9)),
        **more,
    )


def gate(name: str, *needs: str, **more: Any) -> ExecutionNode:
    """A gate behind steps and other gates."""
    scope = name.partition("#")[0].split("/")
    return ExecutionNode(
        id=name,
        kind=NodeKind.GATE,
        module=scope[0],
        task=scope[1] if len(scope) > 1 else "",
        dependencies=tuple(Dependency(need, Mode.BARRIER) for need in needs),
        **more,
    )


def graph(nodes: Sequence[ExecutionNode], hosts: Iterable[str], name: str = "create-etcd") -> ExecutionGraph:
    """A graph of these nodes on these hosts."""
    return ExecutionGraph(
        name=name,
        nodes={node.id: node for node in nodes},
        hosts={host: GraphHost(host, address=f"192.0.2.{index + 1}") for index, host in enumerate(hosts)},
        scopes={},
    )


@dataclass
class Script:
    """Plays a run: its methods are what happens, one after another, on a clock of its own."""

    graph: ExecutionGraph
    executor: str = "concurrent"
    mode: RunMode = RunMode.ACT
    now: float = START
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.result = GraphExecutionResult(
            graph_name=self.graph.name, run_id=RUN, executor=self.executor, mode=self.mode, start_time=self.now
        )
        self._started: dict[tuple[str, str], float] = {}
        self.say(
            ev.RUN_STARTED,
            graph=self.graph.name,
            executor=self.executor,
            runMode=self.mode.value,
            forks=50,
            hosts=len(self.graph.hosts),
            nodes=sum(1 for _ in self.graph.steps()),
            actions=self.graph.actions(),
        )

    def say(self, kind: str, node: str = "", host: str = "", /, **data: Any) -> Script:
        """Any event."""
        self.events.append(Event(kind, RUN, self.now, node, host, data))
        return self

    def wait(self, seconds: float) -> Script:
        """Time goes by."""
        self.now += seconds
        return self

    def start(self, node: str, *hosts: str, attempt: int = 1) -> Script:
        """Actions start, on all hosts of the node if none is named."""
        for host in hosts or self.graph.nodes[node].hosts:
            self._started.setdefault((node, host), self.now)
            self.say(ev.ACTION_STARTED, node, host, attempt=attempt, step=self.graph.nodes[node].step_name)
        return self

    def end(self, node: str, *hosts: str, status: Status = Status.SUCCESS, **more: Any) -> Script:
        """Actions end, on all hosts of the node if none is named."""
        for host in hosts or self.graph.nodes[node].hosts:
            start = self._started.get((node, host))
            each = HostResult(
                host_name=host,
                status=status,
                start_time=start,
                end_time=self.now if start is not None else None,
                attempts=more.get("attempts", 1 if start is not None else 0),
                **{key: value for key, value in more.items() if key != "attempts"},
            )
            self._record(node).host_results[host] = each
            self.say(ev.ACTION_FINISHED, node, host, **each.to_json())
        return self

    def do(self, node: str, *hosts: str, seconds: float = 1.0, changed: bool = True, **more: Any) -> Script:
        """Actions start and succeed."""
        return self.start(node, *hosts).wait(seconds).end(node, *hosts, changed=changed, **more)

    def satisfied(self, node: str, *hosts: str) -> Script:
        """Prechecks find that there is nothing to do."""
        self.start(node, *hosts)
        return self.end(node, *hosts, status=Status.SKIPPED, reason=SkipReason.PRECHECK, skipped=True)

    @property
    def failed(self) -> bool:
        """Whether an action has failed, and was not ignored."""
        each = (host for node in self.result.node_results.values() for host in node.host_results.values())
        return any(host.status is Status.FAILED and not host.ignored for host in each)

    def skip(self, node: str, cause: str, *hosts: str) -> Script:
        """Actions are skipped because of a failed node; they never start."""
        return self.end(
            node,
            *hosts,
            status=Status.SKIPPED,
            reason=SkipReason.DEPENDENCY,
            cause=cause,
            message=f"Skipped due to failed dependency '{cause}'",
        )

    def fail(self, node: str, *hosts: str, message: str = "it said no", **more: Any) -> Script:
        """Actions fail."""
        more.setdefault("kind", FailureKind.FAILED)
        return self.end(node, *hosts, status=Status.FAILED, message=message, **more)

    def extend(self, by: str, *nodes: ExecutionNode) -> Script:
        """A step returns more nodes."""
        known = dict(self.graph.nodes)
        known.update({node.id: node for node in nodes})
        self.graph = self.graph.with_nodes(known.values())
        return self.say(ev.GRAPH_EXTENDED, nodes=[node.to_json() for node in nodes], by=by)

    def finish(self, status: Status = Status.SUCCESS, message: str = "") -> GraphExecutionResult:
        """The run is over."""
        result = self.result
        result.status, result.end_time, result.message = status, self.now, message
        order = {name: index for index, name in enumerate(self.graph.nodes)}
        result.node_results = dict(sorted(result.node_results.items(), key=lambda pair: order[pair[0]]))
        seconds = self.now - (result.start_time or self.now)
        self.say(ev.RUN_FINISHED, status=status.value, message=message, counts={}, seconds=round(seconds, 3))
        return result

    def _record(self, node: str) -> NodeResult:
        of = self.graph.nodes[node]
        return self.result.node_results.setdefault(node, NodeResult(node_name=node, step_name=of.step_name))
