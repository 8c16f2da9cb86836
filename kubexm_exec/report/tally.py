"""Counts what a run came to: per module, per host and in all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from kubexm_exec.graph import ExecutionGraph
from kubexm_exec.result import (
    FailureKind,
    ForecastState,
    GraphExecutionResult,
    HostResult,
    NodeResult,
    SkipReason,
    Status,
)


class Tally(Struct):
    """Actions by outcome, and the time from the first start to the last end."""

    name: str = ""
    would_change: int = 0
    unknown: int = 0
    changed: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: int = 0
    unreachable: int = 0
    ignored: int = 0
    cancelled: int = 0
    running: int = 0
    left: int = 0
    start: float | None = None
    end: float | None = None
    outcomes: list[str] = field(default_factory=list)
    """Statuses as the drawing knows them, for a sign."""

    @property
    def ok(self) -> int:
        """Actions that are as they should be now."""
        return self.changed + self.unchanged

    @property
    def seconds(self) -> float | None:
        """How long it took, if anything ran."""
        return None if self.start is None or self.end is None else self.end - self.start

    def add(self, action: HostResult) -> None:
        """Count one action."""
        kind = column(action)
        setattr(self, kind, getattr(self, kind) + 1)
        if action.start_time is not None:
            self.start = action.start_time if self.start is None else min(self.start, action.start_time)
        if action.end_time is not None:
            self.end = action.end_time if self.end is None else max(self.end, action.end_time)


def column(action: HostResult) -> str:
    """The column of the tables in which an action is counted."""
    if action.status is Status.FAILED:
        if action.ignored:
            return "ignored"
        return "unreachable" if action.kind is FailureKind.UNREACHABLE else "failed"
    if action.status is Status.SUCCESS:
        if action.forecast is ForecastState.CHANGE and not action.changed:
            return "would_change"
        if action.forecast is ForecastState.UNKNOWN and not action.changed:
            return "unknown"
        return "changed" if action.changed else "unchanged"
    if action.status is Status.SKIPPED:
        return "unchanged" if action.reason is SkipReason.PRECHECK or action.skipped else "skipped"
    if action.status is Status.RUNNING:
        return "running"
    if action.status is Status.PENDING:
        return "unknown" if action.unknown else "left"
    return "cancelled"


_OUTCOMES = {
    "would_change": "change",
    "unknown": "unknown",
    "changed": "success",
    "unchanged": "unchanged",
    "skipped": "skipped",
    "failed": "failed",
    "unreachable": "failed",
    "ignored": "failed",
    "cancelled": "cancelled",
    "running": "running",
    "left": "pending",
}


def outcome(action: HostResult) -> str:
    """An action's outcome in the words of the drawing."""
    return _OUTCOMES[column(action)]


def node_outcome(node: NodeResult) -> str:
    """A node's status in the words of the drawing."""
    if node.status not in (Status.SUCCESS, Status.SKIPPED):
        return node.status.value
    found = {outcome(action) for action in node.host_results.values()}
    # Only failures that were ignored are left at the end.
    return next((one for one in ("change", "unknown", "success", "unchanged", "skipped") if one in found), "failed")


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
        total.add(action)
        modules.setdefault(module, Tally(module or "hooks of the pipeline")).add(action)
        hosts.setdefault(action.host_name, Tally(action.host_name)).add(action)
    for name, node in result.node_results.items():
        modules.setdefault(module_of(graph, name), Tally()).outcomes.append(node_outcome(node))
    return (
        total,
        list(modules.values()),
        [one for one in hosts.values() if any(getattr(one, name) for name, _ in COLUMNS)],
    )


COLUMNS = (
    ("ok", "ok"),
    ("would_change", "would change"),
    ("unknown", "unknown"),
    ("changed", "changed"),
    ("unchanged", "unchanged"),
    ("skipped", "skipped"),
    ("failed", "failed"),
    ("unreachable", "unreachable"),
    ("ignored", "ignored"),
    ("cancelled", "cancelled"),
    ("running", "running"),
    ("left", "left"),
)
"""Attributes of a tally and what the tables call them."""
ALWAYS = frozenset({"ok", "changed", "unchanged", "skipped", "failed", "unreachable"})
"""The columns that a table of a run has even if they are all zero."""


def column_label(label: str, executor: str) -> str:
    """What a column is called; a dry run, which asks no host, cannot say that something would change."""
    return "would run" if executor == "dry-run" and label == "would change" else label


def shown_columns(tallies_: Iterable[Tally], *, forecast: bool) -> list[tuple[str, str]]:
    """The columns worth showing; a table of forecasts has what would change instead of what did."""
    rows = list(tallies_)
    kept = ALWAYS if not forecast else frozenset({"would_change", "unknown", "unchanged", "skipped", "failed"})
    hidden = {"ok"} if forecast else set[str]()
    return [
        (name, label)
        for name, label in COLUMNS
        if name not in hidden and (name in kept or any(getattr(row, name) for row in rows))
    ]
