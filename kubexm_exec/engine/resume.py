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
from kubexm_exec.engine.history import ActionHistory, Known, RunHistory, is_done
from kubexm_exec.model.graph import END_HOOKS, ExecutionGraph, ExecutionNode, Hook, Part
from kubexm_exec.model.result import BLOCKED, HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action

_STEP: Final = re.compile(r"[^/\[+]*")
Scope: TypeAlias = tuple[str, str]
"""The id of a pipeline (empty), module, task, batch, group or step that has hooks; for a step, a group, and all of a
task on one host, with the host."""
_BROKE_OFF: Final = "the run was interrupted during this action, and its outcome is unknown"
_UNDOING: Final = "the run was interrupted while this was being undone, and the outcome is unknown"
_UNSURE: Final = "the outcome of an earlier attempt is unknown"
_HIDDEN: Final = "an earlier session did it, and its outputs were not recorded because they contain a secret"
_NOTHING_LEFT: Final = "nothing is left to do there in this session"
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
    """Whether a node is named by its id, with or without its item and place, a glob of ids, or its module or task."""
    return any(
        node == glob or node.startswith((f"{glob}/", f"{glob}[", f"{glob}@")) or fnmatchcase(node, glob)
        for glob in globs
    )


def known_actions(
    graph: ExecutionGraph, history: RunHistory, selection: Selection, due: Collection[Action] = ()
) -> Mapping[Action, Known]:
    """What earlier sessions of a run tell about the actions of its graph.

    ``due``: actions of handlers that may run, although they were done before.
    """
    known = _told(graph, history, selection)
    kept = _keep_rescues(graph, known, history)
    scopes = _entered(graph, known, history, selection, due)
    _do_each_session(graph, known, history, selection, due)
    for action in scopes.hooks():
        entry = known.get(action)
        if entry is None:
            continue
        if entry.outcome is not None:
            known[action] = _anew(entry)
        elif entry.doubt and scopes.follows(action):
            known[action] = replace(entry, follows=True)
        elif entry.doubt and graph.nodes[action.node].hook in END_HOOKS:
            # It comes after what is done now, however far it had come before.
            known[action] = replace(_anew(entry), worked=True)
    for action in scopes.shut_in():
        told = history.actions[action]
        skipped = told.result is not None and told.result.reason is SkipReason.CONDITION
        if told.result is not None and skipped and not told.begun and not _has_ended(known, action):
            # Evaluated again its condition might hold, without what the ``pre`` hooks had prepared.
            known[action] = replace(known.get(action, Known()), outcome=ActionOutcome(told.result))
    for action, owed, any_owed, stale in scopes.following():
        entry = known.get(action, Known())
        if entry.doubt and (stale or scopes.is_done_elsewhere(action, entry.started)):
            # Work has begun again since, or another run has done it: how far it came then does not matter any more.
            entry = _anew(entry)
        if entry.outcome is not None and action not in kept and (owed or not is_done(entry.outcome.result)):
            # Whatever was chosen: the host is still out, or is taken out now.
            entry = _anew(entry)
        asked = selection.begins(*action)
        known[action] = replace(entry, owed=any_owed or asked or entry.outcome is not None or bool(entry.doubt))
    # In the order they ended, which an undo reverses.
    ended = {action: number for number, action in enumerate(history.actions)}
    return dict(sorted(known.items(), key=lambda item: ended.get(item[0], len(ended))))


def _anew(known: Known) -> Known:
    """What is known of an action that runs again as if it had not been tried."""
    return Known(undo=known.undo, undoing=known.undoing, earlier=known.earlier)


def to_repeat(
    graph: ExecutionGraph, history: RunHistory, selection: Selection, due: Collection[Action] = ()
) -> list[Repeat]:
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
    told = _told(graph, history, selection)
    _keep_rescues(graph, told, history)
    return again + _together(graph, _entered(graph, told, history, selection, due).hooks())


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
    known: dict[Action, Known] = {}
    for node in graph.steps():
        for host in node.may_run_on:
            action = Action(node.id, host)
            found = _known(node, host, history.actions.get(action), selection)
            if found is not None:
                known[action] = found
    return known


