"""The history of a run: all its entries put together, action by action."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import ActionOutcome, Earlier
from kubexm_exec.engine.ports import Entries
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode
from kubexm_exec.model.result import BLOCKED, HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action

TAKEN_BACK: Final = ("undone", "undoFailed", "leftAlone")
"""Outcomes of an undo after which an action does not count as done any more."""


def is_done(result: HostResult) -> bool:
    """Whether an action ended well: a success, or nothing to do."""
    return result.status is Status.SUCCESS or result.reason is SkipReason.PRECHECK


def is_blocked(result: HostResult) -> bool:
    """Whether an action was not tried, and is still to be done."""
    return result.status is Status.CANCELLED or result.reason in BLOCKED


def rescued(result: HostResult) -> HostResult:
    """The result of an action whose failure, or what it led to, a rescue has handled."""
    return replace(result, rescued=True, ignored=result.ignored or result.status is Status.FAILED)


class Change(Struct, frozen=True):
    """What one attempt changed, or may have: it failed in the middle."""

    time: float
    session: int
    """The number of the session, from 1."""
    sure: bool
    message: str = ""
    diffs: Sequence[Mapping[str, Any]] = ()


class ActionHistory(Struct, gc=False):
    """One action over all sessions."""

    begun: bool = False
    """The last entry is the start of an attempt."""
    looking: bool = False
    """That attempt is known not to have got beyond precheck."""
    again: bool = False
    """It runs again, however it ended."""
    inputs: str = ""
    """Digest of the inputs of its last attempt."""
    started: float = 0.0
    place: str = ""
    """Where its last attempt began, if the run has chosen that."""
    attempts: int = 0
    """How many attempts there were, in all sessions."""
    since: int = 0
    """How many actions had ended before its last attempt began."""
    acted: int = -1
    """The same of its last attempt that has ended and may have done something; -1 without one, or if it was undone."""
    result: HostResult | None = None
    """How it ended last."""
    hidden: bool = False
    """Its outputs were not recorded: they contain a secret."""
    nodes: Sequence[ExecutionNode] = ()
    """The nodes of its fragment."""
    dropped: Sequence[ExecutionNode] = ()
    """The nodes of fragments that it had before, and has no longer: what they did can still be undone."""
    forgotten: bool = False
    """Its fragment was not recorded: it contains a secret."""
    changed: int = 0
    """The number of its last end with a change; 0 if there was none, or it was undone."""
    succeeded: int = 0
    """The number of its last end that counts as done; 0 if there was none, or it was undone."""
    worked: bool = False
    """Its last attempt failed beyond precheck: something may have been changed."""
    undo: tuple[entries.Undo, ...] = ()
    """The undo data of its attempts, one each, in order; empty after the undo."""
    saved: bool = False
    """The last of these is from the current attempt."""
    undone: str = ""
    """The outcome of its undo."""
    undoing: bool = False
    """The last entry is the start of its undo."""
    asks: str = ""
    """The question whose answer its current attempt waits for."""
    retries: tuple[entries.Retry, ...] = ()
    changes: tuple[Change, ...] = ()
    """What its attempts changed, in all sessions."""
    left_by: tuple[int, ...] = ()
    """The epochs of the sessions that may have left something running for it on the host."""

    @property
    def taken_back(self) -> bool:
        """Whether its undo has begun: nothing that depends on it can be relied upon then."""
        return self.undoing or self.undone.startswith(TAKEN_BACK)

    @property
    def last_acted(self) -> int:
        """How many actions had ended before the last attempt began that may have done something; -1 without one."""
        return self.since if self.begun else self.acted

    @property
    def was_tried(self) -> bool:
        """Whether the result is that of an attempt."""
        return self.result is not None and self.result.start_time is not None

    @property
    def done(self) -> bool:
        """Whether it was done, and was not undone."""
        if self.result is None or self.forgotten or self.undone.startswith(TAKEN_BACK):
            return False
        return is_done(self.result)

    @property
    def settled(self) -> bool:
        """Whether it may stay as it is: it was done, or it has failed, and a rescue goes on from there."""
        result = self.result
        failed = result is not None and (result.rescued or result.status is Status.FAILED) and not result.unknown
        return self.done or failed

    def save(self, entry: entries.Undo | None) -> None:
        """Note the undo data of the current attempt, instead of what it saved before; None: nothing."""
        kept = self.undo[:-1] if self.saved else self.undo
        self.saved = entry is not None and entry.data is not None
        self.undo = (*kept, entry) if entry is not None and self.saved else kept

    def working(self, epoch: int, *, works: bool) -> None:
        """Note whether a session may have something running for it on the host."""
        if works != (epoch in self.left_by):
            self.left_by = (*self.left_by, epoch) if works else tuple(each for each in self.left_by if each != epoch)


class Known(Struct, frozen=True):
    """What earlier sessions tell about an action that may run: its outcome, or that it is unknown."""

    outcome: ActionOutcome | None = None
    """The outcome, if it is to count; None: the action runs."""
    doubt: str = ""
    """Why the outcome is unknown, if it is."""
    started: float = 0.0
    undo: Sequence[entries.Undo] = ()
    """The undo data of its attempts, in order."""
    worked: bool = False
    """Its last attempt failed beyond precheck."""
    earlier: Earlier = Earlier()
    """When it changed something, and when it succeeded."""
    undoing: bool = False
    """An undo of it was interrupted."""
    owed: bool = False
    """It follows what began in an earlier session, whatever begins in this one: it counts as done, or runs."""
    follows: bool = False
    """It runs because of what begins or fails in its scope: if that happens in this session, an earlier attempt of
    unknown outcome does not matter any more."""


class SessionHistory(Struct):
    """One process's work on the run."""

    mode: str
    holder: str
    begun: float
    last: float = 0.0
    """The time of its last entry."""
    ended: float | None = None
    status: str = ""
    message: str = ""
    stop: str = ""


