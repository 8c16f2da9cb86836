"""Builds the result of a run while it goes on, and emits the same as events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import ActionOutcome
from kubexm_exec.engine.history import rescued
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.writeahead import WriteAhead
from kubexm_exec.model.events import (
    ACTION_FINISHED,
    ACTION_RESCUED,
    ACTION_RESTORED,
    NODE_FINISHED,
    RUN_FINISHED,
    RUN_STARTED,
    RUN_STOPPING,
)
from kubexm_exec.model.graph import ExecutionNode, NodeKind
from kubexm_exec.model.result import (
    FailureKind,
    ForecastState,
    GraphExecutionResult,
    HostResult,
    NodeResult,
    RunMode,
    SkipReason,
    Status,
    counts,
    node_message,
    reason_text,
    words,
)
from kubexm_exec.scheduler import Action, Transition
from kubexm_spec.diagnostics import plural

_STOPPING: Final = {
    "failFast": "a step failed: no new action starts, running ones finish",
    "rollback": "a step failed: no new action starts, then all changes are undone",
    "cancel": "cancelled: running actions are stopped, always hooks run",
}
_GATE: Final = NodeKind.GATE
_OPEN: Final = (ForecastState.CHANGE, ForecastState.UNKNOWN, ForecastState.NOT_LOOKED_AT)


class ResultData(Mapping[str, Any]):
    """A result as the data of an event; converted only if a subscriber reads it."""

    __slots__ = ("_data", "_result")

    def __init__(self, result: HostResult) -> None:
        self._result = result
        self._data: dict[str, Any] | None = None

    def _all(self) -> dict[str, Any]:
        if self._data is None:
            self._data = self._result.to_json()
        return self._data

    def __getitem__(self, key: str) -> Any:
        return self._all()[key]

    def get(self, key: str, default: Any = None, /) -> Any:
        """Faster than the one of Mapping; consoles read several keys of each result."""
        return self._all().get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class RunRecord:
    """The only place where results are assembled."""

    def __init__(self, runtime: Runtime, executor: str, mode: RunMode, write_ahead: WriteAhead | None = None) -> None:
        self._runtime = runtime
        self._write_ahead = write_ahead
        outside = runtime.bus if write_ahead is None else write_ahead
        self._emit, self._tell = outside.emit, outside.tell
        self._nodes = runtime.records.nodes
        self._failed: set[str] = set()
        self._unchosen: dict[str, set[str]] = {}
        """By node, the hosts on which it was not chosen for this session."""
        self.result = GraphExecutionResult(
            graph_name=runtime.graph.name, run_id=runtime.run_id, executor=executor, mode=mode, start_time=time.time()
        )

    def begin(self, forks: int, *, hosts: int, nodes: int, actions: int) -> None:
        """The run begins, with so many of each."""
        result = self.result
        self._emit(
            RUN_STARTED, graph=result.graph_name, executor=result.executor, runMode=result.mode.value, forks=forks,
            hosts=hosts, nodes=nodes, actions=actions,
        )  # fmt: skip

    def action(self, node: ExecutionNode, outcome: ActionOutcome, *, restored: bool = False) -> None:
        """An action has ended, or had ended in an earlier session."""
        result = outcome.result
        if node.places and not (restored and node.choices):
            result.place = node.elsewhere(result.host_name)
        if result.status is Status.FAILED and not result.ignored:
            self._failed.add(node.id)
        elif restored and result.status is Status.CANCELLED:
            self._unchosen.setdefault(node.id, set()).add(result.host_name)
        if self._write_ahead is None:
            self._action(node, outcome, restored)
            return
        if not restored:
            self._write_ahead.note(entries.end(node.id, outcome))
        self._write_ahead.meanwhile(self._action, node, outcome, restored)

    def _action(self, node: ExecutionNode, outcome: ActionOutcome, restored: bool) -> None:
        result = outcome.result
        of = self._nodes.get(node.id)
        if of is None:
            of = self._nodes[node.id] = NodeResult(
                node_name=node.id, step_name=node.step_name, start_time=result.start_time, end_time=result.end_time
            )
        else:
            if result.start_time is not None and (of.start_time is None or result.start_time < of.start_time):
                of.start_time = result.start_time
            if result.end_time is not None and (of.end_time is None or result.end_time > of.end_time):
                of.end_time = result.end_time
        of.host_results[result.host_name] = result
        self._runtime.records.add(node.id, outcome)
        self._tell(ACTION_RESTORED if restored else ACTION_FINISHED, node.id, result.host_name, ResultData(result))

    def transition(self, transition: Transition) -> None:
        """The scheduler has ended an action or a node."""
        node = self._runtime.nodes.get(transition.node)
        if node is None or node.kind is _GATE:
            return
        if transition.host:
            known = self._runtime.prior.get(Action(transition.node, transition.host)) if node.handler else None
            if known is not None and known.outcome is not None and transition.reason is SkipReason.CONDITION:
                # An earlier session ran the handler, and it is not due again.
                self.action(node, known.outcome, restored=True)
                return
            result = self._left_out(transition) or _untried(transition)
            result.ignored = result.status is Status.FAILED and node.policy.ignore_errors
            self.action(node, ActionOutcome(result))
        elif self._write_ahead is None:
            self._node(node, transition)
        else:
            self._write_ahead.meanwhile(self._node, node, transition)

    def rescued(self, action: Action) -> None:
        """A rescue has handled that an action failed, or was skipped because of a failure."""
        if self._write_ahead is None:
            self._rescued(action)
            return
        self._write_ahead.note(entries.Rescued(action.node, action.host))
        self._write_ahead.meanwhile(self._rescued, action)

    def _rescued(self, action: Action) -> None:
        results = self._nodes[action.node].host_results
        result = results[action.host] = rescued(results[action.host])
        self._tell(ACTION_RESCUED, action.node, action.host, ResultData(result))

    def _left_out(self, transition: Transition) -> HostResult | None:
        """The result of an action that waits for one that was merely not chosen."""
        cause, host = transition.cause, transition.host
        where = self._unchosen.get(cause)
        if transition.reason is not SkipReason.DEPENDENCY or where is None:
            return None
        if host not in where and cause in self._failed:
            return None
        hosts = len(self._runtime.nodes[cause].hosts)
        some = f" on {len(where)} of its {hosts} hosts" if host not in where and len(where) < hosts else ""
        return HostResult(
            host_name=host, status=transition.status, reason=SkipReason.UNCHOSEN, cause=cause,
            message=f"{cause} was not chosen{some}",
        )  # fmt: skip

    def _node(self, node: ExecutionNode, transition: Transition) -> None:
        of = self._nodes.get(node.id)
        if of is None:
            of = self._nodes[node.id] = NodeResult(node_name=node.id, step_name=node.step_name)
        of.status = transition.status
        self._say_why(node, of)
        self._tell(NODE_FINISHED, node.id, "", {"status": str(of.status), "message": of.message})

    def _say_why(self, node: ExecutionNode, of: NodeResult) -> None:
        message = node_message(of, node.skip)
        of.message = self._runtime.redactor.mask(message) if message else ""

    def stopping(self, reason: str) -> None:
        """No new action starts from here on."""
        if self._write_ahead is not None:
            self._write_ahead.note(entries.Stop(reason))
        self._emit(RUN_STOPPING, reason=reason, message=_STOPPING[reason])

    def end(self, status: Status, said: str = "") -> GraphExecutionResult:
        """The whole result in graph order; reports the end of the run. ``said``: its message instead of the counts."""
        result = self.result
        rolled_back = bool(result.not_reversible)
        for node in self._runtime.graph.steps():
            of = self._nodes.get(node.id)
            if of is None:
                of = NodeResult(node_name=node.id, step_name=node.step_name)
            for host in node.hosts:
                if host not in of.host_results:
                    of.host_results[host] = HostResult(
                        host_name=host, place=node.elsewhere(host), status=Status.CANCELLED,
                        message="the run ended before it could start",
                    )  # fmt: skip
            if of.status is Status.PENDING:
                of.status = Status.CANCELLED
                self._say_why(node, of)
            if len(node.hosts) > 1:
                of.host_results = {host: of.host_results[host] for host in node.hosts}
            result.node_results[node.id] = of
            if not node.reversible and not rolled_back and any(map(_lasting, of.host_results.values())):
                result.not_reversible.append(node.id)
        if status is Status.CANCELLED and self._unchosen and not self._runtime.cancel.is_set():
            status = Status.PARTIAL  # nobody stopped it
        result.status = status
        result.end_time = time.time()
        total = counts(result)
        result.message = said or message(total)
        seconds = round(result.end_time - (result.start_time or result.end_time), 3)
        self._emit(RUN_FINISHED, status=status.value, message=result.message, counts=total, seconds=seconds)
        return result


def _lasting(host: HostResult) -> bool:
    """Whether an action changed something, or would."""
    return host.changed or host.forecast in _OPEN


def _untried(transition: Transition) -> HostResult:
    status, reason, cause = transition.status, transition.reason, transition.cause
    text = reason_text(status, reason, cause, transition.message)
    kind = FailureKind.FAILED if status is Status.FAILED else None
    return HostResult(host_name=transition.host, status=status, reason=reason, cause=cause, message=text, kind=kind)


def message(total: Mapping[str, int]) -> str:
    """The run in one sentence."""
    actions = sum(total.values()) - total["ok"]
    said = words(total)
    return f"{plural(actions, 'action')}: {said}" if said else "there was nothing to do"
