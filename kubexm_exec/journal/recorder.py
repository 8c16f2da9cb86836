"""Writes one run's entries: all that has come together is committed at once, so that many share the cost of a sync."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, TypeAlias

from kubexm_exec.engine.ports import Durable, Entry, JournalError
from kubexm_exec.journal.database import Door
from kubexm_exec.journal.errors import BusyError
from kubexm_exec.journal.store import Store

_BUSY: Final = 30.0
"""Seconds to wait for another process that writes."""
_PROMPT: Final = 0.05
"""The same for somebody who has more to do than to wait."""
_TIDY: Final = 40
"""Commits after which what was written is put in order."""


class _Aside:
    """Something that one of two threads does, whichever comes to it first."""

    __slots__ = ("_done", "_error", "_taken", "_what")

    def __init__(self, what: Callable[[], None]) -> None:
        self._what = what
        self._taken = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def help(self) -> None:
        """Do it, unless the other one is at it."""
        if self._taken.acquire(blocking=False):
            try:
                self._what()
            except BaseException as error:  # noqa: BLE001  it is raised where it would have been without this help
                self._error = error
            finally:
                self._done.release()

    def finish(self) -> None:
        """Have it done; raises what it raises."""
        if self._taken.acquire(blocking=False):
            self._what()
            return
        self._done.acquire()
        if self._error is not None:
            raise self._error


_Group: TypeAlias = tuple[Sequence[Entry], Durable]


class Recorder:
    """The pen of one run. What is handed over first is written first; after an error nothing is written any more."""

    def __init__(self, store: Store, run: str, epoch: int, after: int = 0) -> None:
        """``after``: the number of the last entries that the run has already."""
        self.store = store
        self.run = run
        self.epoch = epoch
        self.error: JournalError | None = None
        self.digests: dict[str, str] = {}
        """Of the inputs of nodes, by their ids; made before anything runs, when nobody waits for them."""
        self._seq = after
        self._door: Door | None = None
        self._pen = threading.Lock()
        """Held by whoever writes."""
        self._untidy = 0
        self._todo: SimpleQueue[_Group | _Aside | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="kubexm-journal", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[Entry], durable: Durable) -> None:
        """Have entries written; ``durable`` is called in the writing thread."""
        self._todo.put((entries, durable))

    def submit_here(self, entries: Sequence[Entry], durable: Durable, aside: Callable[[], None]) -> None:
        """Write entries in this thread, which has nothing else to do but ``aside``: the other one does that meanwhile.

        To wake a thread takes as long as half a sync. Where that could mean to wait for long, the other one writes.
        """
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
        """Keep content for an undo; durable when this returns."""
        if self.error is not None:
            raise self.error
        self.store.keep(self.run, token, data)

    def kept(self, token: str) -> bytes:
        """Content that was kept; raises KeyError."""
        return self.store.kept(self.run, token)

    def fail(self, error: JournalError) -> None:
        """Write nothing any more, because of this."""
        self.error = self.error or error

    def close(self) -> None:
        """Write what is left, and end."""
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
        """Write entries, unless nothing is written any more; False if somebody else writes for all that time."""
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
            self.store.append_by(self._door, self.run, self.epoch, self._seq + 1, entries)
            self._seq += 1
            self._untidy += 1
        except BusyError:
            raise
        except JournalError as error:
            self.fail(error)
        except BaseException as error:
            # A thread that dies would leave the run waiting for ever, and nobody knows now what was written last.
            self.fail(JournalError(f"{self.store.place}: {type(error).__name__}: {error}"))
            if not isinstance(error, Exception):
                raise

    def _tidy(self) -> None:
        with self._pen:
            self._untidy = 0
            if self._door is not None:
                self._door.tidy()
