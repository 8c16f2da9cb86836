"""The tables at the end: what came of the actions of each module and each host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from kubexm_exec.console.failures import find_node
from kubexm_exec.console.text import Paint, columns, fit
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import BLOCKED, COLUMNS, SYMBOLS, GraphExecutionResult, HostResult, Status, column, words
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration

HOSTS: Final = 30
"""So many hosts are shown; of more only those with something to look at, and the others added up."""
_NAME: Final = 40
_COLUMNS: Final = {"ok": "ok", **COLUMNS}
_ALWAYS: Final = frozenset({"ok", "changed", "unchanged", "skipped", "failed", "unreachable"})
_STYLES: Final = {
    "ok": "ok",
    "changed": "changed",
    "skipped": "skipped",
    "failed": "failed",
    "unreachable": "failed",
    "ignored": "warning",
    "rescued": "warning",
    "cancelled": "warning",
    "running": "running",
    "unknown": "warning",
    "wouldChange": "changed",
    "wouldRun": "changed",
    "notLookedAt": "warning",
}

STATUS_WORDS: Final = {
    status: (f"{SYMBOLS[status]} {word}", style)
    for status, word, style in (
        (Status.SUCCESS, "Success", "ok"),
        (Status.FAILED, "Failed", "failed"),
        (Status.CANCELLED, "Cancelled", "warning"),
        (Status.RUNNING, "Running", "running"),
        (Status.INTERRUPTED, "Interrupted", "warning"),
        (Status.ROLLED_BACK, "Rolled back", "warning"),
        (Status.PARTIAL, "Partial", "warning"),
    )
}
"""How a run ended, with the style of it."""


class Counts(Struct):
    """Actions by outcome, and how long they took."""

    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COLUMNS, 0))
    hosts: set[str] = field(default_factory=set)
    blocked: int = 0
    """Skipped because something failed, or was not chosen."""
    start: float | None = None
    end: float | None = None

    def add(self, each: HostResult) -> None:
        """Count an action."""
        self.numbers[(name := column(each))] += 1
        if name in ("changed", "unchanged"):
            self.numbers["ok"] += 1
        self.hosts.add(each.host_name)
        self.blocked += each.reason in BLOCKED
        if each.start_time is not None and each.end_time is not None:
            self._span(each.start_time, each.end_time)

    def merge(self, other: Counts) -> None:
        """Add what another one counted."""
        for name, number in other.numbers.items():
            self.numbers[name] += number
        self.hosts |= other.hosts
        self.blocked += other.blocked
        if other.start is not None and other.end is not None:
            self._span(other.start, other.end)

    def _span(self, start: float, end: float) -> None:
        self.start = start if self.start is None else min(self.start, start)
        self.end = end if self.end is None else max(self.end, end)

    @property
    def took(self) -> str:
        """From the first start to the last end."""
        return "-" if self.start is None or self.end is None else format_duration(self.end - self.start)

    @property
    def actions(self) -> int:
        """How many there were."""
        return sum(self.numbers.values()) - self.numbers["ok"]

    @property
    def bad(self) -> int:
        """How many failed."""
        return self.numbers["failed"] + self.numbers["unreachable"]

    def words(self) -> str:
        """``41 changed, 19 unchanged, 2 skipped``: what is not zero."""
        return words(self.numbers)


def count(graph: ExecutionGraph, result: GraphExecutionResult) -> tuple[Counts, dict[str, Counts], dict[str, Counts]]:
    """Everything, by module and by host, each in the order of the graph."""
    total = Counts()
    modules: dict[str, Counts] = {}
    hosts: dict[str, Counts] = {name: Counts() for name in graph.hosts}
    for each in result.node_results.values():
        node = find_node(graph, each.node_name)
        module = node.module if node is not None and node.module else each.node_name.partition("/")[0]
        of_module = modules.setdefault(module, Counts())
        for name, host in each.host_results.items():
            total.add(host)
            of_module.add(host)
            hosts.setdefault(name, Counts()).add(host)
    return total, modules, {name: counts for name, counts in hosts.items() if counts.hosts}


def module_table(modules: dict[str, Counts], total: Counts, paint: Paint, width: int) -> Iterator[str]:
    """One line for each module, in order."""
    rows = []
    for name, counts in modules.items():
        rows.append((f"{_symbol(counts, paint)} {fit(clean(name), _NAME)}", str(len(counts.hosts)), counts))
    yield from _table(["  module", "hosts"], rows, total, paint, width)


def host_table(hosts: dict[str, Counts], total: Counts, paint: Paint, width: int) -> Iterator[str]:
    """One line for each host; beyond ``HOSTS`` only for those with something to look at."""
    shown, rest = hosts, Counts()
    if len(hosts) > HOSTS:
        worth = [
            name
            for name, counts in hosts.items()
            if counts.bad or counts.numbers["ignored"] or counts.numbers["rescued"] or counts.blocked
        ]
        worth.sort(key=lambda name: -hosts[name].bad)
        shown = {name: hosts[name] for name in hosts if name in set(worth[:HOSTS])}
        for name in hosts.keys() - shown.keys():
            rest.merge(hosts[name])
    rows = [(f"{_symbol(counts, paint)} {fit(clean(name), _NAME)}", "", counts) for name, counts in shown.items()]
    if rest.hosts:
        label = plural(len(rest.hosts), "more host" if shown else "host")
        rows.append((f"  {label}", "", rest))
    yield from _table(["  host", ""], rows, total, paint, width)


def _table(
    head: list[str], rows: list[tuple[str, str, Counts]], total: Counts, paint: Paint, width: int
) -> Iterator[str]:
    wanted = [name for name in _COLUMNS if name in _ALWAYS or total.numbers[name]]
    while True:
        cells = [[*(part for part in head if part), *(_COLUMNS[name] for name in wanted), "time"]]
        for name, number, counts in rows:
            numbers = [
                paint(str(counts.numbers[one]), _STYLES.get(one, "") if counts.numbers[one] else "dim")
                for one in wanted
            ]
            cells.append([name, *([number] if head[1] else []), *numbers, counts.took])
        lines = columns(cells)
        # On a narrow terminal columns that say nothing are the first to go.
        empty = [name for name in reversed(wanted) if not total.numbers[name]]
        if not empty or len(lines[0]) <= width:
            break
        wanted.remove(empty[0])
    yield paint(lines[0], "dim")
    yield from lines[1:]


def _symbol(counts: Counts, paint: Paint) -> str:
    if counts.bad:
        return paint(SYMBOLS[Status.FAILED], "failed")
    if counts.numbers["running"]:
        return paint(SYMBOLS[Status.RUNNING], "running")
    if counts.numbers["left"] or counts.numbers["unknown"]:
        return paint(SYMBOLS[Status.PENDING], "dim")
    if counts.numbers["cancelled"] or counts.blocked:
        return paint(SYMBOLS[Status.CANCELLED if counts.numbers["cancelled"] else Status.SKIPPED], "warning")
    return paint(SYMBOLS[Status.SUCCESS], "ok")
