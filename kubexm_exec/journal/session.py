"""One session of a run: takes the target's lease, records what the run is made from, and releases it at the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from msgspec import Struct

from kubexm_exec.engine import entries
from kubexm_exec.engine.ports import Durable, Entry, JournalError
from kubexm_exec.engine.writeahead import inputs_digest
from kubexm_exec.journal import leases
from kubexm_exec.journal.database import Door
from kubexm_exec.journal.errors import BusyError, FencedError, GoneError, explain
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.store import INTERRUPTED, RunRow, Store, folder_of
from kubexm_exec.model.events import ACTION_OUTPUT, Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.ownership import open_own, own_folder

if TYPE_CHECKING:
    from kubexm_exec.connectors.base import User
    from kubexm_exec.engine.runtime import Runtime
    from kubexm_exec.model.result import GraphExecutionResult

NAME: Final = "output.jsonl"
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BEGIN: Final = '{"time":'
"""How every line begins; quotes in texts are escaped, so that it occurs nowhere else."""


class OutputLog:
    """A subscriber that writes the output of steps; the file is created with the first piece, for its owner only."""

    def __init__(self, folder: Path, lost: Callable[[JournalError], None]) -> None:
        """``lost`` is called once if it cannot be written: a run must not go on while its output is lost."""
        self._folder = folder
        self._lost: Callable[[JournalError], None] | None = lost
        self._file: TextIO | None = None

    def __call__(self, event: Event) -> None:
        """Write the event if it is output."""
        if event.kind != ACTION_OUTPUT or self._lost is None:
            return
        try:
            self._write(event)
        except OSError as error:
            lost, self._lost = self._lost, None
            lost(explain(f"the run's log {self._folder / NAME}", error))

    def _write(self, event: Event) -> None:
        if self._file is None:
            for folder in (self._folder.parent.parent, self._folder.parent, self._folder):
                own_folder(folder)
            descriptor = open_own(self._folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            # Line-buffered: readers see whole lines, and a crash loses none.
            self._file = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="surrogateescape")
        line = {"time": round(event.time, 3), "node": event.node, "host": event.host, **event.data}
        self._file.write(_ENCODE(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            # A failed write was reported when it happened.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def read_log(folder: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """The pieces from an offset on, each with the offset after it; an incomplete last line is left for later."""
    path = folder / NAME
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            piece = _piece(line.decode("utf-8", "surrogateescape"))
            if piece is not None:
                yield offset, piece


def _piece(line: str) -> dict[str, Any] | None:
    """The data of a line. After a full disk or a crash the next session's first line may follow an incomplete one."""
    for text in (line, line[max(0, line.rfind(_BEGIN)) :]):
        with contextlib.suppress(ValueError):
            piece: dict[str, Any] = json.loads(text)
            return piece
    return None


_BUSY: Final = 30.0
"""Seconds to wait for another process that writes."""
_PROMPT: Final = 0.05
"""The same for a thread that has other work."""
_TIDY: Final = 40
"""Commits between two rounds of maintenance."""


class _Aside:
    """Work that one of two threads does, whichever is first."""

    __slots__ = ("_done", "_error", "_taken", "_what")

    def __init__(self, what: Callable[[], None]) -> None:
        self._what = what
        self._taken = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def help(self) -> None:
        """Do it, unless the other thread does."""
        if self._taken.acquire(blocking=False):
            try:
                self._what()
            except BaseException as error:  # noqa: BLE001  ``finish`` raises it
                self._error = error
            finally:
                self._done.release()

    def finish(self) -> None:
        """Do it, or wait for the other thread; raises what it raises."""
        if self._taken.acquire(blocking=False):
            self._what()
            return
        self._done.acquire()
        if self._error is not None:
            raise self._error


_Group: TypeAlias = tuple[Sequence[Entry], Durable]


