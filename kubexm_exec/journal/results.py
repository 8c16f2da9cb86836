"""The result of a past run, or of one in another process: the outcome of every action, from the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.engine.history import (
    TAKEN_BACK,
    ActionHistory,
    RunHistory,
    SessionHistory,
    is_blocked,
    is_done,
    tell,
    whole_graph,
)
from kubexm_exec.engine.resume import after_undo
from kubexm_exec.journal import leases
from kubexm_exec.journal.store import RunRow, Store
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode
from kubexm_exec.model.result import (
    BLOCKED,
    GraphExecutionResult,
    HostResult,
    NodeResult,
    PastChange,
    Status,
    node_message,
)
from kubexm_exec.scheduler import Action

BROKE_OFF: Final = "it was running when the run was interrupted: a resume checks the host first"
_AGAIN: Final = "it was done, and will be repeated"
_NEVER: Final = "the run ended before it could start"


def is_alive(store: Store, row: RunRow) -> bool:
    """Whether a process works on a run now; one that cannot be seen from here does while its lease is renewed."""
    if row.over:
        return False
    known = row.holder.alive()
    return leases.is_held(store, row.target, row.id) if known is None else known


def state_of(store: Store, row: RunRow) -> Status:
    """The status of a run; Interrupted if its process is gone without having recorded an end."""
    return Status(row.status) if row.over or is_alive(store, row) else Status.INTERRUPTED


def seconds_of(store: Store, row: RunRow, state: Status) -> float | None:
    """How long processes worked on a run so far: all its sessions, without the pauses between them."""
    if row.ended is not None and row.epoch == 1:
        return max(0.0, row.ended - row.created)
    sessions = tell(store, row.id).sessions
    end = time.time() if state is Status.RUNNING else row.ended or last_sign(sessions)
    return None if end is None else max(0.0, end - row.created - _paused(end, _pauses(sessions)))


def last_sign(sessions: Iterable[SessionHistory]) -> float | None:
    """When a session last wrote something."""
    return max((session.last for session in sessions), default=None)


class PastRun(Struct, dict=True):
    """A run in the journal."""

    row: RunRow
    state: Status
    graph: ExecutionGraph
    """As it was compiled."""
    history: RunHistory
    now: float
    """When it was read."""

    @property
    def alive(self) -> bool:
        """Whether a process works on it."""
        return self.state is Status.RUNNING

    @cached_property
    def whole(self) -> ExecutionGraph:
        """The graph with the nodes of fragments."""
        return whole_graph(self.graph, self.history)

    @cached_property
    def result(self) -> GraphExecutionResult:
        """Its result, with real times."""
        result = GraphExecutionResult(
            graph_name=self.graph.name or self.row.name,
            run_id=self.row.id,
            executor=self.row.executor,
            start_time=self.row.created,
            end_time=self.now if self.alive else self.row.ended or last_sign(self.history.sessions),
            status=self.state,
            message=self.row.message if self.row.over else "",
        )
        for node in self.whole.steps():
            of = NodeResult(node_name=node.id, step_name=node.step_name)
            of.host_results = {host: self._action(node, host) for host in node.hosts}
            for host in node.places:
                if host in of.host_results and not of.host_results[host].place:
                    of.host_results[host] = replace(of.host_results[host], place=node.elsewhere(host))
            of.status = _sum_up(node, of)
            of.message = node_message(of, node.skip)
            times = [
                (each.start_time, each.end_time) for each in of.host_results.values() if each.start_time is not None
            ]
            of.start_time = min((start for start, _ in times), default=None)
            of.end_time = max((end for _, end in times if end is not None), default=None)
            result.node_results[node.id] = of
            if not node.reversible and any(each.changed for each in of.host_results.values()):
                result.not_reversible.append(node.id)
        return result

    @cached_property
    def shown(self) -> GraphExecutionResult:
        """The result to show: without the pauses between sessions."""
        return without_pauses(self.result, self.history.sessions)

    def _action(self, node: ExecutionNode, host: str) -> HostResult:
        told = self.history.actions.get(Action(node.id, host), ActionHistory())
        if told.begun:
            status = Status.RUNNING if self.alive else Status.PENDING
            end = self.now if self.alive else None
            asks = f"waits for an answer: {told.asks}" if told.asks else ""
            message = asks if self.alive else BROKE_OFF
            return HostResult(
                host_name=host, status=status, message=message, unknown=not self.alive, attempts=told.attempts,
                start_time=told.started, end_time=end, undo=told.undone,
            )  # fmt: skip
        if told.again and told.done:
            return HostResult(host_name=host, status=Status.PENDING, message=_AGAIN, attempts=told.attempts)
        if told.result is not None:
            return replace(told.result, undo=told.undone) if told.undone != told.result.undo else told.result
        over = self.row.over and self.state is not Status.INTERRUPTED
        return HostResult(
            host_name=host, status=Status.CANCELLED if over else Status.PENDING, message=_NEVER if over else ""
        )

    # Questions about it

    def running(self) -> list[tuple[str, HostResult]]:
        """The actions that run now."""
        return self._having(lambda each: each.status is Status.RUNNING)

    def waiting(self) -> dict[Action, str]:
        """The actions that wait for an answer now, with their questions."""
        running = ((Action(name, each.host_name), each) for name, each in self.running())
        asks = ((action, self.history.actions[action].asks) for action, _ in running)
        return {action: question for action, question in asks if question}

    def unknown(self) -> list[tuple[str, HostResult]]:
        """The actions with an unknown outcome."""
        return self._having(lambda each: each.unknown)

    def left(self) -> list[tuple[str, HostResult]]:
        """What a resume would run; after a success only failures within ``maxFailures``, and their dependents."""
        if self.state is Status.ROLLED_BACK or (self.state is Status.SUCCESS and not self._having(_failed)):
            return []
        again = after_undo(self.whole, self.history)
        return [
            (name, each)
            for name, each in _each(self.result)
            if _is_left(each) or (Action(name, each.host_name) in again and is_done(each))
        ]

    def undoing(self) -> list[tuple[str, HostResult]]:
        """The actions that are being undone, or whose undo was interrupted."""
        undoing = {key for key, told in self.history.actions.items() if told.undoing}
        return [(name, each) for name, each in _each(self.result) if (name, each.host_name) in undoing]

    def undone(self) -> list[tuple[str, HostResult]]:
        """The actions that were undone, or could not be, unless all were done again."""
        return [] if self.state is Status.SUCCESS else self._having(lambda each: bool(each.undo))

    def retried(self) -> list[tuple[Action, ActionHistory]]:
        """The actions that failed at least once and were tried again."""
        return [(key, told) for key, told in self.history.actions.items() if told.retries]

    def repeated(self) -> list[tuple[str, HostResult]]:
        """The actions that were simply run again after an attempt whose outcome was unknown."""
        return self._having(lambda each: each.repeated)

    def changes(self) -> list[PastChange]:
        """What its actions changed on their hosts, in the order of the graph, and on each host in that of time."""
        nodes = self.whole.nodes
        order = {name: number for number, name in enumerate((*nodes, *self.whole.hosts))}
        actions = [(key, told) for key, told in self.history.actions.items() if told.changes]
        # What an earlier version of the spec had, and this one has not, comes last.
        actions.sort(key=lambda one: [order.get(name, len(order)) for name in one[0]])
        return [
            PastChange(
                key.node, key.host, each.time, each.session, each.sure, each.message, each.diffs,
                nodes[key.node].elsewhere(key.host) if key.node in nodes else "", told.undone,
            )
            for key, told in actions
            for each in told.changes
        ]  # fmt: skip

    def slowest(self, most: int) -> list[tuple[str, HostResult, float]]:
        """The actions that took longest, without pauses."""
        found = [
            (name, each, each.end_time - each.start_time)
            for name, each in _each(self.shown)
            if each.start_time is not None and each.end_time is not None
        ]
        return sorted(found, key=lambda one: -one[2])[:most]

    def _having(self, is_so: Callable[[HostResult], bool]) -> list[tuple[str, HostResult]]:
        return [(name, each) for name, each in _each(self.result) if is_so(each)]


def _each(result: GraphExecutionResult) -> list[tuple[str, HostResult]]:
    return [(name, each) for name, node in result.node_results.items() for each in node.host_results.values()]


def _failed(each: HostResult) -> bool:
    return each.status is Status.FAILED and not each.ignored


def _is_left(each: HostResult) -> bool:
    if each.rescued and not each.undo:
        return False
    if each.undo.startswith(TAKEN_BACK) or _failed(each):
        return True
    return each.status is Status.PENDING or is_blocked(each)


def _sum_up(node: ExecutionNode, of: NodeResult) -> Status:
    """The status of a node, as far as the outcomes of its actions are known."""
    every = list(of.host_results.values())
    found = {each.status for each in every}
    if sum(map(_failed, every)) > node.policy.budget(len(every)):
        return Status.FAILED
    for status in (Status.RUNNING, Status.PENDING, Status.CANCELLED):
        if status in found:
            return status
    if not every or all(each.reason in BLOCKED for each in every):
        return Status.SKIPPED
    return Status.SUCCESS


def of_all_sessions(result: GraphExecutionResult, sessions: Sequence[SessionHistory]) -> GraphExecutionResult:
    """The result of the last session to show: with the time of all sessions, without the pauses between them."""
    if not sessions:
        return result
    return without_pauses(replace(result, start_time=sessions[0].begun), sessions)


def without_pauses(result: GraphExecutionResult, sessions: Sequence[SessionHistory]) -> GraphExecutionResult:
    """The same result with times as if each session had begun when the previous one ended."""
    pauses = _pauses(sessions)
    if not pauses:
        return result

    def at(moment: float | None) -> float | None:
        if moment is None:
            return None
        return moment - _paused(moment, pauses)

    nodes = {
        name: replace(
            node,
            start_time=at(node.start_time),
            end_time=at(node.end_time),
            host_results={
                host: replace(each, start_time=at(each.start_time), end_time=at(each.end_time))
                for host, each in node.host_results.items()
            },
        )
        for name, node in result.node_results.items()
    }
    return replace(result, node_results=nodes, start_time=at(result.start_time), end_time=at(result.end_time))


def _pauses(sessions: Sequence[SessionHistory]) -> list[tuple[float, float]]:
    """From the end of each session, or its last sign of life, to the begin of the next one."""
    return [
        (before.ended or before.last, after.begun)
        for before, after in pairwise(sessions)
        if after.begun > (before.ended or before.last)
    ]


def _paused(moment: float, pauses: Iterable[tuple[float, float]]) -> float:
    """How much of the time before a moment were pauses."""
    return sum(min(moment, end) - begin for begin, end in pauses if moment > begin)
