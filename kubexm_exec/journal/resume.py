"""Says for every action of a run that is resumed whether it is done, may be done, or is to be run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.attempt import ActionOutcome
from kubexm_exec.graph import ExecutionGraph, ExecutionNode, Hook
from kubexm_exec.journal.known import Known
from kubexm_exec.journal.story import ActionStory, Story
from kubexm_exec.result import BLOCKED, HostResult, SkipReason, Status
from kubexm_exec.scheduler import Action

DOUBT: Final = "the run broke off while this was being done"
UNDOING: Final = "the run broke off while this was being undone, and how far that came is not known"
UNSURE: Final = "it is not known whether it was done before"
_HIDDEN: Final = "an earlier session did it, and its outputs are not kept because there is a secret in them"
_SEEN: Final = "it was done, says who resumed the run"
_AFTER: Final = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)


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
    known: dict[Action, Known] = {}
    for node in graph.steps():
        for host in node.hosts:
            action = Action(node.id, host)
            told = story.actions.get(action)
            found = _known(node, host, told, selection)
            if found is not None:
                known[action] = found
    _rerun_hooks(graph, known, story)
    return known


def to_repeat(graph: ExecutionGraph, selection: Selection) -> list[dict[str, Any]]:
    """What is to be run again although it was done, as a session says it."""
    changed = _with_dependents(graph, lambda node: node.id in selection.changed)
    begun = _with_dependents(graph, lambda node: matches(node.id, selection.begin))
    hosts = None if selection.hosts is None else sorted(selection.hosts)
    found: list[dict[str, Any]] = [{"nodes": sorted(changed), "hosts": None}, {"nodes": sorted(begun), "hosts": hosts}]
    return [some for some in found if some["nodes"]]


def _known(node: ExecutionNode, host: str, told: ActionStory | None, selection: Selection) -> Known | None:
    doubt = _doubt(told)
    asked = matches(node.id, selection.begin) and (selection.hosts is None or host in selection.hosts)
    if told is not None and doubt and not asked:
        # Before anything else it must be known what became of it, unless somebody says that it is to be run.
        return Known(doubt=doubt, started=told.started, undo=tuple(told.undo))
    if told is not None and not told.again and told.done:
        assert told.result is not None
        outcome = _kept(node, told.result, told)
        outcome.added = told.nodes
        return Known(outcome, started=told.started, undo=tuple(told.undo))
    if not selection.wants(node.id, host):
        left = HostResult(host_name=host, status=Status.CANCELLED, message="not chosen for this session")
        kept = told.result if told is not None else None
        if kept is not None and (kept.status is Status.FAILED or kept.reason is SkipReason.CONDITION):
            left = kept
        return Known(_kept(node, left, told), undo=tuple(told.undo) if told else ())
    return Known(undo=tuple(told.undo)) if told is not None and told.undo else None


def _kept(node: ExecutionNode, result: HostResult, told: ActionStory | None) -> ActionOutcome:
    """A result of an earlier session with the outputs that were written down."""
    if told is not None and told.hidden and result is told.result:
        return ActionOutcome(result, unknown=f"{_HIDDEN}; resume with --from {node.id} to have them made again")
    return ActionOutcome(result, result.outputs or None)


def in_doubt(story: Story, globs: Collection[str]) -> list[Action]:
    """The actions of some nodes of which nobody knows whether they were done."""
    return [action for action, told in story.actions.items() if _doubt(told) and matches(action.node, globs)]


def seen_done(action: Action) -> ActionOutcome:
    """The outcome of an action of which somebody has seen that it was done."""
    now = time.time()
    return ActionOutcome(
        HostResult(
            host_name=action.host, status=Status.SUCCESS, changed=True, message=_SEEN, start_time=now, end_time=now
        )
    )


def _doubt(told: ActionStory | None) -> str:
    """Why nobody knows whether an action was done, if that is so."""
    if told is None:
        return ""
    if told.begun:
        return f"{DOUBT}, and how far it came is not known"
    if told.undoing:
        return UNDOING
    return UNSURE if told.result is not None and told.result.unknown and not told.done else ""


def _with_dependents(graph: ExecutionGraph, is_first: Callable[[ExecutionNode], bool]) -> frozenset[str]:
    """Some nodes, and all that depends on them."""
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
    return result.reason in BLOCKED and node.hook not in _AFTER


def _has_ended(known: Mapping[Action, Known], node: str, host: str) -> bool:
    entry = known.get(Action(node, host))
    return entry is not None and entry.outcome is not None
