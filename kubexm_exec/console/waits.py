"""What a module waits for, found in the graph when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from kubexm_exec.console.tally import Module, Tally, Task

_LOOKED_AT: Final = 20
"""The first task of a module that waits for something outside of it is among so many."""


class Waits:
    """Says for a task or module that has not begun which tasks it waits for; each is looked up once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._by_task: dict[str, list[str]] | None = None
        self._needs: dict[tuple[str, str], list[tuple[Module, Task]]] = {}

    def of(self, module: Module, task: Task | None = None) -> list[str]:
        """What it waits for directly and is not done: ``module/task``, or the module if it is several of its tasks."""
        for name in [task.name] if task is not None else islice(module.tasks, _LOOKED_AT):
            found: dict[str, list[str]] = {}
            for other, needed in self._needed(module.name, name):
                if needed.done < needed.total and (task is not None or other is not module):
                    found.setdefault(other.name, []).append(needed.name)
            if found:
                own = found.pop(module.name, [])  # needs no module before its name
                return own + [other if len(needed) > 1 else f"{other}/{needed[0]}" for other, needed in found.items()]
        return []

    def _needed(self, module: str, task: str) -> list[tuple[Module, Task]]:
        key = (module, task)
        if key not in self._needs:
            found: dict[str, tuple[Module, Task]] = {}
            for place in self._before(self._nodes(module, task)):
                if (place[0].name, place[1].name) != key:
                    found[f"{place[0].name}/{place[1].name}"] = place
            self._needs[key] = list(found.values())
        return self._needs[key]

    def _nodes(self, module: str, task: str) -> list[str]:
        if self._by_task is None:
            self._by_task = {}
            for node in self._tally.graph.steps():
                place = self._tally.task_of(node.id)
                if place is not None:
                    self._by_task.setdefault(f"{place[0].name}\n{place[1].name}", []).append(node.id)
        return self._by_task.get(f"{module}\n{task}", [])

    def _before(self, nodes: Iterable[str]) -> Iterable[tuple[Module, Task]]:
        """Where the steps are that come before these nodes, seen through gates."""
        graph = self._tally.graph.nodes
        seen = set(nodes)
        pending = list(seen)
        while pending:
            node = graph.get(pending.pop())
            for dependency in node.dependencies if node is not None else ():
                if dependency.node in seen or dependency.node not in graph:
                    continue
                seen.add(dependency.node)
                if graph[dependency.node].is_gate:
                    pending.append(dependency.node)
                    continue
                place = self._tally.task_of(dependency.node)
                if place is not None:
                    yield place
