"""Writes the entries of one run: those that have accumulated are committed together, so that they share a sync."""

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
        """Write entries in this thread, which has nothing else to do but ``aside``: the other thread does that.

        Waking a thread takes half as long as a sync. Where a write may take long, the other thread writes.
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