class Recorder:
    """Writes one run in order; after an error nothing more is written."""

    def __init__(self, store: Store, run: str, epoch: int, after: int = 0) -> None:
        """``after``: the number of the last group of entries that the run has."""
        self.store = store
        self.run = run
        self.epoch = epoch
        self.error: JournalError | None = None
        self.digests: dict[str, str] = {}
        """Digests of the inputs of nodes, by their ids; made before anything runs."""
        self.written = after
        """The number of the last group that is durable."""
        self._door: Door | None = None
        self._pen = threading.Lock()
        """Held while writing."""
        self._untidy = 0
        self._todo: SimpleQueue[_Group | _Aside | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="kubexm-journal", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[Entry], durable: Durable) -> None:
        """Write entries in the background; ``durable`` is called in the writing thread."""
        self._todo.put((entries, durable))

    def submit_here(self, entries: Sequence[Entry], durable: Durable, aside: Callable[[], None]) -> None:
        """Write entries in this thread if that is quick, while the other thread does ``aside``."""
        if self._door is None or not self._door.prompt:
            self.submit(entries, durable)
            aside()
            return
        task = _Aside(aside)
        self._todo.put(task)
        written = self._commit(entries, _PROMPT)
        task.finish()
        if written:
            durable(self.error)
        else:
            self.submit(entries, durable)

    def write(self, *entries: Entry) -> None:
        """Write entries and wait until they are durable; raises JournalError."""
        done: SimpleQueue[JournalError | None] = SimpleQueue()
        self.submit(entries, done.put)
        error = done.get()
        if error is not None:
            raise error

    def keep(self, token: str, data: bytes) -> None:
        """Store content for an undo; durable when this returns."""
        if self.error is not None:
            raise self.error
        self.store.keep(self.run, token, data)

    def kept(self, token: str) -> bytes:
        """Stored content; raises KeyError."""
        return self.store.kept(self.run, token)

    def fail(self, error: JournalError) -> None:
        """Write nothing more, because of this error."""
        self.error = self.error or error

    def close(self) -> None:
        """Write what is pending, and end."""
        self._todo.put(None)
        self._thread.join()

    def _write(self) -> None:
        going = True
        while going:
            several = [self._todo.get()]
            several += [self._todo.get() for _ in range(self._todo.qsize())]
            group: list[_Group] = []
            for one in several:
                if isinstance(one, _Aside):
                    one.help()
                elif one is not None:
                    group.append(one)
            going = None not in several
            if group:
                if not self._commit([entry for entries, _ in group for entry in entries], _BUSY):
                    self.fail(BusyError(self.store.place))
                for _, durable in group:
                    durable(self.error)
            if self._untidy >= _TIDY:
                self._tidy()
        if self._door is not None:
            self._door.close()

    def _commit(self, entries: Sequence[Entry], patience: float) -> bool:
        """Write entries, unless there was an error; False if another process holds the lock for all that time."""
        until = time.monotonic() + patience
        if not self._pen.acquire(timeout=patience):
            return False
        try:
            while self.error is None and entries:
                try:
                    self._append(entries)
                    break
                except BusyError:
                    if time.monotonic() >= until:
                        return False
        finally:
            self._pen.release()
        return True

    def _append(self, entries: Sequence[Entry]) -> None:
        try:
            if self._door is None:
                self._door = self.store.connect()
            self.store.append_by(self._door, self.run, self.epoch, self.written + 1, entries)
            self.written += 1
            self._untidy += 1
        except BusyError:
            raise
        except JournalError as error:
            self.fail(error)
        except BaseException as error:
            # If the thread died, the run would wait forever; and what was written last is unknown now.
            self.fail(JournalError(f"{self.store.place}: {type(error).__name__}: {error}"))
            if not isinstance(error, Exception):
                raise

    def _tidy(self) -> None:
        with self._pen:
            self._untidy = 0
            if self._door is not None:
                self._door.tidy()


