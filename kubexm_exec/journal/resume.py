"""Says for every action of a run that is resumed whether it is done, may be done, or is to be run again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from kubexm_exec.attempt import ActionOutcome
from kubexm_exec.graph import ExecutionGraph, ExecutionNode, Hook
from kubexm_exec.journal.known import Known
from kubexm_exec.journal.story import ActionStory, Story
from kubexm_exec.result import HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action

DOUBT: Final = "the run broke off while this was being done"
UNDOING: Final = "the run broke off while this was being undone, and how far that came is not known"
_HIDDEN: Final = "an earlier session did it, and its outputs are not kept because there is a secret in them"
_AFTER: Final = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)


class Selection(Struct, frozen=True, kw_only=True):
    """What is to be run again, besides what is not done."""

    begin: tuple[str, ...] = ()
    """Globs of nodes that are run again with all that depends on them, done or not."""
    only: tuple[str, ...] = ()
    """Globs of nodes; others that are not done are left as they are."""
    hosts: frozenset[str] | None = None
    """Hosts; on others what is not done is left as it is."""
    changed: frozenset[str] = frozenset()
    """Nodes that are not what they were; they, and all that depends on them, are run again."""

    def wants(self, node: str, host: str) -> bool:
        """Whether an action that is not done is to be run."""
        if self.hosts is not None and host not in self.hosts:
            return False
        return not self.only or matches(node, self.only)


def matches(node: str, globs: Collection[str]) -> bool:
    """Whether a node is meant: by its id, a glob of ids, or the module or task it is in."""
    return any(node == glob or node.startswith(f"{glob}/") or fnmatchcase(node, glob) for glob in globs)


def known_actions(graph: ExecutionGraph, story: Story, selection: Selection) -> Mapping[Action, Known]:
    """What earlier sessions have done of a graph."""
    again = _again(graph, selection)
    known: dict[Action, Known] = {}
    for node in graph.steps():
        for host in node.hosts:
            action = Action(node.id, host)
            told = story.actions.get(action)
            found = _known(node, host, told, selection, again)
            if found is not None:
                known[action] = found
    _rerun_hooks(graph, known, story)
    return known


def _known(
    node: ExecutionNode, host: str, told: ActionStory | None, selection: Selection, again: Collection[str]
) -> Known | None:
    if told is not None and told.begun:
        # Whatever was asked for: before anything else it must be known what became of it.
        doubt = f"{DOUBT}, and how far it came is not known"
        return Known(doubt=doubt, started=told.started, undo=tuple(told.undo))
    if told is not None and told.undoing:
        return Known(doubt=UNDOING, started=told.started, undo=tuple(told.undo))
    if told is not None and node.id not in again and _is_done(told):
        assert told.result is not None
        outcome = ActionOutcome(told.result, told.result.outputs, added=told.nodes)
        if told.hidden:
            outcome.outputs, outcome.unknown = None, _HIDDEN
        return Known(outcome, started=told.started, undo=tuple(told.undo))
    if not selection.wants(node.id, host):
        left = HostResult(host_name=host, status=Status.CANCELLED, message="not selected for this resume")
        kept = told.result if told is not None else None
        if kept is not None and (kept.status is Status.FAILED or kept.reason is SkipReason.CONDITION):
            left = kept
        return Known(ActionOutcome(left), undo=tuple(told.undo) if told else ())
    return Known(undo=tuple(told.undo)) if told is not None and told.undo else None


def _is_done(told: ActionStory) -> bool:
    """Whether an action was done, and stays so: a success, or nothing to do; undone ones are to be done again."""
    result = told.result
    if result is None or told.forgotten or told.undone.startswith(("undone", "undoFailed")):
        return False
    return result.status is Status.SUCCESS or result.reason is SkipReason.PRECHECK


def _again(graph: ExecutionGraph, selection: Selection) -> frozenset[str]:
    """The nodes that are run again although they are done, with all that depends on them."""
    first = {node.id for node in graph.steps() if node.id in selection.changed or matches(node.id, selection.begin)}
    return _with_dependents(graph, lambda node: node.id in first)


def _with_dependents(graph: ExecutionGraph, is_first: Callable[[ExecutionNode], bool]) -> frozenset[str]:
    found: set[str] = set()
    # Every node stands after those it depends on? Not those of fragments: so until nothing changes.
    before = -1
    while len(found) != before:
        before = len(found)
        for node in graph.nodes.values():
            if node.id not in found and (is_first(node) or any(dep.node in found for dep in node.dependencies)):
                found.add(node.id)
    return frozenset(found)


def _rerun_hooks(graph: ExecutionGraph, known: dict[Action, Known], story: Story) -> None:
    """What follows a scope is done again if something in the scope is."""
    undone = {
        node.id
        for node in graph.steps()
        if any(
            not _has_ended(known, node.id, host) and _may_run(node, story.actions.get(Action(node.id, host)))
            for host in node.hosts
        )
    }
    if not undone:
        return
    affected = _with_dependents(graph, lambda node: node.id in undone)
    for node in graph.steps():
        if node.hook in _AFTER and node.id in affected:
            for host in node.hosts:
                entry = known.get(Action(node.id, host))
                if entry is not None and entry.outcome is not None:
                    known[Action(node.id, host)] = Known(undo=entry.undo)


def _may_run(node: ExecutionNode, told: ActionStory | None) -> bool:
    """Whether an action that has not ended will do something, as far as can be known before."""
    result = None if told is None or told.begun else told.result
    if result is None or result.status is not Status.SKIPPED:
        return True
    # A condition is looked at again, but nothing follows from that by itself; nor from a hook that was not needed.
    return result.reason in (SkipReason.DEPENDENCY, SkipReason.LIMIT) and node.hook not in _AFTER


def _has_ended(known: Mapping[Action, Known], node: str, host: str) -> bool:
    entry = known.get(Action(node, host))
    return entry is not None and entry.outcome is not None