class Elsewhere(Struct, frozen=True):
    """The last attempt of an action in other runs of the target."""

    began: float
    done: bool


class RunHistory(Struct):
    """All entries of a run put together."""

    actions: dict[Action, ActionHistory] = field(default_factory=dict)
    """In the order they ended, or began."""
    sessions: list[SessionHistory] = field(default_factory=list)
    last: int = 0
    """Number of the last group of entries."""
    epoch: int = 0
    """The epoch of the entries that are being added."""
    ends: int = 0
    """How many ends of actions and beginnings of sessions there were: a clock without time."""
    elsewhere: Mapping[Action, Elsewhere] = {}
    """Hooks that other runs of the target have begun as well, if somebody has looked."""

    def of(self, node: str, host: str) -> ActionHistory:
        """The history of an action."""
        key = Action(node, host)
        found = self.actions.get(key)
        if found is None:
            found = self.actions[key] = ActionHistory()
        return found

    def left(self) -> dict[str, list[tuple[int, str]]]:
        """What may have been left running, by host: epochs of sessions, and nodes."""
        found: dict[str, list[tuple[int, str]]] = {}
        for key, action in self.actions.items():
            for epoch in action.left_by:
                found.setdefault(key.host, []).append((epoch, key.node))
        return found

    def add(self, entry: entries.Entry) -> None:
        """One more entry."""
        match entry:
            case entries.Start() | entries.End():  # first, since there are two for each action
                self._action(entry)
            case entries.Session():
                self.sessions.append(SessionHistory(entry.mode, entry.holder, entry.time))
                # What begins from here on begins after everything that was interrupted, though that has no end.
                self.ends += 1
                for some in entry.again:
                    self.repeat(some)
            case entries.Stop():
                self.sessions[-1].stop = entry.reason
            case entries.Ended():
                session = self.sessions[-1]
                session.ended, session.status, session.message = entry.time, entry.status, entry.message
            case _:
                self._action(entry)
        if self.sessions:
            self.sessions[-1].last = max(self.sessions[-1].last, entry.time or 0.0)

    def repeat(self, some: entries.Repeat) -> None:
        """Have actions of some nodes run again that were done, or that a rescue follows; on some hosts or on all."""
        nodes = frozenset(some.nodes)
        for key, action in self.actions.items():
            if key.node in nodes and (some.hosts is None or key.host in some.hosts) and action.settled:
                action.again = True

    def _action(self, entry: entries.OfAction) -> None:
        action = self.of(entry.node, entry.host)
        match entry:
            case entries.Start():
                action.working(self.epoch, works=True)
                action.acted = action.last_acted
                # What was cut short at its work, or while it was undone, is in doubt until an attempt ends, not until
                # the next one looks.
                action.looking = entry.tells and (action.looking or not action.begun) and not action.undoing
                action.begun, action.started, action.inputs = True, entry.time, entry.inputs
                action.place = entry.place
                action.attempts += 1
                action.asks = ""
                action.since = self.ends
                action.saved = False
                # From here on there is something to undo again.
                action.undone, action.undoing = "", False
            case entries.End():
                self._end(action, entry)
            case entries.Asks():
                action.asks = entry.question
            case entries.Retry():
                # An attempt that failed has ended; one whose connection dropped may have done its work.
                action.begun = bool(entry.unsure)
                if not action.begun:
                    action.working(self.epoch, works=False)
                action.worked |= entry.worked
                if entry.worked:
                    action.acted = action.since
                action.retries = (*action.retries, entry)
                if entry.diffs:
                    self._change(action, entry.time, entry.message, entry.diffs, sure=False)
            case entries.Work():
                action.looking = False
            case entries.Rescued():
                action.result = action.result and rescued(action.result)
            case entries.Undo():
                action.save(entry)
            case entries.Undoing():
                action.undoing = True
                action.working(self.epoch, works=True)
            case entries.Undone():
                self._undone(action, entry)

    def _end(self, action: ActionHistory, entry: entries.End) -> None:
        if entry.result.start_time is None and (action.begun or (action.was_tried and is_blocked(entry.result))):
            # It was not tried this time: what an earlier session did, or was at, is as it was.
            return
        action.begun, action.again, action.result = False, False, entry.result
        if not entry.result.unknown:
            action.working(self.epoch, works=False)
        if action.nodes or action.dropped:
            here = {node.id for node in entry.nodes}
            action.dropped = [node for node in (*action.dropped, *action.nodes) if node.id not in here]
        action.hidden, action.nodes, action.forgotten = entry.hidden, entry.nodes, entry.forgotten
        action.undone = ""
        action.worked = entry.worked or (action.worked and not action.done)
        # An attempt that only failed to find out how far an earlier one came has done nothing itself.
        if action.done or entry.worked or (entry.result.unknown and action.acted < 0):
            action.acted = action.since
        self.ends += 1
        if action.result.changed:
            action.changed = self.ends
        if action.result.changed or (action.result.diffs and entry.worked):
            made = action.result
            self._change(action, made.end_time or 0.0, made.message, made.diffs, sure=made.changed)
        if action.done:
            # This settles an interrupted undo, too: the action is done.
            action.succeeded, action.undoing = action.since + 1 if entry.confirmed else self.ends, False
        if action.saved and action.result.status is Status.SUCCESS and not action.result.changed:
            action.save(None)
        # Removed and added again: the order is that of the ends.
        key = Action(entry.node, entry.host)
        self.actions[key] = self.actions.pop(key)

    def _change(
        self, action: ActionHistory, time: float, message: str, diffs: Sequence[Mapping[str, Any]], *, sure: bool
    ) -> None:
        action.changes = (*action.changes, Change(time, len(self.sessions), sure, message, diffs))

    def _undone(self, action: ActionHistory, entry: entries.Undone) -> None:
        action.undoing = False
        if entry.state in TAKEN_BACK:
            # It is not done any more, so that all changes before count for it again.
            action.again, action.succeeded = False, 0
        said = f": {entry.message}" if entry.message else ""
        action.undone = "" if entry.state == "nothing" else entry.state + said
        if entry.state in ("undone", "nothing"):
            action.undo, action.saved = (), False
            action.changed, action.worked, action.acted = 0, False, -1
        if entry.state == "undone":
            action.working(self.epoch, works=False)