_LOOK: Final = 0.5
"""Seconds between two tries to take a lease."""
_MARK: Final = 20
"""Digits of a mark."""


class Start(Struct, frozen=True, kw_only=True):
    """A new run."""

    run: str
    name: str
    target: str
    spec: str
    executor: str
    made_from: Mapping[str, Any]
    asked: Mapping[str, Any] | None = None
    """The request."""


class Session:
    """This process's work on a run."""

    def __init__(self, store: Store, state: Path, run: str, target: str, epoch: int, after: int, heard: int) -> None:
        self.store = store
        self.run = run
        self.target = target
        self.epoch = epoch
        self.folder = folder_of(state, run)
        self.recorder = Recorder(store, run, epoch, after)
        self._heard = heard
        self._keeper: leases.Keeper | None = None
        self._runtime: Runtime | None = None
        self._before: RunRow | None = None
        """The run as it stays if this session ends before anything has begun."""
        self._after = after
        self.asked_by = ""
        """Who cancelled the run from another process."""

    @classmethod
    def begin(
        cls, store: Store, state: Path, start: Start, *, wait: Callable[[leases.HeldError], None] | None
    ) -> Session:
        """A new run; raises HeldError if the target is taken, unless ``wait`` (called repeatedly) returns."""
        holder = Owner.me()
        _acquire(store, start.target, start.run, 1, holder, wait)
        try:
            epoch = store.begin(
                start.run, name=start.name, target=start.target, spec=start.spec, executor=start.executor,
                holder=holder, made_from=start.made_from, asked=start.asked,
                opening=[entries.Session("run", str(holder))],
            )  # fmt: skip
            # From here on taking the lease fences the run; a process that took it just before could not do that.
            leases.check(store, start.target, start.run, epoch)
        except JournalError:
            leases.release(store, start.target, start.run, 1)
            raise
        return cls(store, state, start.run, start.target, epoch, 1, 0)

    @classmethod
    def go_on(
        cls,
        store: Store,
        state: Path,
        run: str,
        mode: str,
        made_from: Mapping[str, Any] | None = None,
        *,
        wait: Callable[[leases.HeldError], None] | None = None,
        first: Callable[[], tuple[Sequence[entries.Entry], Sequence[entries.Repeat]]] | None = None,
    ) -> Session:
        """Continue a run that no process works on; raises HeldError or FencedError.

        ``first``: called with the lease taken; returns entries to write before the session begins, and what to repeat
        in it (see ``entries.Repeat``). Both become durable together with what the run is made from now.
        """
        row = store.run(run)
        holder = Owner.me()
        _acquire(store, row.target, run, row.epoch + 1, holder, wait)
        try:
            heard = max((number for number, *_ in store.asked(run)), default=0)
            noted, again = first() if first is not None else ((), ())
            epoch = store.take_on(
                run, row.epoch, holder, made_from, [*noted, entries.Session(mode, str(holder), tuple(again))]
            )
            leases.check(store, row.target, run, epoch)
        except BaseException:
            leases.release(store, row.target, run, row.epoch + 1)
            raise
        session = cls(store, state, run, row.target, epoch, store.last(run), heard)
        if row.over and made_from is None and not again:
            session._before = row
        return session

    def attach(self, runtime: Runtime, left: Mapping[str, Sequence[tuple[int, str]]] | None = None) -> None:
        """Record a run, and end it if the lease is lost or cancelled; ``left``: what may still run on hosts."""
        runtime.journal = self.recorder
        runtime.pending = [*runtime.pending, *self.store.notifications(self.target)]
        mask = runtime.redactor.mask
        self.recorder.digests = {node.id: inputs_digest(node, mask) for node in runtime.graph.steps()}
        runtime.connections.mark(mark_of(self.run, self.epoch), self._marks(left) if left else {})
        self._runtime = runtime
        self._keeper = leases.Keeper(
            self.store, self.target, self.run, self.epoch, lost=self.lost, asked=self._asked, heard=self._heard
        )
        self._keeper.start()

    def _marks(self, left: Mapping[str, Sequence[tuple[int, str]]]) -> dict[str, list[tuple[str, User]]]:
        """The marks of what earlier sessions may have left running, each with its user."""
        from kubexm_exec.engine.history import tell, whole_graph

        history = tell(self.store, self.run)
        # Accepted changes may have changed the user, too.
        graphs = [
            whole_graph(ExecutionGraph.from_json(each["graph"]), history) for each in self.store.all_made_from(self.run)
        ]
        found: dict[str, dict[tuple[str, User], None]] = {}
        for host, several in left.items():
            for epoch, node in several:
                spots = {(g.nodes[node].place(host), _user(g, node, host)) for g in graphs if node in g.nodes}
                for place, user in spots or {(host, None)}:
                    found.setdefault(place, {})[mark_of(self.run, epoch), user] = None
        return {host: list(marks) for host, marks in found.items()}

    def lost(self, error: JournalError) -> None:
        """The run cannot be recorded any more: no new action starts, and running ones are stopped."""
        assert self._runtime is not None
        self.recorder.fail(error)
        self._runtime.cancel.set()

    def _asked(self, kind: str, by: str, data: str) -> None:
        assert self._runtime is not None
        if kind == "cancel":
            self.asked_by = by
            self._runtime.cancel.set()
        elif kind == "answer":
            said = json.loads(data)
            self._runtime.asker.answer(said["node"], said["host"], said["answer"], by)

    def close(
        self, result: GraphExecutionResult | None, counts: Mapping[str, int], success: str = "Success"
    ) -> JournalError | None:
        """Record the end, and release the target; returns the error of the journal, if there was one."""
        error = self._end(result, counts, success)
        try:
            if self._keeper is not None:
                self._keeper.close()
            else:
                leases.release(self.store, self.target, self.run, self.epoch)
        except JournalError as late:
            error = error or late
        return error

    def _end(self, result: GraphExecutionResult | None, counts: Mapping[str, int], success: str) -> JournalError | None:
        try:
            if self.recorder.error is not None:
                return self.recorder.error
            if result is None:
                # Otherwise this process would count as working on the run as long as it lives.
                was = self._before
                if was is None or self.recorder.written != self._after:
                    self.store.end(self.run, self.epoch, status=INTERRUPTED, message="", counts={})
                else:
                    self.store.end(self.run, self.epoch, status=was.status, message=was.message, counts=was.counts)
            else:
                status, message = result.status.value, result.message
                status = success if status == "Success" else status
                self.recorder.write(entries.Ended(status, message))
                self.store.end(self.run, self.epoch, status=status, message=message, counts=counts)
        except JournalError as error:
            return error
        finally:
            self.recorder.close()
        return self.recorder.error

    @property
    def gone(self) -> bool:
        """Whether this process cannot resume the run: another one has taken over, or the journal is gone."""
        return isinstance(self.recorder.error, FencedError | GoneError)


def mark_of(run: str, epoch: int) -> str:
    """The mark of all that a session runs on hosts: the next session finds its leftovers by it."""
    return f"kx{hashlib.sha256(f'{run} {epoch}'.encode()).hexdigest()[:_MARK]}"


def _user(graph: ExecutionGraph, node: str, host: str) -> User:
    of = graph.nodes[node]
    known = graph.hosts.get(of.place(host))
    return known.becomes or False if of.become is None and known is not None else of.become


def _acquire(
    store: Store,
    target: str,
    run: str,
    epoch: int,
    holder: Owner,
    wait: Callable[[leases.HeldError], None] | None,
) -> None:
    while True:
        try:
            leases.acquire(store, target, run, epoch, holder)
        except leases.HeldError as error:
            if wait is None:
                raise
            wait(error)
            time.sleep(_LOOK)
        else:
            return
