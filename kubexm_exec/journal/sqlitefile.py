"""A journal in a SQLite file; SQLAlchemy is needed only to bring an older schema up."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.database import HEAD, is_current, migrate
from kubexm_exec.journal.errors import GoneError
from kubexm_exec.journal.statements import SCHEMA, STATEMENTS
from kubexm_exec.ownership import open_own, own_folder

MAGIC: Final = 0x6B786D31
"""SQLite's application id of a journal: another program's database is never touched."""
_BUSY: Final = 30.0
"""Seconds to wait for another process that writes."""
_PRAGMAS: Final = (
    # This one only has an effect before there is anything in the file: what is forgotten can be given back.
    "auto_vacuum = INCREMENTAL",
    "journal_mode = WAL",
    # Acknowledged means durable: FULL syncs at every commit.
    "synchronous = FULL",
    "foreign_keys = ON",
    # A log of this many pages is begun anew: to sync what is written over takes half as long as what makes it longer.
    "wal_autocheckpoint = 200",
)
_PROMPT: Final = 0.05
"""Seconds to wait for one through a door that is kept to write often: whoever has it may ask again."""


class SqliteDoor:
    """One connection to the file."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def prompt(self) -> bool:
        """It takes a sync of the disk, or is locked."""
        return True

    def do(self, name: str, /, **values: Any) -> int:
        """Change something; gives the number of rows that it met."""
        return self._connection.execute(STATEMENTS[name], values).rowcount

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """What is there."""
        return self._connection.execute(STATEMENTS[name], values).fetchall()

    @property
    def one_kernel(self) -> bool:
        """The log of the file is shared through the memory of one machine."""
        return True

    def now(self) -> float:
        """The time of this machine's kernel."""
        return kernel_time()

    def lock_leases(self) -> None:
        """There is only one writer in any case."""

    def lock_run(self, run: str) -> None:
        """There is only one writer in any case."""

    def tidy(self) -> None:
        """Begin the log anew."""
        # What is not moved out of the log is as durable in it, and a later one moves it.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()


class SqliteFile:
    """The file, with the connections that are free at the moment."""

    def __init__(self, path: Path, place: str) -> None:
        # The program may go to another folder, and connections are made later too.
        self._path = path.absolute()
        self._place = place
        self._free: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        # What is in it may be of use to others who should not have it; SQLite gives its other files the same mode.
        own_folder(self._path.parent)
        os.close(open_own(self._path, os.O_RDWR | os.O_CREAT))
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.close(open_own(Path(f"{self._path.resolve()}{suffix}"), os.O_RDWR))
        self._identity = self._identify()
        try:
            if not is_current(self._revision(), place) and not self._make():
                self._bring_up()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[SqliteDoor]:
        """A transaction."""
        with self._transaction() as connection:
            yield SqliteDoor(connection)

    @contextlib.contextmanager
    def looking(self) -> Iterator[SqliteDoor]:
        """For questions alone."""
        with self._connection() as connection:
            yield SqliteDoor(connection)

    def connect(self) -> SqliteDoor:
        """A door of one's own."""
        connection = _connect(self._path)
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        connection.execute(f"PRAGMA busy_timeout = {_PROMPT * 1000:.0f}")
        return SqliteDoor(connection)

    def give_back(self) -> None:
        """Give the space of what was forgotten back to the file system."""
        with self._connection() as connection:
            # It frees one page each time it is asked to go on: only a script is asked until it ends.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check(self) -> None:
        """Raise GoneError if another file, or none, is where this one was: SQLite writes on into what is gone."""
        if self._identify() != self._identity:
            raise GoneError(self._place)

    def _identify(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            several, self._free = self._free, []
        for connection in several:
            connection.close()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = _connect(self._path)
        try:
            yield connection
        except sqlite3.Error:
            connection.close()
            raise
        except BaseException:
            self._put_back(connection)
            raise
        self._put_back(connection)

    def _put_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._free.append(connection)

    def _revision(self) -> str:
        """The revision of the schema, empty if there is none yet; refuses a database that is not ours."""
        with self._connection() as connection:
            return revision_of(connection, self._place)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            # At once as a writer: one that began as a reader can fail in the middle.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _make(self) -> bool:
        """Make the schema in an empty file; False if there is an older one."""
        with self._transaction() as connection:
            # Somebody else may have done it meanwhile.
            if _used(connection):
                return is_current(revision_of(connection, self._place), self._place)
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO alembic_version VALUES (?)", (HEAD,))
            connection.execute(f"PRAGMA application_id = {MAGIC}")
            return True

    def _bring_up(self) -> None:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        engine = create_engine("sqlite://", creator=lambda: _connect(self._path), poolclass=NullPool)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        with engine.begin() as connection:
            # Somebody else may have done it meanwhile.
            if not is_current(revision_of(connection.connection.driver_connection, self._place), self._place):
                migrate(connection)
                connection.exec_driver_sql(f"PRAGMA application_id = {MAGIC}")


def kernel_time() -> float:
    """Seconds by the clock of this machine that nobody sets; the same in all containers, unlike the time of day."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock == "monotonic":
                return time.monotonic() - int(seconds) - int(nanoseconds) / 1e9
    return time.monotonic()


def _connect(path: Path) -> sqlite3.Connection:
    # We say when a transaction begins, not the driver.
    # If the file is gone, no other one is made.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False
    )
    try:
        if _is_ours(connection):
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_ours(connection: sqlite3.Connection) -> bool:
    """Whether it is a journal, or nothing yet: already the first pragma would change what is another program's."""
    [ours] = connection.execute("PRAGMA application_id").fetchone()
    return ours == MAGIC or not _used(connection)


def _used(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def revision_of(connection: Any, place: str) -> str:
    """The revision of the schema, empty if there is none yet; refuses a database that is not ours."""
    if not _is_ours(connection):
        raise JournalError(f"{place} is the database of another program", "choose another file")
    if not _used(connection):
        return ""
    [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
    return str(revision)
