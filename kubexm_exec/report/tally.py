"""Counts the outcomes of a run: by module, by host and in all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import COLUMNS, GraphExecutionResult, HostResult, NodeResult, RunMode, Status, column


class Tally(Struct):
    """Actions by outcome, and the time from the first start to the last end."""

    name: str = ""
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("ok", *COLUMNS), 0))
    """By column; ok is changed plus unchanged."""
    start: float | None = None
    end: float | None = None
    outcomes: list[str] = field(default_factory=list)
    """Statuses as the drawing knows them, for a sign."""

    @property
    def seconds(self) -> float | None:
        """How long it took, if anything ran."""
        return None if self.start is None or self.end is None else self.end - self.start

    def add(self, action: HostResult, mode: str = "") -> None:
        """Count one action."""
        name = column(action, mode)
        self.numbers[name] += 1
        self.numbers["ok"] += name in ("changed", "unchanged")
        if action.start_time is not None:
            self.start = action.start_time if self.start is None else min(self.start, action.start_time)
        if action.end_time is not None:
            self.end = action.end_time if self.end is None else max(self.end, action.end_time)


LOOKS_OF = {
    "wouldChange": "change",
    "wouldRun": "change",
    "unknown": "unknown",
    "notLookedAt": "unseen",
    "changed": "success",
    "unchanged": "unchanged",
    "skipped": "skipped",
    "failed": "failed",
    "unreachable": "failed",
    "ignored": "failed",
    "rescued": "failed",
    "cancelled": "cancelled",
    "running": "running",
    "left": "pending",
}
"""By column the status that the drawing knows."""


def outcome(action: HostResult) -> str:
    """An action's outcome in the words of the drawing."""
    return LOOKS_OF[column(action)]


def node_outcome(node: NodeResult) -> str:
    """A node's status in the words of the drawing."""
    if node.status not in (Status.SUCCESS, Status.SKIPPED):
        return node.status.value
    found = {outcome(action) for action in node.host_results.values()}
    order = ("change", "unknown", "unseen", "success", "unchanged", "skipped")
    # Only failures that do not count are left at the end.
    return next((one for one in order if one in found), "failed")


def module_of(graph: ExecutionGraph, node: str) -> str:
    """The module of a node, also of one that came with a fragment the graph does not have; empty for pipeline hooks."""
    known = graph.nodes.get(node)
    return known.module if known else node.partition("/")[0]


def actions(result: GraphExecutionResult) -> Iterator[tuple[str, HostResult]]:
    """Every (node, outcome of one host), in graph order."""
    for name, node in result.node_results.items():
        for action in node.host_results.values():
            yield name, action


def tallies(graph: ExecutionGraph, result: GraphExecutionResult) -> tuple[Tally, list[Tally], list[Tally]]:
    """All actions; by module in graph order; by host in the order of the inventory."""
    total = Tally("all")
    modules: dict[str, Tally] = {}
    hosts: dict[str, Tally] = {name: Tally(name) for name in graph.hosts}
    for name, action in actions(result):
        module = module_of(graph, name)
        total.add(action, result.mode)
        modules.setdefault(module, Tally(module or "hooks of the pipeline")).add(action, result.mode)
        hosts.setdefault(action.host_name, Tally(action.host_name)).add(action, result.mode)
    for name, node in result.node_results.items():
        modules.setdefault(module_of(graph, name), Tally()).outcomes.append(node_outcome(node))
    return total, list(modules.values()), [one for one in hosts.values() if any(one.numbers.values())]


_RUN = frozenset({"ok", "changed", "unchanged", "skipped", "failed", "unreachable"})
"""The columns that a table of a run has even if they are all zero."""
_FORECAST = frozenset({"unknown", "unchanged", "skipped", "failed"})
"""Those of a table of forecasts, with what would change or run."""


def shown_columns(tallies_: Iterable[Tally], mode: RunMode) -> list[tuple[str, str]]:
    """The columns worth showing, with their labels; a table of forecasts has what would change, not what did."""
    rows = list(tallies_)
    kept = {*_FORECAST, "wouldRun" if mode is RunMode.OFFLINE else "wouldChange"} if mode.previews else _RUN
    return [
        (name, label)
        for name, label in {"ok": "ok", **COLUMNS}.items()
        if not (mode.previews and name == "ok") and (name in kept or any(row.numbers[name] for row in rows))
    ]
