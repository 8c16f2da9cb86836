"""Notifications: which handlers are due on which hosts, since which run, and which may be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from kubexm_exec.engine.history import is_done
from kubexm_exec.model.graph import END_HOOKS, ExecutionNode, NodeID, Part
from kubexm_exec.model.result import ForecastState, HostResult, RunMode
from kubexm_exec.scheduler import Action
from kubexm_spec.diagnostics import some

_MAY_CHANGE: Final = (ForecastState.CHANGE, ForecastState.UNKNOWN, ForecastState.NOT_LOOKED_AT)


class Notification(Struct, frozen=True):
    """A handler that is due on a host and was not served yet."""

    handler: NodeID
    host: str
    node: NodeID
    """The node that changed something there; the handler's own if somebody has asked for that one."""
    run: str
    """The run in which it did."""
    at: float = 0.0
    sure: bool = True
    """False: it was interrupted or failed, and nobody can tell yet whether it had changed anything."""
    spec: str = ""
    """The spec of that run."""


class Notifications:
    """What one session knows: the notifications that earlier ones and other runs left, and what its own actions add."""

    def __init__(
        self, nodes: Mapping[NodeID, ExecutionNode], pending: Iterable[Notification], run: str, mode: RunMode
    ) -> None:
        """``nodes``: those of the graph, with those that are added to it."""
        self._nodes = nodes
        self._mode = mode
        self._hosts: dict[NodeID, frozenset[str]] = {}
        self.due: list[tuple[NodeID, str, NodeID]] = []
        """Handler, host, and the node that notified it."""
        self.late: dict[Action, list[tuple[NodeID, NodeID]]] = {}
        """Handlers that are due from the place of an action on, whether it is done again or not, each with the node
        that notified it: a flush that stands before that place does not serve them."""
        self._awaited: dict[Action, tuple[NodeID, ...]] = {}
        """Actions that may have changed something in an earlier session or run, or have in one of this run: their
        handlers, as far as they are not served, are due as soon as they end well now, as if they had changed it just
        then."""
        self._due_later: set[tuple[NodeID, str]] = set()
        self._since: dict[tuple[NodeID, str], str] = {}
        """The first other run that left a handler due on a host."""
        self._certain: set[Action] = set()
        """In a forecast, the actions that notify for sure."""
        for each in pending:
            action = Action(each.node, each.host)
            known = each.node in nodes and each.host in self._hosts_of(each.node)
            # Not all that was done in this run is reached again: such as a handler that is served, or a rescue.
            awaited = known and (not each.sure or (each.run == run and not _may_be_left_out(nodes[each.node])))
            # What a step has returned is in the graph when that step has ended.
            place = action if known else Action(each.node.partition("+")[0], each.host)
            if awaited:
                self._awaited[action] = (*self._awaited.get(action, ()), each.handler)
                self._due_later.add((each.handler, each.host))
            elif each.run == run and place.node in nodes and each.host in self._hosts_of(place.node):
                self.late.setdefault(place, []).append((each.handler, each.node))
                self._due_later.add((each.handler, each.host))
                self._certain.add(action)
            else:
                self.due.append((each.handler, each.host, each.node))
                self._certain.add(action)
            if each.run != run:
                self._since.setdefault((each.handler, each.host), each.run)

    def of(self, node: ExecutionNode, host: str) -> tuple[NodeID, ...]:
        """The handlers that a change by a node on a host makes due."""
        return tuple(name for name in node.notifies if host in self._hosts_of(name))

    def awaits(self, action: Action) -> bool:
        """Whether an action, if it ends well, makes its handlers due for what it did earlier."""
        return action in self._awaited

    def awaiting(self, action: Action) -> tuple[NodeID, ...]:
        """The handlers that an action, if it ends well, makes due for what it did earlier."""
        return self._awaited.get(action, ())

    def made_by(self, node: ExecutionNode, result: HostResult) -> bool:
        """Whether the end of an action makes its handlers due; in a forecast, whether it may."""
        action = Action(node.id, result.host_name)
        if result.changed or (is_done(result) and action in self._awaited):
            self._certain.add(action)
            return True
        if result.forecast is ForecastState.CHANGE and result.diffs and self._mode is RunMode.LOOK:
            self._certain.add(action)
        return self._mode is not RunMode.ACT and result.forecast in _MAY_CHANGE

    def since(self, handler: NodeID, host: str) -> str:
        """The other run that left a handler due on a host, if one did."""
        return self._since.get((handler, host), "")

    def doubt(self, sources: Collection[NodeID], host: str) -> str:
        """In a forecast, the nodes of which it is not certain that they notify a handler, if none does for sure."""
        if self._mode is RunMode.ACT or any(Action(source, host) in self._certain for source in sources):
            return ""
        return some(sources)

    def actions(self) -> set[Action]:
        """The actions of handlers that are due, or may be."""
        due = self._due_later.union((handler, host) for handler, host, _ in self.due)
        if not due:
            return set()
        return {
            Action(node.id, host)
            for node in self._nodes.values()
            if node.handler
            for host in node.may_run_on
            if (node.handler, host) in due
        }

    def _hosts_of(self, name: NodeID) -> frozenset[str]:
        hosts = self._hosts.get(name)
        if hosts is None:
            node = self._nodes.get(name)
            hosts = self._hosts[name] = frozenset() if node is None else frozenset(node.may_run_on)
        return hosts


def _may_be_left_out(node: ExecutionNode) -> bool:
    """Whether a node that was done in a session may have no reason to be reached in the next one."""
    return bool(node.handler) or node.hook in END_HOOKS or any(each.part is Part.RESCUE for each in node.groups)
