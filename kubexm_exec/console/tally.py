"""Counts what happens by module and task as events come in: a few additions an event, however large the run is."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from kubexm_exec.model import events as ev
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import BLOCKED, column_of, where

PENDING: Final = "pending"
RUNNING: Final = "running"
OK: Final = "ok"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
CANCELLED: Final = "cancelled"


class Running(Struct):
    """An action that runs, or waits for its next attempt."""

    node: str
    host: str
    since: float
    message: str = ""
    done: float | None = None
    total: float | None = None
    until: float | None = None
    """When the next attempt starts, if it waits for that; ``done`` and ``total`` are attempts then."""


class Part(Struct):
    """A task, or a module with all of its tasks."""

    name: str
    total: int = 0
    done: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """How many actions ended in which column."""
    blocked: int = 0
    """Of the skipped ones, those that were so because something failed, or was not chosen."""
    running: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """By host, how many actions are not done yet."""
    hosts_done: int = 0
    start: float | None = None
    end: float | None = None
    failure: str = ""
    """The first failure, with its host."""
    pause: float | None = None
    """Until when the next batch waits."""

    @property
    def failed(self) -> int:
        """How many failed, and count as failures."""
        return self.numbers.get("failed", 0) + self.numbers.get("unreachable", 0)

    @property
    def state(self) -> str:
        """What to show for it."""
        if self.done < self.total:
            return RUNNING if self.start is not None else PENDING
        if self.failed:
            return FAILED
        if self.numbers.get("cancelled"):
            return CANCELLED
        return SKIPPED if self.total and self.blocked == self.total else OK

    def expect(self, host: str) -> None:
        """There is one more action to come on this host."""
        left = self.left.get(host)
        if left == 0:
            self.hosts_done -= 1
        self.left[host] = (left or 0) + 1
        self.total += 1
        self.end = None

    def forget(self, host: str) -> None:
        """An action that was to come on this host will not come."""
        left = self.left.get(host, 1) - 1
        self.left[host] = left
        self.hosts_done += left == 0
        self.total -= 1

    def finish(self, host: str, now: float) -> None:
        """One action of this host is done."""
        self.done += 1
        left = self.left.get(host, 1) - 1
        self.left[host] = left
        self.hosts_done += left == 0
        if self.done == self.total:
            self.end = now


class Task(Part):
    """A task and what runs of it."""

    active: dict[tuple[str, str], Running] = field(default_factory=dict)


class Module(Part):
    """A module and its tasks, in order."""

    tasks: dict[str, Task] = field(default_factory=dict)


class Tally:
    """The state of a run as far as people want to see it."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.graph = graph
        self.run = ""
        self.executor = ""
        self.mode = ""
        self.forks = 0
        self.nodes = 0
        self.all = Part("")
        self.modules: dict[str, Module] = {}
        self.stopping = ""
        self._where: dict[str, tuple[Module, Task]] = {}
        self._hosts: dict[str, int] = {}
        for node in graph.steps():
            self._add(node.id, node.module, node.task, node.hosts)

    def __call__(self, event: Event) -> None:
        """Count an event."""
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def task_of(self, node: str) -> tuple[Module, Task] | None:
        """Where a node belongs."""
        return self._where.get(node)

    def _add(self, node: str, module: str, task: str, hosts: tuple[str, ...] | list[str]) -> None:
        of, within = self._group(node, module, task)
        known = self._hosts.get(node, 0)
        if not known:
            self.nodes += 1
        # A node that is known already has its new hosts at the end.
        for host in hosts[known:]:
            self.all.expect(host)
            of.expect(host)
            within.expect(host)
        self._hosts[node] = len(hosts)

    def _group(self, node: str, module: str, task: str) -> tuple[Module, Task]:
        found = self._where.get(node)
        if found is None:
            parts = node.split("/")
            # Hooks of the pipeline and of modules have no task of their own: "hooks/pre/step", "module/hooks/pre/step".
            name = module or parts[0]
            of = self.modules.setdefault(name, Module(name))
            label = task or ("/".join(parts[1:-1]) if module else parts[1] if len(parts) > 2 else parts[0])
            found = self._where[node] = (of, of.tasks.setdefault(label, Task(label)))
        return found

    def _run_started(self, event: Event) -> None:
        self.run = event.run
        self.executor = str(event.data.get("executor", ""))
        self.mode = str(event.data.get("runMode", ""))
        self.forks = int(event.data.get("forks", 0))
        self.all.start = event.time

    def _started(self, event: Event) -> None:
        found = self._where.get(event.node)
        if found is None:
            return
        module, task = found
        key = (event.node, event.host)
        active = task.active.get(key)
        if active is None:
            at = where(event.host, str(event.data.get("place", "")))
            task.active[key] = Running(event.node, at, event.time)
            self.all.running += 1
            module.running += 1
            task.running += 1
        else:
            active.until, active.message, active.done, active.total = None, "", None, None
        for part in (module, task):
            part.pause = None
            if part.start is None:
                part.start = event.time

    def _progress(self, event: Event) -> None:
        active = self._active(event)
        if active is not None:
            data = event.data
            active.message = str(data.get("message") or "")
            active.done, active.total = data.get("done"), data.get("total")

    def _retried(self, event: Event) -> None:
        active = self._active(event)
        if active is not None:
            data = event.data
            active.until = event.time + float(data.get("delay") or 0.0)
            active.message = str(data.get("message") or "")
            active.done, active.total = data.get("attempt", 0) + 1, data.get("attempts")

    def _active(self, event: Event) -> Running | None:
        found = self._where.get(event.node)
        return found[1].active.get((event.node, event.host)) if found is not None else None

    def _finished(self, event: Event) -> None:
        found = self._where.get(event.node)
        if found is None:
            return
        module, task = found
        ran = task.active.pop((event.node, event.host), None) is not None
        data = event.data
        name = column_of(data, self.mode)
        blocked = name == "skipped" and data.get("reason") in BLOCKED
        for part in (self.all, module, task):
            part.numbers[name] = part.numbers.get(name, 0) + 1
            part.blocked += blocked
            part.running -= ran
            part.finish(event.host, event.time)
            if name in ("failed", "unreachable") and not part.failure:
                part.failure = f"{event.host}: {data.get('message', '')}"

    def _rescued(self, event: Event) -> None:
        found = self._where.get(event.node)
        name = column_of(event.data, self.mode)
        before = column_of({**event.data, "rescued": False, "ignored": False}, self.mode)
        for part in (self.all, *(found or ())):
            if part.numbers.get(before) and name != before:
                part.numbers[before] -= 1
                part.numbers[name] = part.numbers.get(name, 0) + 1

    def _extended(self, event: Event) -> None:
        for node in event.data.get("nodes", ()):
            if node.get("kind") != "gate":
                self._add(node["id"], node.get("module", ""), node.get("task", ""), node.get("hosts", []))

    def _moved(self, event: Event) -> None:
        found = self._where.get(event.node)
        for part in (self.all, *(found or ())):
            for host in event.data.get("instead_of", ()):
                part.forget(host)
            for host in event.data.get("hosts", ()):
                part.expect(host)

    def _paused(self, event: Event) -> None:
        gate = self.graph.nodes.get(event.node)
        module = self.modules.get(gate.module) if gate is not None else None
        task = module.tasks.get(gate.task) if module is not None and gate is not None else None
        if task is not None:
            task.pause = event.time + float(event.data.get("seconds", 0.0))

    def _stopping(self, event: Event) -> None:
        self.stopping = str(event.data.get("message") or event.data.get("reason") or "stopping")

    def _run_finished(self, event: Event) -> None:
        self.all.end = event.time


_HANDLERS: Final = {
    ev.RUN_STARTED: Tally._run_started,
    ev.ACTION_STARTED: Tally._started,
    ev.ACTION_PROGRESS: Tally._progress,
    ev.ACTION_RETRY: Tally._retried,
    ev.ACTION_FINISHED: Tally._finished,
    ev.ACTION_RESTORED: Tally._finished,
    ev.ACTION_RESCUED: Tally._rescued,
    ev.GRAPH_EXTENDED: Tally._extended,
    ev.NODE_MOVED: Tally._moved,
    ev.GATE_PAUSE: Tally._paused,
    ev.RUN_STOPPING: Tally._stopping,
    ev.RUN_FINISHED: Tally._run_finished,
}