def tell(store: Entries, run: str) -> RunHistory:
    """The history of a run as the journal has it now."""
    history = RunHistory()
    for seq, epoch, group in store.entries(run, read=entries.read):
        history.epoch = epoch
        for entry in group:
            history.add(entry)
        history.last = seq
    return history


def whole_graph(graph: ExecutionGraph, history: RunHistory, *, dropped: bool = False) -> ExecutionGraph:
    """The graph with its fragments, and with ``runOnce`` nodes on the host that was chosen last.

    ``dropped``: also with those that a later session has replaced.
    """
    nodes = dict(graph.nodes)
    for action in history.actions.values():
        for node in (*action.dropped, *action.nodes) if dropped else action.nodes:
            nodes[node.id] = _merged(nodes.get(node.id), node)
    whole = graph if len(nodes) == len(graph.nodes) else graph.with_nodes(nodes.values())
    whole = _placed(whole, history, lambda told: told.begun or told.result is not None)
    return _at_places(whole, history, lambda action, told: bool(told.place), for_good=False)


def staying(
    graph: ExecutionGraph, history: RunHistory, anew: Callable[[str, str], bool] = lambda node, host: False
) -> ExecutionGraph:
    """The graph for a resume: what was done, or may have been, stays on the host or at the place of that time.

    ``anew``: actions that are to be run again, for which a place is chosen again.
    """
    placed = _placed(
        graph, history, lambda told: told.begun or told.done or (told.result is not None and told.result.unknown)
    )
    return _at_places(placed, history, lambda action, told: told.last_acted >= 0 and not anew(*action), for_good=True)