def _keep_rescues(graph: ExecutionGraph, known: dict[Action, Known], history: RunHistory) -> set[Action]:
    """A rescue that has begun on a host goes on: what failed there stays so. One that has failed begins anew.

    Returns what stays so, which hooks may be among.
    """
    kept: set[Action] = set()
    bodies: dict[Scope, list[Action]] = {}
    rescues: dict[Scope, list[Action]] = {}
    able: set[str] = set()
    for node in graph.steps():
        for each in node.groups:
            if each.part is not Part.ALWAYS:
                of = rescues if each.part is Part.RESCUE else bodies
                for host in node.may_run_on:
                    of.setdefault((each.group, host), []).append(Action(node.id, host))
                if each.part is Part.RESCUE and not node.skip:
                    able.add(each.group)
    for scope, rescue in rescues.items():
        body = bodies.get(scope, [])
        if all(_done(known.get(action, Known())) for action in body):
            continue
        ends = [action for action in rescue if _is_end_of(graph.nodes[action.node], scope[0], able)]
        if _has_begun(history, body, rescue) and not any(_has_failed(history.actions.get(action)) for action in ends):
            for action in body:
                told = history.actions.get(action)
                if told is not None and told.result is not None and not _has_ended(known, action):
                    known[action] = replace(known.get(action, Known()), outcome=ActionOutcome(told.result))
                    kept.add(action)
        else:
            for action in rescue:
                entry = known.get(action)
                if entry is not None and entry.outcome is not None and _done(entry):
                    known[action] = _anew(entry)
    return kept


def _is_end_of(node: ExecutionNode, group: str, able: Collection[str]) -> bool:
    """Whether a failure of a node in the rescue of a group is one of that rescue: no group inside it has a rescue."""
    for each in node.groups:
        if each.group == group:
            return True
        if each.part is Part.BODY and each.group in able:
            return False
    return False


def _has_begun(history: RunHistory, body: Iterable[Action], rescue: Iterable[Action]) -> bool:
    """Whether a rescue has begun since a step failed; nothing of the body is to repeat."""
    told = [found for action in body if (found := history.actions.get(action)) is not None]
    if any(each.begun or each.again or each.taken_back or _doubt(each) for each in told):
        return False
    after = [found for action in rescue if (found := history.actions.get(action)) is not None]
    return any(each.begun or each.last_acted >= 0 for each in after)


def _has_failed(told: ActionHistory | None) -> bool:
    """Whether an action has failed in a way that counts; as long as its outcome is unknown, nobody knows."""
    result = None if told is None or _doubt(told) else told.result
    return result is not None and result.status is Status.FAILED and not result.ignored


def _known(node: ExecutionNode, host: str, told: ActionHistory | None, selection: Selection) -> Known | None:
    if told is None:
        return None if selection.wants(node.id, host) else Known(ActionOutcome(_unchosen(host, None)))
    doubt = _doubt(told)
    known = Known(undo=tuple(told.undo), undoing=told.undoing, earlier=Earlier(told.changed, told.succeeded))
    if doubt and not selection.begins(node.id, host) and selection.wants(node.id, host):
        # Its outcome must be settled before anything else, unless it was chosen to run again, or not chosen at all.
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
    if told.begun and not told.looking:
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


def _remaining(
    graph: ExecutionGraph,
    known: Mapping[Action, Known],
    history: RunHistory,
    selection: Selection,
    due: Collection[Action],
) -> list[Action]:
    """The actions that have not ended, and will run as far as is known."""
    return [
        action
        for node in graph.steps()
        if not node.every_session
        for host in node.hosts
        if (action := Action(node.id, host)) in due
        or (
            not _has_ended(known, action)
            and (_may_run(node, history.actions.get(action)) or selection.repeats(node.id, host))
        )
    ]


def _do_each_session(
    graph: ExecutionGraph,
    known: dict[Action, Known],
    history: RunHistory,
    selection: Selection,
    due: Collection[Action],
) -> None:
    """What each session does anew is done on the hosts with something left to do, whatever its outcome was there."""
    again = [node for node in graph.steps() if node.every_session]
    if not again:
        return
    remaining = _remaining(graph, known, history, selection, due)
    busy = {graph.nodes[action.node].place(action.host) for action in remaining}
    for node in again:
        for host in node.hosts:
            action = Action(node.id, host)
            if host in busy:
                known[action] = Known()
            elif action not in known or known[action].outcome is None or not _done(known[action]):
                result = HostResult(
                    host_name=host, status=Status.SKIPPED, reason=SkipReason.CONDITION, message=_NOTHING_LEFT
                )
                known[action] = Known(ActionOutcome(result))


