"""Finds the critical path of a run: the chain of actions, each waiting for the one before, that determined its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from kubexm_exec.model.graph import ExecutionGraph, returned_by
from kubexm_exec.model.result import GraphExecutionResult

_Spot: TypeAlias = tuple[str, str]
"""An action: node and host; or a gate (then the host is empty)."""


class CriticalAction(Struct, frozen=True):
    """One link of the chain."""

    node: str
    host: str
    start: float
    end: float
    waited: float
    """Seconds from the end of the action before it (or the beginning of the run) to its own start."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class CriticalPath(Struct, frozen=True):
    """The chain, first action first."""

    actions: tuple[CriticalAction, ...] = ()

    @property
    def busy(self) -> float:
        """Seconds in which an action of the chain ran: what the run takes with workers enough and no overhead."""
        return sum(action.seconds for action in self.actions)

    @property
    def waited(self) -> float:
        """Seconds in which the next action of the chain could have run but did not: limits, pauses, overhead."""
        return sum(action.waited for action in self.actions)


def critical_path(graph: ExecutionGraph, result: GraphExecutionResult) -> CriticalPath:
    """Walk back from the last action, each time to the last it waited for, through gates and skipped actions."""
    return _Walk(graph, result).path()


class _Walk:
    def __init__(self, graph: ExecutionGraph, result: GraphExecutionResult) -> None:
        self.order, self.result = graph.digraph(), result
        self.times: dict[_Spot, tuple[float, float, int]] = {}
        count = 0
        for name, node in result.node_results.items():
            for host, action in node.host_results.items():
                count += 1
                if action.start_time is not None and action.end_time is not None:
                    self.times[name, host] = (action.end_time, action.start_time, count)
        self.known: dict[_Spot, _Spot | None] = {}

    def path(self) -> CriticalPath:
        found: list[CriticalAction] = []
        current = max(self.times, key=self.times.__getitem__, default=None)
        seen: set[_Spot] = set()
        while current and current not in seen:
            seen.add(current)
            before = self._last_of(self._before(current))
            end, start, _ = self.times[current]
            since = self.times[before][0] if before else self.result.start_time
            waited = max(0.0, start - since) if since is not None else 0.0
            found.append(CriticalAction(*current, start, end, waited))
            current = before
        return CriticalPath(tuple(reversed(found)))

    def _before(self, spot: _Spot) -> Iterator[_Spot]:
        if spot in self.order:
            return self.order.predecessors(spot)
        # A step of a fragment that the graph does not have: it follows the step that returned it.
        return iter([(parent, spot[1]) for parent in returned_by(spot[0])][:1])

    def _last_of(self, spots: Iterator[_Spot]) -> _Spot | None:
        """The action that finished last among these, or among what those that have no times waited for."""
        last: _Spot | None = None
        for spot in spots:
            last = self._later(last, spot if spot in self.times else self._through(spot))
        return last

    def _later(self, one: _Spot | None, other: _Spot | None) -> _Spot | None:
        if one is None or other is None:
            return one or other
        return max(one, other, key=self.times.__getitem__)

    def _through(self, spot: _Spot) -> _Spot | None:
        """As ``_last_of`` for one gate or one action without times; without recursion, for chains of them are long."""
        if spot in self.known:
            return self.known[spot]
        self.known[spot] = None  # met again on the way: a cycle
        stack = [(spot, self._before(spot))]
        while stack:
            top, rest = stack[-1]
            for other in rest:
                if other in self.times:
                    self.known[top] = self._later(self.known[top], other)
                elif other in self.known:
                    self.known[top] = self._later(self.known[top], self.known[other])
                else:
                    self.known[other] = None
                    stack.append((other, self._before(other)))
                    break
            else:
                stack.pop()
                if stack:
                    self.known[stack[-1][0]] = self._later(self.known[stack[-1][0]], self.known[top])
        return self.known[spot]
