"""Pass: finds cycles of ``needs`` before anything is linked, each with the place of every edge."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from kubexm_exec.compile.state import EntryDraft, GroupDraft, ScopeDraft, State
from kubexm_spec.diagnostics import Note
from kubexm_spec.models import FlushSpec, StepGroupSpec, StepSpec
from kubexm_spec.yaml.source import Place


class Edge(Struct, frozen=True):
    """Why one waits for another: the place that asked for it, if any, and the same in words."""

    place: Place | None
    text: str


class Order(Struct, frozen=True):
    """Who waits for whom. Plain data: networkx takes long to load, and is needed only once there is a cycle."""

    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)

    def add_edge(self, first: str, then: str, *, place: Place | None, text: str) -> None:
        """``then`` waits for ``first``."""
        self.edges[first, then] = Edge(place, text)
        self.before.setdefault(then, []).append(first)

    def ancestors(self, name: str) -> set[str]:
        """All that are done before."""
        found: set[str] = set()
        pending = list(self.before.get(name, ()))
        while pending:
            current = pending.pop()
            if current not in found:
                found.add(current)
                pending.extend(self.before.get(current, ()))
        return found - {name}


def scope_graph(state: State) -> Order:
    """Tasks and modules in their order."""
    graph = Order()
    for module in state.modules:
        begin, end = f"{module.id}^", module.id
        graph.add_edge(begin, end, place=None, text="")
        _add_needs(graph, module, begin, f'module "{module.id}"')
        for task in module.tasks:
            graph.add_edge(begin, task.id, place=task.place, text=f'task "{task.id}" is in module "{module.id}"')
            graph.add_edge(task.id, end, place=task.place, text=f'module "{module.id}" ends after its task "{task.id}"')
            _add_needs(graph, task, task.id, f'task "{task.id}"')
    return graph


def _add_needs(graph: Order, draft: ScopeDraft, begin: str, who: str) -> None:
    for need in draft.needs:
        text = f'{who} needs "{need.target}"' if need.declared else f'{who} follows "{need.target}" by order'
        graph.add_edge(need.target, begin, place=need.place, text=text)


def check_cycles(state: State) -> None:
    """A cycle is an error that names every edge and its place."""
    if any(finding.code == "duplicate-name" for finding in state.diagnostics):
        return  # two of one name look like one that waits for itself
    _report(state, scope_graph(state), "tasks and modules")
    for module in state.modules:
        for task in module.tasks:
            for entries in _sequences(task.entries):
                _report(state, _entry_graph(task.id, entries), "steps")


def _sequences(entries: Sequence[EntryDraft]) -> Iterator[Sequence[EntryDraft]]:
    """The steps of a task, and those of each group in it."""
    yield entries
    for entry in entries:
        if isinstance(entry, GroupDraft):
            yield from _sequences(entry.steps)
            yield from _sequences(entry.rescue)


def _entry_graph(task: str, entries: Sequence[EntryDraft]) -> Order:
    steps = Order()
    previous = None
    for step in entries:
        spec = step.spec
        if isinstance(spec, StepSpec | FlushSpec | StepGroupSpec) and spec.needs is not None:
            for index, target in enumerate(spec.needs):
                steps.add_edge(
                    f"{task}/{target}", step.id, place=step.place.child("needs", index),
                    text=f'step "{spec.name}" needs "{target}"',
                )  # fmt: skip
        elif previous is not None:
            steps.add_edge(
                previous, step.id, place=step.place.child("name"), text=f'step "{spec.name}" follows by order'
            )
        previous = step.id
    return steps


def _report(state: State, order: Order, what: str) -> None:
    try:
        graphlib.TopologicalSorter(order.before).prepare()
    except graphlib.CycleError:
        _report_cycles(state, order, what)


def _report_cycles(state: State, order: Order, what: str) -> None:
    import networkx as nx

    graph: Any = nx.DiGraph(list(order.edges))
    for component in nx.strongly_connected_components(graph):
        first = min(component)
        if len(component) == 1 and not graph.has_edge(first, first):
            continue
        edges = nx.find_cycle(graph.subgraph(component), source=first)
        notes: list[Note] = []
        place: Place | None = None
        for before, after in edges:
            edge = order.edges[before, after]
            if edge.place is not None:
                notes.append(Note(edge.text, edge.place.span()))
                if place is None or ("needs" in edge.place.path and "needs" not in place.path):
                    place = edge.place
        names = [node.rstrip("^") for node, _ in edges]
        shown = list(dict.fromkeys(names))
        summary = f"{what} wait for each other: {' -> '.join([*shown, shown[0]])}"
        state.diagnostics.error("cycle", summary, place, hint="remove one of these dependencies", notes=notes)