def _done(known: Known) -> bool:
    return known.outcome is not None and is_done(known.outcome.result)


def _entered(
    graph: ExecutionGraph,
    known: Mapping[Action, Known],
    history: RunHistory,
    selection: Selection,
    due: Collection[Action],
) -> Scopes:
    """The scopes of the graph, with those entered in this session, or possibly entered."""
    scopes = Scopes(graph, history)
    if not scopes.any:
        return scopes
    undone = _remaining(graph, known, history, selection, due)
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
    return result.reason in BLOCKED and node.hook not in (Hook.ON_FAILURE, Hook.ALWAYS)


def _has_ended(known: Mapping[Action, Known], action: Action) -> bool:
    entry = known.get(action)
    return entry is not None and entry.outcome is not None


def end_hooks(graph: ExecutionGraph) -> Iterator[Action]:
    """The hooks at the ends of scopes, on each of their hosts."""
    return (Action(node.id, host) for node in graph.steps() if node.hook in END_HOOKS for host in node.may_run_on)


def owed(graph: ExecutionGraph, history: RunHistory) -> list[Action]:
    """The ``always`` hooks of hosts, batches and groups that have to follow what began there, and have not yet."""
    return [action for action, is_owed, *_ in Scopes(graph, history).following() if is_owed]


class Scopes:
    """The scopes of a graph that have hooks, and which of them are entered in a session.

    Actions of a scope run between its ``pre`` hooks and the others: in each session that enters the scope the others
    run again, and so does a ``pre`` hook if one of them has started since it succeeded. Otherwise its effect holds.
    """

    def __init__(self, graph: ExecutionGraph, history: RunHistory) -> None:
        self._graph = graph
        self._history = history
        self._hooks = [
            node for node in graph.steps() if node.hook not in (Hook.NONE, Hook.HANDLER) and not node.every_session
        ]
        self.any = bool(self._hooks)
        self._host_hooks: set[str] = set()
        """Tasks with hooks for each host."""
        self._batches: dict[str, dict[str, Scope]] = {}
        """By task with hooks for each batch, the batch of each host."""
        for node in self._hooks:
            task = f"{node.module}/{node.task}"
            if node.id.startswith(f"{task}/hostHooks/{node.hook.value}/"):
                self._host_hooks.add(task)
            elif node.batch is not None:
                of = self._batches.setdefault(task, {})
                of.update(dict.fromkeys(node.batch.hosts, _batch(task, node.batch.number)))
        self._entered: set[Scope] = set()
        self._ended: dict[Scope, int] = {}
        """After how many ends of actions a hook at the end of a scope last began."""
        for action, node in self._actions():
            told = history.actions.get(action)
            if node.hook in END_HOOKS and told is not None and told.attempts:
                scope = self._own(node, action.host)
                self._ended[scope] = max(told.since, self._ended.get(scope, 0))
        self._ended_elsewhere: dict[Scope, float] = {}
        """When one of them last began in another run."""
        for action, node in self._actions() if history.elsewhere else ():
            if node.hook in END_HOOKS and action in history.elsewhere:
                scope = self._own(node, action.host)
                began = history.elsewhere[action].began
                self._ended_elsewhere[scope] = max(began, self._ended_elsewhere.get(scope, 0.0))

    def enter(self, actions: Iterable[Action]) -> None:
        """Actions run, or may."""
        for action in actions:
            node = self._graph.nodes[action.node]
            around = self._around(node, action.host)
            if node.hook in (Hook.ON_FAILURE, Hook.ALWAYS):
                # Cleaning up needs no preparation by ``pre`` hooks.
                around.pop()
            self._entered.update(around)

    def hooks(self) -> Iterator[Action]:
        """The hooks that run again because their scopes are entered, whatever their outcome was."""
        for action, node in self._actions():
            scope = self._own(node, action.host)
            if scope in self._entered and (node.hook in END_HOOKS or self._is_taken_back(action, scope)):
                yield action

    def follows(self, action: Action) -> bool:
        """Whether an action runs because of what begins or fails in its scope."""
        node = self._graph.nodes[action.node]
        if node.hook is Hook.ALWAYS:
            return self._follows(self._own(node, action.host))
        return node.hook is Hook.ON_FAILURE

    def following(self) -> Iterator[tuple[Action, bool, bool, bool]]:
        """The ``always`` hooks of batches and hosts, and whether each one, or any of them there, is owed, and whether
        its last attempt is older than what it has to follow.

        A host that a killed session has taken out is put back by the next one, whatever that is asked to do; unless
        another run has put it back since.
        """
        hooks = [
            (action, scope)
            for action, node in self._actions()
            if node.hook is Hook.ALWAYS and self._follows(scope := self._own(node, action.host))
        ]
        guarded = {scope for _, scope in hooks}
        last: dict[Scope, int] = {}
        began: dict[Scope, float] = {}
        for action, told in self._history.actions.items() if guarded else ():
            node = self._graph.nodes.get(action.node)
            if node is None or told.last_acted < 0 or node.hook in (Hook.ON_FAILURE, Hook.ALWAYS):
                continue
            for scope in self._around(node, action.host):
                if scope in guarded:
                    last[scope] = max(told.last_acted, last.get(scope, 0))
                    began[scope] = max(told.started, began.get(scope, 0.0))
        nothing = ActionHistory()
        owed = {
            action: scope
            for action, scope in hooks
            if scope in last
            and self._history.actions.get(action, nothing).succeeded <= last[scope]
            and not self.is_done_elsewhere(action, began[scope])
        }
        open_scopes = set(owed.values())
        for action, scope in hooks:
            stale = self._history.actions.get(action, nothing).since < last.get(scope, 0)
            yield action, action in owed, scope in open_scopes, stale

    def shut_in(self) -> Iterator[Action]:
        """The known actions in scopes that are not entered, and whose ``pre`` hooks may have been undone."""
        shut = {
            scope
            for action, node in self._actions()
            if node.hook is Hook.PRE
            and (scope := self._own(node, action.host)) not in self._entered
            and self._is_taken_back(action, scope)
        }
        shut |= {scope for scope in self._ended if self._follows(scope) and scope not in self._entered}
        if shut:
            for action in self._history.actions:
                inside = self._graph.nodes.get(action.node)
                if inside is not None and not shut.isdisjoint(self._around(inside, action.host)):
                    yield action

    def _actions(self) -> Iterator[tuple[Action, ExecutionNode]]:
        return ((Action(node.id, host), node) for node in self._hooks for host in node.may_run_on)

    def _is_taken_back(self, action: Action, scope: Scope) -> bool:
        """Whether a ``pre`` hook was done, and possibly undone since by a hook at the end of its scope."""
        told = self._history.actions.get(action)
        if told is None or not told.done:
            return False
        ended_since = self._ended.get(scope, -1) >= told.succeeded
        return told.again or ended_since or self._ended_elsewhere.get(scope, 0.0) > told.started

    def is_done_elsewhere(self, action: Action, since: float) -> bool:
        """Whether another run has done an action after that time."""
        found = self._history.elsewhere.get(action)
        return found is not None and found.done and found.began > since

    def _around(self, node: ExecutionNode, host: str) -> list[Scope]:
        """The scopes of an action, outermost first; the last one is the scope whose hook it is."""
        scopes = [("", "")]
        if node.module:
            scopes.append((node.module, ""))
        if not node.task:
            return scopes
        task = f"{node.module}/{node.task}"
        scopes.append((task, ""))
        of_task = node.hook and not node.groups and node.id.startswith(f"{task}/hooks/{node.hook.value}/")
        if of_task:
            return scopes
        if node.batch is not None:
            return [*scopes, _batch(task, node.batch.number)]
        if batch := self._batches.get(task, {}).get(host):
            scopes.append(batch)
        if task in self._host_hooks:
            scopes.append((f"{task}/hostHooks/", host))
            if node.hook and node.id.startswith(f"{task}/hostHooks/{node.hook.value}/"):
                return scopes
        if node.handler:
            return scopes
        scopes += [(f"{each.group}/", host) for each in reversed(node.groups)]
        if node.is_of_group:
            return scopes
        step = _STEP.match(node.id, len(task) + 1)
        scopes.append((node.id[: step.end()] if step else node.id, host))
        return scopes

    def _own(self, node: ExecutionNode, host: str) -> Scope:
        """The scope whose hook an action is."""
        return self._around(node, host)[-1]

    def _follows(self, scope: Scope) -> bool:
        """Whether a scope is a batch, or a group or all of a task on one host: its ``always`` hooks follow what began
        there."""
        return scope[0].endswith("/")


def _batch(task: str, number: int) -> Scope:
    # The slash: there may be a step of that name.
    return f"{task}/batchHooks/{number}/", ""
