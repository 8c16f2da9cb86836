"""What hooks are around, and which of them are run again when a run is resumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from kubexm_exec.engine.history import RunHistory
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, Hook
from kubexm_exec.scheduler import Action

END_HOOKS: Final = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)
"""Hooks that come after what is in their scope, and may take back what its ``pre`` hooks did."""
_STEP: Final = re.compile(r"[^/\[+]*")

Scope: TypeAlias = tuple[str, str]
"""The id of a pipeline (empty), module, task or step that has hooks; with the host that a step is worked on for."""


class Scopes:
    """The scopes of a graph that have hooks, and which of them are entered in a session.

    What is run in a scope is run between its ``pre`` hooks and the others: in each session in which it is entered these
    come again, and so does a ``pre`` hook, if one of them has begun since it succeeded. If none has, what ``pre`` made
    ready still holds.
    """

    def __init__(self, graph: ExecutionGraph, history: RunHistory) -> None:
        self._graph = graph
        self._story = history
        self._hooks = [node for node in graph.steps() if node.hook]
        self._entered: set[Scope] = set()
        self._ended: dict[Scope, int] = {}
        """When a hook at the end of a scope began last: after so many ends of actions."""
        for action, node in self._actions():
            told = history.actions.get(action)
            if node.hook in END_HOOKS and told is not None and told.attempts:
                scope = _own(node, action.host)
                self._ended[scope] = max(told.since, self._ended.get(scope, 0))

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return bool(self._hooks)

    def enter(self, actions: Iterable[Action]) -> None:
        """Some actions are run, or may be."""
        if not self._hooks:
            return
        for action in actions:
            node = self._graph.nodes[action.node]
            around = _around(node, action.host)
            if node.hook in (Hook.ON_FAILURE, Hook.ALWAYS):
                # To put things back is no work that they would have to be made ready for.
                around.remove(_own(node, action.host))
            self._entered.update(around)

    def hooks(self) -> Iterator[Action]:
        """The hooks that are run again, whatever they came to before, because their scopes are entered."""
        for action, node in self._actions():
            scope = _own(node, action.host)
            if scope in self._entered and (node.hook in END_HOOKS or self._is_taken_back(action, scope)):
                yield action

    def shut_in(self) -> Iterator[Action]:
        """What earlier sessions knew in scopes that are not entered, and whose ``pre`` hooks may be taken back."""
        shut = {
            scope
            for action, node in self._actions()
            if node.hook is Hook.PRE
            and (scope := _own(node, action.host)) not in self._entered
            and self._is_taken_back(action, scope)
        }
        if shut:
            for action in self._story.actions:
                inside = self._graph.nodes.get(action.node)
                if inside is not None and not shut.isdisjoint(_around(inside, action.host)):
                    yield action

    def _actions(self) -> Iterator[tuple[Action, ExecutionNode]]:
        return ((Action(node.id, host), node) for node in self._hooks for host in node.may_run_on)

    def _is_taken_back(self, action: Action, scope: Scope) -> bool:
        """Whether a ``pre`` hook was done, and perhaps undone since by a hook at the end of its scope."""
        told = self._story.actions.get(action)
        return told is not None and told.done and (told.again or self._ended.get(scope, -1) >= told.succeeded)


def _around(node: ExecutionNode, host: str) -> list[Scope]:
    """The scopes that an action is in, from the outside to the inside; the last one is that whose hook it is."""
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
