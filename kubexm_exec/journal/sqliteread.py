"""A journal in a SQLite file that may only be read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.database import is_current
from kubexm_exec.journal.errors import BusyError
from kubexm_exec.journal.sqlitefile import kernel_time, revision_of
from kubexm_exec.journal.statements import STATEMENTS

T = TypeVar("T")

_TRIES: Final = 20
_Stamp: TypeAlias = tuple[int, int, int]
"""What a file is that nobody writes to."""


def may_only_be_read(path: Path) -> bool:
    """Whether there is a file that cannot be written, or whose log cannot be made beside it."""
    path = path.resolve()  # SQLite has the log beside the file itself, not beside a link to it
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


class SqliteReading:
    """The file, for questions alone, and the door to it: each question has a connection of its own.

    While somebody writes, their log is beside the file, and SQLite reads both and keeps to their locks. Without a log
    all is in the file, but SQLite would make one, unless it is told that the file does not change: whether that was so
    is looked at after each question, and if not, it is asked again.
    """

    def __init__(self, path: Path, place: str) -> None:
        self._path = path.resolve()
        self._place = place
        if not is_current(self._ask(lambda connection: revision_of(connection, place)), place):
            raise JournalError(
                f"{place} was made by an older kubexm, and cannot be brought up: it is read-only",
                "run `kubexm runs` where it can be written",
            )

    @property
    def prompt(self) -> bool:
        """It waits for nobody."""
        return True

    def looking(self) -> AbstractContextManager[SqliteReading]:
        """For questions alone."""
        return nullcontext(self)

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """What is there."""
        return self._ask(lambda connection: connection.execute(STATEMENTS[name], values).fetchall())

    @property
    def one_kernel(self) -> bool:
        """As for whoever writes it."""
        return True

    def now(self) -> float:
        """The time of this machine's kernel."""
        return kernel_time()

    def close(self) -> None:
        """Nothing is kept open."""

    def check(self) -> None:
        """Nothing is written, so that nothing can be lost."""

    def tidy(self) -> None:
        """There is nothing to put in order."""

    def writing(self) -> NoReturn:
        """Not here."""
        raise JournalError(
            f"{self._place}: the journal cannot be written: it is read-only", "check the owner and mode of its folder"
        )

    def do(self, name: str, /, **values: Any) -> NoReturn:
        """Not here."""
        self.writing()

    connect = lock_leases = give_back = writing

    def lock_run(self, run: str) -> NoReturn:
        """Not here."""
        self.writing()

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        for _ in range(_TRIES):
            stamp = self._stamp()
            try:
                with closing(self._connect(unchanging=stamp is not None)) as connection:
                    answer = question(connection)
            except sqlite3.Error:
                if self._stamp() == stamp:
                    raise
            else:
                if stamp is None or self._stamp() == stamp:
                    return answer
        raise BusyError(self._place)

    def _stamp(self) -> _Stamp | None:
        """What the file is; None while it has a log, so that there is more than is in the file."""
        if Path(f"{self._path}-wal").exists():
            return None
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _connect(self, *, unchanging: bool) -> sqlite3.Connection:
        how = "immutable=1" if unchanging else "mode=ro"
        return sqlite3.connect(f"{self._path.as_uri()}?{how}", uri=True, isolation_level=None)
