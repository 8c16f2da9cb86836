"""Opens the database of the journal: SQLite in the user's state folder, or any other by URL; brings its schema up."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kubexm_exec.journal.errors import JournalError, explained

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

HEAD: Final = "0001"
"""The newest revision of the schema that this version knows."""
MAGIC: Final = 0x6B786D31
"""SQLite's application id of a journal: another program's database is never touched."""
_LOCK: Final = 0x6B78
"""PostgreSQL's advisory lock for migrations."""
_BUSY: Final = 30.0
"""Seconds to wait for another process that writes."""


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where runs leave what they need later: ``$KUBEXM_STATE``, or ``kubexm`` in the user's state folder."""
    env = os.environ if environ is None else environ
    if env.get("KUBEXM_STATE"):
        return Path(env["KUBEXM_STATE"]).absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "kubexm"


def open_engine(url: str) -> Engine:
    """An engine whose database has the newest schema; raises JournalError.

    ``url`` is a path of a SQLite file, or a URL such as ``postgresql://user@host/name``.
    """
    place = shown(url)
    with explained(place):
        engine = _sqlite(Path(url)) if "://" not in url else _server(url)
        try:
            _bring_up(engine, place)
        except BaseException:
            engine.dispose()
            raise
        return engine


def shown(url: str) -> str:
    """The place of a journal for messages, without a password."""
    if "://" not in url:
        return f"journal {url}"
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return f"journal {make_url(url).render_as_string(hide_password=True)}"
    except ArgumentError:
        return "journal"


def _sqlite(path: Path) -> Engine:
    from sqlalchemy import create_engine, event
    from sqlalchemy.engine import URL
    from sqlalchemy.pool import QueuePool

    # The program may go to another folder, and connections are made later too.
    path = path.absolute()
    # What is in it may be of use to others who should not have it; SQLite gives its other files the same mode.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _BUSY, "check_same_thread": False},
        poolclass=QueuePool,
        pool_size=4,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # We say when a transaction begins, not the driver.
        connection.isolation_level = None
        cursor = connection.cursor()
        ours = cursor.execute("PRAGMA application_id").fetchone()[0] == MAGIC
        if not ours and cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            # Another program's: it will be refused, and already the first of these would change the file.
            return
        # Acknowledged means durable: FULL syncs at every commit.
        # The first one only has an effect before there is anything in the file: what is forgotten can be given back.
        for pragma in (
            "auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON",
            "wal_autocheckpoint = 4000",
        ):  # fmt: skip
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # At once as a writer: one that began as a reader can fail in the middle. Single statements need no more.
        if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _server(url: str) -> Engine:
    from sqlalchemy import create_engine
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        return create_engine(parsed, pool_size=4, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError):
        hint = "give the path of a file, or postgresql://user@host/name"
        raise JournalError(f"{shown(url)} is not the place of a journal", hint) from None
    except ImportError:
        hint = "pip install 'kubexm[postgres]'"
        raise JournalError("a journal in PostgreSQL needs the package psycopg", hint) from None


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection that only looks: it never waits for a writer, and no writer waits for it."""
    with single(engine) as connection:
        yield connection


def single(engine: Engine) -> Connection:
    """A connection on which every statement is a transaction of its own."""
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def _bring_up(engine: Engine, place: str) -> None:
    with reading(engine) as connection:
        revision = _revision(connection, place)
    if revision == HEAD:
        return
    if revision and revision > HEAD:
        raise JournalError(
            f"{place} was made by a newer kubexm (its schema is {revision}, this one knows {HEAD})",
            "use that version, or another journal",
        )
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        # Somebody else may have done it meanwhile.
        if _revision(connection, place) != HEAD:
            _migrate(connection)


def _revision(connection: Connection, place: str) -> str:
    """The revision of the schema, empty if there is none yet; refuses a database that is not ours."""
    from sqlalchemy import inspect

    if connection.dialect.name == "sqlite":
        ours = int(connection.exec_driver_sql("PRAGMA application_id").scalar_one())
        used = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()
        if ours != MAGIC and used:
            raise JournalError(f"{place} is the database of another program", "choose another file")
        if not used:
            return ""
        return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() or "")
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return ""
    if not {"alembic_version", "runs", "entries"} <= tables:
        raise JournalError(f"{place} is the database of another program", "make an empty one for kubexm")
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() or "")


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {MAGIC}")
