"""Says for every action of a run that is resumed whether it is done, may be done, or is to be run again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.engine.attempt import ActionOutcome, Earlier
from kubexm_exec.engine.entries import Repeat
from kubexm_exec.engine.history import ActionHistory, RunHistory
from kubexm_exec.engine.hookscopes import END_HOOKS, Scopes
from kubexm_exec.engine.prior import Known
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode
from kubexm_exec.model.result import BLOCKED, HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action

DOUBT: Final = "the run broke off while this was being done"
UNDOING: Final = "the run broke off while this was being undone, and how far that came is not known"
UNSURE: Final = "it is not known whether it was done before"
_HIDDEN: Final = "an earlier session did it, and its outputs are not kept because there is a secret in them"
_SEEN: Final = "it was done, says who resumed the run"


class Selection(Struct, frozen=True, kw_only=True):
    """What is to be run again, besides what is not done."""

    begin: tuple[str, ...] = ()
    """Globs of nodes that are run again with all that depends on them, done or not; only on the hosts, if given."""
    only: tuple[str, ...] = ()
    """Globs of nodes; others that are not done are left as they are."""
    hosts: frozenset[str] | None = None
    """Hosts; on others what is not done is left as it is."""
    done: tuple[str, ...] = ()
    """Globs of nodes of which nobody knew whether they were done; they were, as somebody has seen."""
    changed: frozenset[str] = frozenset()
    """Nodes that are not what they were; they, and all that depends on them, are run again."""

    @property
    def partial(self) -> bool:
        """Whether something that is not done may be left so."""
        return bool(self.only) or self.hosts is not None

    def begins(self, node: str, host: str) -> bool:
        """Whether an action is to be run again, done or not."""
        return matches(node, self.begin) and (self.hosts is None or not host or host in self.hosts)

    def repeats(self, node: str, host: str) -> bool:
        """Whether an action is to be run again, because somebody says so or because it is not what it was."""
        return node in self.changed or self.begins(node, host)

    def wants(self, node: str, host: str) -> bool:
        """Whether an action that is not done is to be run."""
        if self.hosts is not None and host not in self.hosts:
            return False
        return not self.only or matches(node, self.only)


def matches(node: str, globs: Collection[str]) -> bool:
    """Whether a node is meant: by its id, a glob of ids, or the module or task it is in."""
    return any(node == glob or node.startswith(f"{glob}/") or fnmatchcase(node, glob) for glob in globs)


def known_actions(graph: ExecutionGraph, history: RunHistory, selection: Selection) -> Mapping[Action, Known]:
    """What earlier sessions have done of a graph."""
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
            # Looked at again it might be run, without what the hooks before it had made ready.
            known[action] = replace(known.get(action, Known()), outcome=ActionOutcome(told.result))
    # In the order they ended: that is the one in which they may have to be undone, backwards.
    ended = {action: number for number, action in enumerate(history.actions)}
    return dict(sorted(known.items(), key=lambda item: ended.get(item[0], len(ended))))


def to_repeat(graph: ExecutionGraph, history: RunHistory, selection: Selection) -> list[Repeat]:
    """What is to be run again although it was done, as a session says it; the history has it so from here on."""
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
    """Some actions as a session says them: nodes with the same hosts at once, None for all that they have."""
    on: dict[str, list[str]] = {}
    for node, host in sorted(actions):
        if host:
            on.setdefault(node, []).append(host)
    together: dict[tuple[str, ...] | None, list[str]] = {}
    for name, hosts in on.items():
        together.setdefault(None if len(hosts) == len(graph.nodes[name].hosts) else tuple(hosts), []).append(name)
    return [Repeat(tuple(nodes), hosts) for hosts, nodes in together.items()]


def after_undo(graph: ExecutionGraph, history: RunHistory) -> set[Action]:
    """What was taken back, and all that depends on it: also what was done then, and could not be undone itself."""
    return _with_dependents(
        graph, [action for action, told in history.actions.items() if told.taken_back and action.node in graph.nodes]
    )


def _told(graph: ExecutionGraph, history: RunHistory, selection: Selection) -> dict[Action, Known]:
    """What is known of each action by itself."""
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
        # Before anything else it must be known what became of it, unless somebody says that it is to be run.
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
    """The result of an action that is not done and is left so."""
    if kept is not None and (kept.status is Status.FAILED or kept.reason is SkipReason.CONDITION):
        return kept
    return HostResult(host_name=host, status=Status.CANCELLED, message="not chosen for this session")


def _kept(node: ExecutionNode, result: HostResult, told: ActionHistory) -> ActionOutcome:
    """A result of an earlier session with the outputs that were written down."""
    if told.hidden and result is told.result:
        return ActionOutcome(result, unknown=f"{_HIDDEN}; resume with --from {node.id} to have them made again")
    return ActionOutcome(result, result.outputs or None)


def in_doubt(history: RunHistory, globs: Collection[str]) -> list[Action]:
    """The actions of some nodes of which nobody knows whether they were done."""
    return [action for action, told in history.actions.items() if _doubt(told) and matches(action.node, globs)]


def seen_done(action: Action) -> ActionOutcome:
    """The outcome of an action of which somebody has seen that it was done."""
    now = time.time()
    return ActionOutcome(
        HostResult(
            host_name=action.host, status=Status.SUCCESS, changed=True, message=_SEEN, start_time=now, end_time=now
        )
    )


def _doubt(told: ActionHistory | None) -> str:
    """Why nobody knows whether an action was done, if that is so."""
    # Whether it was done or not: its undo has succeeded since.
    if told is None or told.undone.startswith("undone"):
        return ""
    if told.begun:
        return f"{DOUBT}, and how far it came is not known"
    if told.undoing:
        return UNDOING
    return UNSURE if told.result is not None and told.result.unknown and not told.done else ""


def _with_dependents(graph: ExecutionGraph, first: Iterable[Action]) -> set[Action]:
    """Some actions, and all that depends on them: on the same host, or over gates, which have an empty host."""
    found = set(first)
    if not found:
        return found
    import networkx as nx

    order, start = graph.digraph(), ("", "")
    for action in found:
        # Also a host that is not there any more may have had gates waiting for it.
        if action not in order:
            waiting = ((each.id, dep) for each in graph.nodes.values() if not each.hosts for dep in each.dependencies)
            gates = (gate for gate, dep in waiting if dep.node == action.node and dep.hosts is None)
            order.add_edges_from((action, (gate, "")) for gate in gates)
        order.add_edge(start, action)
    return found.union(Action(*each) for each in nx.descendants(order, start))


def _entered(graph: ExecutionGraph, known: Mapping[Action, Known], history: RunHistory, selection: Selection) -> Scopes:
    """The scopes of the graph, with those in which something is run in this session, or may be."""
    scopes = Scopes(graph, history)
    undone = [
        action
        for node in graph.steps()
        for host in node.hosts
        if not _has_ended(known, action := Action(node.id, host))
        and (_may_run(node, history.actions.get(action)) or selection.repeats(node.id, host))
    ]
    scopes.enter(undone)
    if scopes.some and undone:
        # A condition may be met this time, after something else was done than before.
        work = [action for action in undone if not graph.nodes[action.node].hook]
        scopes.enter(
            action
            for action in _with_dependents(graph, work)
            if action.host and graph.nodes[action.node].hook not in END_HOOKS and not _has_ended(known, action)
        )
    return scopes


def _may_run(node: ExecutionNode, told: ActionHistory | None) -> bool:
    """Whether an action that has not ended will do something, as far as can be known before."""
    result = None if told is None or told.begun or told.again else told.result
    if result is None or result.status is not Status.SKIPPED:
        return True
    # A condition is looked at again, but nothing follows from that by itself; nor from a hook that was not needed.
    return result.reason in BLOCKED and node.hook not in END_HOOKS


def _has_ended(known: Mapping[Action, Known], action: Action) -> bool:
    entry = known.get(action)
    return entry is not None and entry.outcome is not None