def _at_places(
    graph: ExecutionGraph, history: RunHistory, counts: Callable[[Action, ActionHistory], bool], *, for_good: bool
) -> ExecutionGraph:
    """The graph with chosen places as they were; ``for_good``: there is no choice any more."""
    if not any(node.choices for node in graph.nodes.values()):
        return graph
    found: dict[str, dict[str, str]] = {}
    for action, told in history.actions.items():
        node = graph.nodes.get(action.node)
        if told.place and node is not None and action.host in node.places and counts(action, told):
            found.setdefault(node.id, {})[action.host] = told.place
    return graph.with_nodes(
        node
        if node.id not in found
        else replace(
            node,
            places={**node.places, **found[node.id]},
            choice={**node.choice, **dict.fromkeys(found[node.id], -1)} if for_good else node.choice,
        )
        for node in graph.nodes.values()
    )


def _placed(graph: ExecutionGraph, history: RunHistory, counts: Callable[[ActionHistory], bool]) -> ExecutionGraph:
    """The graph with ``runOnce`` nodes on the last host whose history counts."""
    hosts: dict[str, str] = {}
    if any(node.once for node in graph.steps()):
        for key, told in history.actions.items():
            node = graph.nodes.get(key.node)
            if node is not None and node.once and key.host in node.candidates and counts(told):
                hosts[node.once] = key.host
    if not hosts:
        return graph
    return graph.with_nodes(_first(node, hosts.get(node.once or node.id, "")) for node in graph.nodes.values())


def _first(node: ExecutionNode, host: str) -> ExecutionNode:
    """A ``runOnce`` node, or the gate that chooses its host, with one host first."""
    if not host or not node.candidates:
        return node
    order = tuple(sorted(node.candidates, key=lambda each: each != host))
    if node.is_gate:
        return replace(node, candidates=order)
    return replace(node, candidates=order, hosts=order[:1] if order[0] == host else ())


def with_earlier(graph: ExecutionGraph, earlier: Iterable[ExecutionGraph]) -> ExecutionGraph:
    """The graph with the nodes and hosts of earlier versions; the first graph takes precedence."""
    nodes, hosts, scopes = dict(graph.nodes), dict(graph.hosts), dict(graph.scopes)
    for other in earlier:
        for node in other.nodes.values():
            nodes[node.id] = _merged(nodes.get(node.id), node)
        hosts = {**other.hosts, **hosts}
        scopes = {**other.scopes, **scopes}
    return replace(graph, nodes=nodes, hosts=hosts, scopes=scopes)


def _merged(known: ExecutionNode | None, node: ExecutionNode) -> ExecutionNode:
    return node if known is None else known.joined(node)
