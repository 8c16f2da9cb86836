"""Writes one run's entries: a thread commits all that has come together, so that many share the cost of one sync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeAlias

from kubexm_exec.journal.database import Door
from kubexm_exec.journal.errors import JournalError
from kubexm_exec.journal.store import Entry, Store

Durable: TypeAlias = Callable[[JournalError | None], None]
"""Called when entries are durable, or with why they never will be."""


def _nobody_waits() -> None:
    """Nothing to be done."""


class Recorder:
    """The pen of one run. What is handed over first is written first; after an error nothing is written any more."""

    def __init__(self, store: Store, run: str, epoch: int, after: int = 0) -> None:
        """``after``: the number of the last entries that the run has already."""
        self.store = store
        self.run = run
        self.epoch = epoch
        self.error: JournalError | None = None
        self._seq = after
        self._door: Door | None = None
        self._todo: SimpleQueue[tuple[Sequence[Entry], Durable, Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="kubexm-journal", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[Entry], durable: Durable, begun: Callable[[], None] = _nobody_waits) -> None:
        """Have entries written; ``durable`` is called in the writing thread, and so is ``begun`` right before."""
        self._todo.put((entries, durable, begun))

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
            group = [one for one in several if one is not None]
            going = len(group) == len(several)
            for _, _, begun in group:
                begun()
            if self.error is None and group:
                self._commit([entry for entries, _, _ in group for entry in entries])
            for _, durable, _ in group:
                durable(self.error)
            if self._door is not None:
                self._door.tidy()
        if self._door is not None:
            self._door.close()

    def _commit(self, entries: list[Any]) -> None:
        if not entries:
            return
        try:
            if self._door is None:
                self._door = self.store.connect()
            self.store.append_by(self._door, self.run, self.epoch, self._seq + 1, entries)
            self._seq += 1
        except JournalError as error:
            self.error = self.error or error
        except Exception as error:  # noqa: BLE001  a thread that dies would leave the run waiting for ever
            self.error = JournalError(f"{self.store.place}: {type(error).__name__}: {error}")
