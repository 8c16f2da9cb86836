"""A journal in a PostgreSQL server; SQLAlchemy keeps the connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.database import Database, Door, is_current, migrate
from kubexm_exec.journal.statements import STATEMENTS

# Several write at once here: a process that takes a run over must wait for pending writes, since it reads all entries.
_STATEMENTS: Final = {
    name: text(f"{said} FOR SHARE" if name == "entries.append" else said).execution_options(preserve_rowcount=True)
    for name, said in STATEMENTS.items()
}
_LOCK: Final = 0x6B78
"""PostgreSQL's advisory lock for migrations."""


class ServerDoor(Door):
    """One connection to the server."""

    prompt = False
    one_kernel = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def do(self, name: str, /, **values: Any) -> int:
        """Change something; returns the number of affected rows."""
        return self._connection.execute(_STATEMENTS[name], values).rowcount

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """The result of a query."""
        return [tuple(row) for row in self._connection.execute(_STATEMENTS[name], values)]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A transaction: the connection is in autocommit mode, so that it begins and ends explicitly."""
        self._connection.exec_driver_sql("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(DBAPIError):  # what has gone wrong is told; without a connection it is over anyway
                self._connection.exec_driver_sql("ROLLBACK")
            raise
        self._connection.exec_driver_sql("COMMIT")

    def now(self) -> float:
        """The time of the server."""
        return float(self._connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())

    def lock_leases(self) -> None:
        """Let nobody else change leases until the transaction ends."""
        self._connection.exec_driver_sql("LOCK TABLE leases IN EXCLUSIVE MODE")

    def lock_run(self, run: str) -> None:
        """Without the lock a request with a lower number could become visible after one with a higher number."""
        self._connection.execute(text("SELECT 1 FROM runs WHERE id = :run FOR NO KEY UPDATE"), {"run": run})

    def close(self) -> None:
        """Return it to the pool."""
        self._connection.close()


class Server(Database):
    """The server, with a small pool of connections."""

    def __init__(self, url: str, place: str) -> None:
        self._engine = _engine(url, place)
        try:
            with self._single() as connection:
                current = is_current(_revision(connection, place), place)
            if not current:
                self._bring_up(place)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[ServerDoor]:
        """A transaction."""
        with self._engine.begin() as connection:
            yield ServerDoor(connection)

    @contextlib.contextmanager
    def looking(self) -> Iterator[ServerDoor]:
        """For queries only."""
        with self._single() as connection:
            yield ServerDoor(connection)

    def connect(self) -> ServerDoor:
        """A door of one's own."""
        return ServerDoor(self._single())

    def close(self) -> None:
        """Close the pool."""
        self._engine.dispose()

    def _single(self) -> Connection:
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _bring_up(self, place: str) -> None:
        with self._engine.begin() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            # Another process may have done it meanwhile.
            if not is_current(_revision(connection, place), place):
                migrate(connection)


def _engine(url: str, place: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.drivername != "postgresql+psycopg":
            raise NoSuchModuleError(parsed.drivername)
        return create_engine(parsed, pool_size=4, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ValueError):
        hint = "give the path of a file, or postgresql://user@host/name"
        raise JournalError(f"{place} is neither a file nor the URL of a PostgreSQL database", hint) from None
    except ImportError:
        hint = "pip install 'kubexm[postgres]'"
        raise JournalError("a journal in PostgreSQL needs the package psycopg", hint) from None


def _revision(connection: Connection, place: str) -> str:
    """The revision of the schema, empty if there is none yet; raises JournalError for another program's database."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return ""
    if not {"alembic_version", "runs", "entries"} <= tables:
        raise JournalError(f"{place} is the database of another program", "create an empty one for kubexm")
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() or "")
