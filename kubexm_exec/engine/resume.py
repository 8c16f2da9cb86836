"""Decides for every action of a resumed run whether it is done, may be done, or runs again."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.engine.attempt import ActionOutcome, Earlier
from kubexm_exec.engine.entries import Repeat
from kubexm_exec.engine.history import ActionHistory, Known, RunHistory
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Hook
from kubexm_exec.model.result import BLOCKED, HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action

END_HOOKS: Final = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)
"""Hooks at the end of a scope; they may undo what its ``pre`` hooks did."""
_STEP: Final = re.compile(r"[^/\[+]*")
Scope: TypeAlias = tuple[str, str]
"""The id of a pipeline (empty), module, task or step that has hooks; for a step with its host."""
_BROKE_OFF: Final = "the run was interrupted during this action, and its outcome is unknown"
_UNDOING: Final = "the run was interrupted while this was being undone, and the outcome is unknown"
_UNSURE: Final = "the outcome of an earlier attempt is unknown"
_HIDDEN: Final = "an earlier session did it, and its outputs were not recorded because they contain a secret"
_SEEN: Final = "confirmed as done by the user who resumed the run"


class Selection(Struct, frozen=True, kw_only=True):
    """What to run, besides actions that are not done."""

    begin: tuple[str, ...] = ()
    """Globs of nodes to run again with all that depends on them; only on the hosts, if given."""
    only: tuple[str, ...] = ()
    """Globs of nodes; others that are not done stay as they are."""
    hosts: frozenset[str] | None = None
    """Hosts; on others what is not done stays as it is."""
    done: tuple[str, ...] = ()
    """Globs of nodes with an unknown outcome that the user has confirmed as done."""
    changed: frozenset[str] = frozenset()
    """Nodes whose spec has changed; they, and all that depends on them, run again."""

    @property
    def partial(self) -> bool:
        """Whether actions that are not done may stay so."""
        return bool(self.only) or self.hosts is not None

    def begins(self, node: str, host: str) -> bool:
        """Whether an action was chosen to run again."""
        return matches(node, self.begin) and (self.hosts is None or not host or host in self.hosts)

    def repeats(self, node: str, host: str) -> bool:
        """Whether an action runs again, because it was chosen or has changed."""
        return node in self.changed or self.begins(node, host)

    def wants(self, node: str, host: str) -> bool:
        """Whether an action that is not done runs."""
        if self.hosts is not None and host not in self.hosts:
            return False
        return not self.only or matches(node, self.only)


def matches(node: str, globs: Collection[str]) -> bool:
    """Whether a node is named by its id, a glob of ids, or its module or task."""
    return any(node == glob or node.startswith(f"{glob}/") or fnmatchcase(node, glob) for glob in globs)


def known_actions(graph: ExecutionGraph, history: RunHistory, selection: Selection) -> Mapping[Action, Known]:
    """What earlier sessions of a run tell about the actions of its graph."""
    known = _told(graph, history, selection)
    scopes = _entered(graph, known, history, selection)
    for action in scopes.hooks():
        entry = known.get(action)
        if entry is not None and entry.outcome is not None:
            known[action] = Known(undo=entry.undo, undoing=entry.undoing, earlier=entry.earlier)
    for action in scopes.shut_in():
        told = history.actions[action]
        skipped = told.result is not None and told.result.reason is SkipReason.CONDITION
        if told.result is not None and skipped and not told.begun and not _has_ended(known, action):
            # Evaluated again its condition might hold, without what the ``pre`` hooks had prepared.
            known[action] = replace(known.get(action, Known()), outcome=ActionOutcome(told.result))
    # In the order they ended, which an undo reverses.
    ended = {action: number for number, action in enumerate(history.actions)}
    return dict(sorted(known.items(), key=lambda item: ended.get(item[0], len(ended))))


def to_repeat(graph: ExecutionGraph, history: RunHistory, selection: Selection) -> list[Repeat]:
    """What to run again although it was done, for the entry of a session; also noted in the history."""
    changed, chosen = [], []
    for node in graph.nodes.values():
        for host in node.hosts or ("",):
            if node.id in selection.changed:
                changed.append(Action(node.id, host))
            elif selection.begins(node.id, host):
                chosen.append(Action(node.id, host))
    found = after_undo(graph, history) | _with_dependents(graph, changed)
    found |= {
        action
        for action in _with_dependents(graph, chosen)
        if selection.hosts is None or action.host in selection.hosts
    }
    again = _together(graph, found)
    for some in again:
        history.repeat(some)
    return again + _together(graph, _entered(graph, _told(graph, history, selection), history, selection).hooks())


def _together(graph: ExecutionGraph, actions: Iterable[Action]) -> list[Repeat]:
    """Actions grouped for the entry of a session: nodes with the same hosts together, None for all their hosts."""
    on: dict[str, list[str]] = {}
    for node, host in sorted(actions):
        if host:
            on.setdefault(node, []).append(host)
    together: dict[tuple[str, ...] | None, list[str]] = {}
    for name, hosts in on.items():
        together.setdefault(None if len(hosts) == len(graph.nodes[name].hosts) else tuple(hosts), []).append(name)
    return [Repeat(tuple(nodes), hosts) for hosts, nodes in together.items()]


def after_undo(graph: ExecutionGraph, history: RunHistory) -> set[Action]:
    """The undone actions and all that depend on them, also those that could not be undone themselves."""
    return _with_dependents(
        graph, [action for action, told in history.actions.items() if told.taken_back and action.node in graph.nodes]
    )


def _told(graph: ExecutionGraph, history: RunHistory, selection: Selection) -> dict[Action, Known]:
    """What is known of each action alone."""
    known: dict[Action, Known] = {}
    for node in graph.steps():
        for host in node.may_run_on:
            action = Action(node.id, host)
            found = _known(node, host, history.actions.get(action), selection)
            if found is not None:
                known[action] = found
    return known


def _known(node: ExecutionNode, host: str, told: ActionHistory | None, selection: Selection) -> Known | None:
    if told is None:
        return None if selection.wants(node.id, host) else Known(ActionOutcome(_unchosen(host, None)))
    doubt = _doubt(told)
    known = Known(undo=tuple(told.undo), undoing=told.undoing, earlier=Earlier(told.changed, told.succeeded))
    if doubt and not selection.begins(node.id, host):
        # Its outcome must be settled before anything else, unless it was chosen to run again.
        return replace(known, doubt=doubt, started=told.started)
    if not told.again and told.done:
        assert told.result is not None
        outcome = _kept(node, told.result, told)
        outcome.added = told.nodes
        return replace(known, outcome=outcome, started=told.started)
    if not selection.wants(node.id, host):
        return replace(known, outcome=_kept(node, _unchosen(host, told.result), told))
    return replace(known, worked=told.worked)


def _unchosen(host: str, kept: HostResult | None) -> HostResult:
    """The result of an action that is not done and stays so."""
    if kept is not None and (kept.status is Status.FAILED or kept.reason is SkipReason.CONDITION):
        return kept
    return HostResult(host_name=host, status=Status.CANCELLED, message="not chosen for this session")


def _kept(node: ExecutionNode, result: HostResult, told: ActionHistory) -> ActionOutcome:
    """A result of an earlier session with its recorded outputs."""
    if told.hidden and result is told.result:
        return ActionOutcome(result, unknown=f"{_HIDDEN}; resume with --from {node.id} to produce them again")
    return ActionOutcome(result, result.outputs or None)


def in_doubt(history: RunHistory, globs: Collection[str]) -> list[Action]:
    """The actions of some nodes whose outcome is unknown."""
    return [action for action, told in history.actions.items() if _doubt(told) and matches(action.node, globs)]


def seen_done(action: Action) -> ActionOutcome:
    """The outcome of an action that the user has confirmed as done."""
    now = time.time()
    return ActionOutcome(
        HostResult(
            host_name=action.host, status=Status.SUCCESS, changed=True, message=_SEEN, start_time=now, end_time=now
        )
    )


def _doubt(told: ActionHistory | None) -> str:
    """Why the outcome of an action is unknown; empty if it is not."""
    # After a successful undo it does not matter.
    if told is None or told.undone.startswith("undone"):
        return ""
    if told.begun:
        return _BROKE_OFF
    if told.undoing:
        return _UNDOING
    return _UNSURE if told.result is not None and told.result.unknown and not told.done else ""


def _with_dependents(graph: ExecutionGraph, first: Iterable[Action]) -> set[Action]:
    """Actions and all that depend on them: on the same host, or through gates, which have an empty host."""
    found = set(first)
    if not found:
        return found
    import networkx as nx

    order, start = graph.digraph(), ("", "")
    for action in found:
        # Gates may have waited for a host that has been removed since.
        if action not in order:
            waiting = ((each.id, dep) for each in graph.nodes.values() if not each.hosts for dep in each.dependencies)
            gates = (gate for gate, dep in waiting if dep.node == action.node and dep.hosts is None)
            order.add_edges_from((action, (gate, "")) for gate in gates)
        order.add_edge(start, action)
    return found.union(Action(*each) for each in nx.descendants(order, start))


def _entered(graph: ExecutionGraph, known: Mapping[Action, Known], history: RunHistory, selection: Selection) -> Scopes:
    """The scopes of the graph, with those entered in this session, or possibly entered."""
    scopes = Scopes(graph, history)
    undone = [
        action
        for node in graph.steps()
        for host in node.hosts
        if not _has_ended(known, action := Action(node.id, host))
        and (_may_run(node, history.actions.get(action)) or selection.repeats(node.id, host))
    ]
    if not scopes.any:
        return scopes
    scopes.enter(undone)
    if undone:
        # A condition may hold this time.
        work = [action for action in undone if not graph.nodes[action.node].hook]
        scopes.enter(
            action
            for action in _with_dependents(graph, work)
            if action.host and graph.nodes[action.node].hook not in END_HOOKS and not _has_ended(known, action)
        )
    return scopes


def _may_run(node: ExecutionNode, told: ActionHistory | None) -> bool:
    """Whether an action that has not ended will run, as far as is known."""
    result = None if told is None or told.begun or told.again else told.result
    if result is None or result.status is not Status.SKIPPED:
        return True
    # A condition is evaluated again, but alone enters no scope; nor does a hook that was not needed.
    return result.reason in BLOCKED and node.hook not in END_HOOKS


def _has_ended(known: Mapping[Action, Known], action: Action) -> bool:
    entry = known.get(action)
    return entry is not None and entry.outcome is not None


class Scopes:
    """The scopes of a graph that have hooks, and which of them are entered in a session.

    Actions of a scope run between its ``pre`` hooks and the others: in each session that enters the scope the others
    run again, and so does a ``pre`` hook if one of them has started since it succeeded. Otherwise its effect holds.
    """

    def __init__(self, graph: ExecutionGraph, history: RunHistory) -> None:
        self._graph = graph
        self._history = history
        self._hooks = [node for node in graph.steps() if node.hook]
        self.any = bool(self._hooks)
        self._entered: set[Scope] = set()
        self._ended: dict[Scope, int] = {}
        """After how many ends of actions a hook at the end of a scope last began."""
        for action, node in self._actions():
            told = history.actions.get(action)
            if node.hook in END_HOOKS and told is not None and told.attempts:
                scope = _own(node, action.host)
                self._ended[scope] = max(told.since, self._ended.get(scope, 0))

    def enter(self, actions: Iterable[Action]) -> None:
        """Actions run, or may."""
        for action in actions:
            node = self._graph.nodes[action.node]
            around = _around(node, action.host)
            if node.hook in (Hook.ON_FAILURE, Hook.ALWAYS):
                # Cleaning up needs no preparation by ``pre`` hooks.
                around.remove(_own(node, action.host))
            self._entered.update(around)

    def hooks(self) -> Iterator[Action]:
        """The hooks that run again because their scopes are entered, whatever their outcome was."""
        for action, node in self._actions():
            scope = _own(node, action.host)
            if scope in self._entered and (node.hook in END_HOOKS or self._is_taken_back(action, scope)):
                yield action

    def shut_in(self) -> Iterator[Action]:
        """The known actions in scopes that are not entered, and whose ``pre`` hooks may have been undone."""
        shut = {
            scope
            for action, node in self._actions()
            if node.hook is Hook.PRE
            and (scope := _own(node, action.host)) not in self._entered
            and self._is_taken_back(action, scope)
        }
        if shut:
            for action in self._history.actions:
                inside = self._graph.nodes.get(action.node)
                if inside is not None and not shut.isdisjoint(_around(inside, action.host)):
                    yield action

    def _actions(self) -> Iterator[tuple[Action, ExecutionNode]]:
        return ((Action(node.id, host), node) for node in self._hooks for host in node.may_run_on)

    def _is_taken_back(self, action: Action, scope: Scope) -> bool:
        """Whether a ``pre`` hook was done, and possibly undone since by a hook at the end of its scope."""
        told = self._history.actions.get(action)
        return told is not None and told.done and (told.again or self._ended.get(scope, -1) >= told.succeeded)


def _around(node: ExecutionNode, host: str) -> list[Scope]:
    """The scopes of an action, outermost first; the last one is the scope whose hook it is."""
    scopes = [("", "")]
    if node.module:
        scopes.append((node.module, ""))
    if node.task:
        task = f"{node.module}/{node.task}"
        scopes.append((task, ""))
        if not (node.hook and node.id.startswith(f"{task}/hooks/{node.hook.value}/")):
            step = _STEP.match(node.id, len(task) + 1)
            scopes.append((node.id[: step.end()] if step else node.id, host))
    return scopes


def _own(node: ExecutionNode, host: str) -> Scope:
    """The scope whose hook an action is."""
    return _around(node, host)[-1]
