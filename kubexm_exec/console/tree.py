"""Draws the state of a run as a tree of lines that fits a terminal, whatever its size and however large the run is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from msgspec import Struct
from rich.cells import cell_len
from rich.text import Text

from kubexm_exec.console.tally import (
    CANCELLED,
    FAILED,
    OK,
    PENDING,
    RUNNING,
    SKIPPED,
    Module,
    Part,
    Running,
    Tally,
    Task,
)
from kubexm_exec.console.text import format_progress, names, one_line
from kubexm_exec.model.result import COLUMNS, DEFAULT_EXECUTOR, SYMBOLS, Status
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration

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


_NAME: Final = 28
_BAR: Final = 20
_NARROW: Final = 40
_TASK_ROWS: Final = 5
"""A task takes no more lines than this: itself, some of the hosts it runs on, and how many more."""
_STYLES: Final = {
    OK: "green",
    FAILED: "bold red",
    RUNNING: "bold blue",
    PENDING: "dim",
    SKIPPED: "cyan",
    CANCELLED: "magenta",
}
_COUNTS: Final = {
    "changed": "yellow",
    "wouldChange": "yellow",
    "wouldRun": "yellow",
    "unknown": "cyan",
    "notLookedAt": "cyan",
    "skipped": "cyan",
    "failed": "bold red",
    "unreachable": "bold red",
    "ignored": "magenta",
    "rescued": "magenta",
    "cancelled": "magenta",
}


class Symbols(Struct, frozen=True):
    """The characters to draw with."""

    ok: str
    failed: str
    pending: str
    skipped: str
    spinner: str
    bar: str
    tip: str
    rest: str

    def of(self, state: str, now: float) -> str:
        """The symbol of a state; that of running ones turns."""
        if state == RUNNING:
            return self.spinner[int(now * 10) % len(self.spinner)]
        return {OK: self.ok, FAILED: self.failed, PENDING: self.pending}.get(state, self.skipped)


UNICODE: Final = Symbols(
    SYMBOLS[Status.SUCCESS], SYMBOLS[Status.FAILED], SYMBOLS[Status.PENDING], SYMBOLS[Status.SKIPPED],
    "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "━", "╸", "━",
)  # fmt: skip
ASCII: Final = Symbols("+", "x", ".", "-", "|/-\\", "=", ">", ".")


class Tree:
    """The frame that is on the screen: lines that are never more, and never wider, than the terminal has room for."""

    def __init__(self, tally: Tally, symbols: Symbols = UNICODE) -> None:
        self._tally = tally
        self._waits = Waits(tally)
        self._symbols = symbols
        longest = [len(name) for name in tally.modules]
        longest += [len(name) + 2 for module in tally.modules.values() for name in module.tasks]
        self._name_width = min(_NAME, max(longest, default=0))

    def lines(self, width: int, height: int, now: float) -> list[Text]:
        """The lines for a terminal of that size; one row is left free, so that nothing scrolls."""
        rows = max(1, height - 1)
        head = [self._header(width, now)]
        if rows >= 6:
            head.append(self._totals(width))
        if self._tally.stopping and rows > len(head):
            head.append(_row(Text(f"  {one_line(self._tally.stopping)}", "bold red"), "", width))
        lines = [*head, *self._modules(width, rows - len(head), now)][:rows]
        return lines if self._symbols is not ASCII else [_in_ascii(line) for line in lines]

    def _header(self, width: int, now: float) -> Text:
        tally = self._tally
        start = tally.all.start if tally.all.start is not None else now
        clock = _clock((tally.all.end or now) - start)
        left = Text.assemble(("kubexm", "dim"), "  ", (one_line(tally.graph.name), "bold"))
        facts = [
            f"run {short_run(tally.run)}" if tally.run else "",
            tally.executor if tally.executor != DEFAULT_EXECUTOR else "",
            plural(len(tally.all.left), "host"),
            plural(tally.nodes, "node"),
            f"forks {tally.forks}" if tally.forks else "",
        ]
        for fact in filter(None, facts):
            # What does not fit is left out whole.
            if cell_len(left.plain) + len(fact) + len(clock) + 4 <= width:
                left.append(f"  {fact}", "dim")
        return _row(left, clock, width)

    def _totals(self, width: int) -> Text:
        part = self._tally.all
        left = Text("  ")
        left.append_text(self._bar(part))
        left.append(f"  {part.done}/{part.total} actions")
        if part.running:
            left.append(f"  {part.running} running", "blue")
        left.append_text(self._counts(part))
        return _row(left, "", width)

    def _modules(self, width: int, rows: int, now: float) -> list[Text]:
        done: list[Module] = []
        active: list[Module] = []
        waiting: list[Module] = []
        for module in self._tally.modules.values():
            state = module.state
            (waiting if state == PENDING else active if state in (RUNNING, FAILED) else done).append(module)
        # A guess from below: only if it fits it is worth drawing everything.
        if len(self._tally.modules) + sum(len(module.tasks) for module in active) <= rows:
            lines = [line for module in self._tally.modules.values() for line in self._module(module, width, now)]
            if len(lines) <= rows:
                return lines
        return self._folded(done, active, waiting, width, rows, now)

    def _folded(
        self, done: list[Module], active: list[Module], waiting: list[Module], width: int, rows: int, now: float
    ) -> list[Text]:
        """What runs and what failed, then what comes next; finished modules in one line."""
        lines: list[Text] = []
        if done and (rows > 3 or not active):
            lines.append(self._done_line(done, width))
        room = rows - len(lines)
        # One line is kept for what waits; modules that run come before those that have failed and ended.
        room -= (ahead := bool(waiting and room > 2))
        chosen = sorted(active, key=lambda module: module.state == FAILED)
        shown = chosen if len(chosen) <= room else chosen[: max(1, room - 1)]
        more = len(active) - len(shown)
        room -= len(shown) + bool(more)
        details: dict[str, list[Text]] = {}
        for index, module in enumerate(shown):
            # An equal share of what is left; who needs less leaves more for the next.
            details[module.name] = self._some_tasks(module, width, room // (len(shown) - index), now)
            room -= len(details[module.name])
        for module in active:
            if module.name in details:
                lines += [self._module_line(module, width, now), *details[module.name]]
        if more and rows > len(lines):
            lines.append(_row(Text(f"  + {plural(more, 'more module')} running or failed"), "", width))
        if ahead:
            lines += self._ahead(waiting, width, rows - len(lines), now)
        return lines

    def _ahead(self, waiting: list[Module], width: int, room: int, now: float) -> Iterator[Text]:
        shown = waiting if len(waiting) <= room else waiting[: max(0, room - 1)]
        for module in shown:
            yield self._module_line(module, width, now)
        if len(waiting) > len(shown):
            text = f"{self._symbols.pending} + {plural(len(waiting) - len(shown), 'more module')} to come"
            yield _row(Text(text, "dim"), "", width)

    def _some_tasks(self, module: Module, width: int, room: int, now: float) -> list[Text]:
        """The tasks of a module in so many lines: first those that run or failed, then the next ones, then the rest."""
        if room < 1:
            return []
        tasks = [task for task in module.tasks.values() if module.state == RUNNING or task.failed]
        urgent = [task for task in tasks if task.failed or task.state == RUNNING]
        ranked = [*urgent, *(task for task in tasks if task.state == PENDING)]
        chosen: dict[str, list[Text]] = {}
        for index, task in enumerate(ranked[:room]):
            left = room - sum(map(len, chosen.values())) - (room > 1 and len(chosen) + 1 < len(tasks))
            if left < 1:
                break
            share = max(1, left // max(1, len(urgent) - index))
            chosen[task.name] = list(self._task(module, task, width, now, share))
        found = [line for task in tasks if task.name in chosen for line in chosen[task.name]]
        more = len(tasks) - len(chosen)
        if more and len(found) < room:
            ended = sum(task.done == task.total for task in tasks if task.name not in chosen)
            text = f"  + {plural(more, 'more task')}" + (f" ({ended} done)" if ended else "")
            found.append(_row(Text(text, "dim"), "", width))
        return found

    def _done_line(self, done: list[Module], width: int) -> Text:
        total = Part("")
        for module in done:
            for name, number in module.numbers.items():
                total.numbers[name] = total.numbers.get(name, 0) + number
        left = Text.assemble((self._symbols.ok, _STYLES[OK]), f" {plural(len(done), 'module')} done")
        return _row(left.append_text(self._counts(total)), "", width)

    def _module(self, module: Module, width: int, now: float) -> Iterator[Text]:
        yield self._module_line(module, width, now)
        yield from self._details(module, width, now)

    def _module_line(self, module: Module, width: int, now: float) -> Text:
        state = module.state
        left = Text.assemble((self._symbols.of(state, now), _STYLES[state]), " ")
        left.append(_name(module.name, self._name_width), "bold" if state in (RUNNING, FAILED) else "")
        if state == PENDING:
            waits = self._waits.of(module)
            return _row(left.append(f"  waiting for {names(waits, 2)}" if waits else "  waiting", "dim"), "", width)
        if state == RUNNING:
            left.append("  ").append_text(self._bar(module))
            left.append(f"  {module.done}/{module.total} actions")
        else:
            left.append(f"  {module.hosts_done}/{plural(len(module.left), 'host')}")
        return _row(left.append_text(self._counts(module)), _took(module, now), width)

    def _details(self, module: Module, width: int, now: float) -> Iterator[Text]:
        """The tasks of a module that runs or failed; of others there is no more to say."""
        if module.state not in (RUNNING, FAILED):
            return
        for task in module.tasks.values():
            if module.state == RUNNING or task.state == FAILED:
                yield from self._task(module, task, width, now)

    def _task(self, module: Module, task: Task, width: int, now: float, rows: int = _TASK_ROWS) -> Iterator[Text]:
        rows = min(rows, _TASK_ROWS)
        state = FAILED if task.failed else task.state
        left = Text.assemble("  ", (self._symbols.of(state, now), _STYLES[state]))
        left.append(f" {_name(task.name, self._name_width - 2)}")
        if task.state == PENDING:
            waits = self._waits.of(module, task)
            yield _row(left.append(f"  waiting for {names(waits, 2)}" if waits else "  waiting", "dim"), "", width)
            return
        left.append(f"  {task.hosts_done}/{plural(len(task.left), 'host')}")
        active = list(islice(task.active.values(), _TASK_ROWS))
        if task.failed:
            left.append(f"  {one_line(task.failure)}", "red")
            if task.failed > 1:
                left.append(f"  (+ {task.failed - 1} more)", "red")
        elif len(active) == 1:
            left.append("  ").append_text(_doing(active[0], now))
        elif active and rows < 3:
            more = f", + {len(task.active) - 2} more" if len(task.active) > 2 else ""
            left.append(f"  {names([each.host for each in active[:2]])}{more}")
        elif task.pause is not None and task.pause > now:
            left.append(f"  next batch in {format_duration(task.pause - now)}", "dim")
        elif task.state != RUNNING:
            left.append_text(self._counts(task))
        yield _row(left, _took(task, now), width)
        if len(active) < (1 if task.failed else 2) or rows < 3:
            return
        shown = active if len(active) < rows and len(active) == len(task.active) else active[: rows - 2]
        for each in shown:
            yield _row(Text("      ").append_text(_doing(each, now)), _since(each, now), width)
        if len(task.active) > len(shown):
            text = f"      + {plural(len(task.active) - len(shown), 'more host')} running"
            yield _row(Text(text, "dim"), "", width)

    def _bar(self, part: Part) -> Text:
        filled = int(_BAR * part.done / part.total) if part.total else _BAR
        style = "red" if part.failed else "blue"
        bar = Text(self._symbols.bar * filled, style)
        if filled < _BAR:
            bar.append(self._symbols.tip, style)
            bar.append(self._symbols.rest * (_BAR - filled - 1), "bright_black")
        return bar

    def _counts(self, part: Part) -> Text:
        text = Text()
        for name, word in COLUMNS.items():
            number = part.numbers.get(name)
            if number:
                word = word.upper() if name in ("failed", "unreachable") else word
                text.append(f"  {number} {word}", _COUNTS.get(name, ""))
        return text


def short_run(run: str) -> str:
    """A run id as short as it can be told apart at a glance."""
    return run if len(run) <= 12 else f"{run[:10]}…"


def _doing(active: Running, now: float) -> Text:
    """``node3: download etcd-3.5.16 (12.1/18.4 MB)``."""
    step = active.node.rpartition("/")[2]
    text = Text.assemble((one_line(active.host), "bold"), ": ")
    if active.until is not None:
        wait = max(0.0, active.until - now)
        when = f"in {wait:.0f}s" if wait >= 0.5 else "is next"
        what = f"attempt {active.done:g} of {active.total or 0:g} {when}, after: {one_line(active.message)}"
        return text.append(f"{step}  ").append(what, "magenta")
    progress = format_progress(active.done, active.total)
    message = one_line(active.message)
    text.append(step if not message else f"{step}  {message}")
    return text.append(f" ({progress})") if progress else text


def _since(active: Running, now: float) -> str:
    return _short(now - active.since) if now - active.since >= 1 else ""


def _took(part: Part, now: float) -> str:
    if part.start is None:
        return ""
    return _short((part.end if part.end is not None else now) - part.start)


def _short(seconds: float) -> str:
    """A duration that does not flicker between units while it grows."""
    return f"{max(0.0, seconds):.1f}s" if seconds < 59.95 else format_duration(seconds)


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _name(name: str, width: int) -> str:
    text = one_line(name)
    text = text if cell_len(text) <= width else text[: width - 1] + "…"
    return text + " " * max(0, width - cell_len(text))


def _row(left: Text, right: str, width: int) -> Text:
    """One line: the left part, cut if it must be, and the right part at the edge."""
    if width < _NARROW and left.cell_len + cell_len(right) + 2 > width:
        right = ""  # the left part says more
    room = width - (cell_len(right) + 2 if right else 0)
    if left.cell_len > room:
        left.truncate(room, overflow="ellipsis")
    if right:
        left.append(" " * (width - left.cell_len - cell_len(right))).append(right, "dim")
    return left


def _in_ascii(line: Text) -> Text:
    """The line with as many characters, all of which any terminal has."""
    line.plain = line.plain.replace("…", "~").encode("ascii", "replace").decode("ascii")
    return line
