"""A journal in a SQLite file, writable or read-only; SQLAlchemy is needed only to migrate an older schema."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.database import HEAD, Database, Door, is_current, migrate
from kubexm_exec.journal.errors import BusyError, GoneError
from kubexm_exec.journal.statements import SCHEMA, STATEMENTS
from kubexm_exec.ownership import open_own, own_folder

T = TypeVar("T")

MAGIC: Final = 0x6B786D31
"""SQLite's application id of a journal: another program's database is never touched."""
_BUSY: Final = 30.0
"""Seconds to wait for another process that writes."""
_PRAGMAS: Final = (
    # Only has an effect on an empty file: lets the space of removed runs be returned.
    "auto_vacuum = INCREMENTAL",
    "journal_mode = WAL",
    # Acknowledged means durable: FULL syncs at every commit.
    "synchronous = FULL",
    "foreign_keys = ON",
    # Pages after which the log starts over: syncing pages that are overwritten takes half as long as appended ones.
    "wal_autocheckpoint = 200",
)
_PROMPT: Final = 0.05
"""The same for a door of one's own: its user may try again."""
_TRIES: Final = 20
"""How often a read-only file is read again because it has changed."""


class SqliteDoor(Door):
    """One connection to the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def do(self, name: str, /, **values: Any) -> int:
        """Change something; returns the number of affected rows."""
        return self._connection.execute(STATEMENTS[name], values).rowcount

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """The result of a query."""
        return self._connection.execute(STATEMENTS[name], values).fetchall()

    def now(self) -> float:
        """The time of this machine's kernel."""
        return kernel_time()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A transaction."""
        with _transaction(self._connection):
            yield

    def tidy(self) -> None:
        """Start the log over."""
        # What stays in the log is durable there too, and a later checkpoint moves it.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class SqliteFile(Database):
    """The file, with a pool of idle connections."""

    def __init__(self, path: Path, place: str) -> None:
        # The process may change its working directory before it opens more connections.
        self._path = path.absolute()
        self._place = place
        self._free: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        # The content is confidential; SQLite creates its other files with the same mode.
        own_folder(self._path.parent)
        os.close(open_own(self._path, os.O_RDWR | os.O_CREAT))
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.close(open_own(Path(f"{self._path.resolve()}{suffix}"), os.O_RDWR))
        self._identity = self._identify()
        try:
            with self._connection() as connection:
                current = is_current(revision_of(connection, place), place)
            if not current and not self._make():
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
        """For queries only."""
        with self._connection() as connection:
            yield SqliteDoor(connection)

    def connect(self) -> SqliteDoor:
        """A door of one's own."""
        connection = _connect(self._path)
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        connection.execute(f"PRAGMA busy_timeout = {_PROMPT * 1000:.0f}")
        return SqliteDoor(connection)

    def give_back(self) -> None:
        """Return the space of removed runs to the file system."""
        with self._connection() as connection:
            # Each step of the statement frees one page: only a script runs it to its end.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check(self) -> None:
        """Raise GoneError if the file was removed or replaced: SQLite would go on writing to the old one."""
        if self._identify() != self._identity:
            raise GoneError(self._place)

    def _identify(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Close all connections."""
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

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection, _transaction(connection):
            yield connection

    def _make(self) -> bool:
        """Create the schema in an empty file; False if there is an older one."""
        with self._transaction() as connection:
            # Another process may have done it meanwhile.
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
            # Another process may have done it meanwhile.
            if not is_current(revision_of(connection.connection.driver_connection, self._place), self._place):
                migrate(connection)
                connection.exec_driver_sql(f"PRAGMA application_id = {MAGIC}")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # As a writer from the start: a transaction that begins as a reader can fail in the middle.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def kernel_time() -> float:
    """Seconds by the monotonic clock of this machine, the same in all containers."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock == "monotonic":
                return time.monotonic() - int(seconds) - int(nanoseconds) / 1e9
    return time.monotonic()


def _connect(path: Path) -> sqlite3.Connection:
    # mode=rw: a file that was removed is not created again. isolation_level: transactions begin explicitly.
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
    """Whether it is a journal, or empty; checked first, since a pragma would already change another program's file."""
    [ours] = connection.execute("PRAGMA application_id").fetchone()
    return ours == MAGIC or not _used(connection)


def _used(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def revision_of(connection: Any, place: str) -> str:
    """The revision of the schema, empty if there is none yet; raises JournalError for another program's database."""
    if not _is_ours(connection):
        raise JournalError(f"{place} is the database of another program", "choose another file")
    if not _used(connection):
        return ""
    [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
    return str(revision)


def may_only_be_read(path: Path) -> bool:
    """Whether a file exists that cannot be written, or whose log cannot be created beside it."""
    path = path.resolve()  # SQLite puts the log beside the file itself, not beside a link to it
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


class SqliteReading(Database, Door):
    """A read-only file, and the door to it: each query has a connection of its own.

    While another process writes, its log is beside the file, and SQLite reads both and respects its locks. Without a
    log all is in the file, but SQLite would create one, unless it is told that the file does not change. Whether it did
    is checked after each query, which is repeated then.
    """

    def __init__(self, path: Path, place: str) -> None:
        self._path = path.resolve()
        self._place = place
        if not is_current(self._ask(lambda connection: revision_of(connection, place)), place):
            raise JournalError(
                f"{place} was made by an older kubexm and cannot be migrated: it is read-only",
                "run `kubexm runs` where it can be written",
            )

    def looking(self) -> AbstractContextManager[SqliteReading]:
        """For queries only."""
        return contextlib.nullcontext(self)

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """The result of a query."""
        return self._ask(lambda connection: connection.execute(STATEMENTS[name], values).fetchall())

    def now(self) -> float:
        """The time of this machine's kernel."""
        return kernel_time()

    def close(self) -> None:
        """Nothing is kept open."""

    def writing(self, *_: object, **values: object) -> NoReturn:
        """Refuse to write."""
        raise JournalError(
            f"{self._place}: the journal cannot be written: it is read-only", "check the owner and mode of its folder"
        )

    do = connect = together = lock_leases = lock_run = give_back = writing

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        for _ in range(_TRIES):
            stamp = self._stamp()
            how = "mode=ro" if stamp is None else "immutable=1"
            try:
                with contextlib.closing(
                    sqlite3.connect(f"{self._path.as_uri()}?{how}", uri=True, isolation_level=None)
                ) as connection:
                    answer = question(connection)
            except sqlite3.Error:
                if self._stamp() == stamp:
                    raise
            else:
                if stamp is None or self._stamp() == stamp:
                    return answer
        raise BusyError(self._place)

    def _stamp(self) -> tuple[int, int, int] | None:
        """What identifies the state of the file; None while there is a log, which holds more."""
        if Path(f"{self._path}-wal").exists():
            return None
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
