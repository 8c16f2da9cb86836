"""The database of the journal: its interface, its place, and the revision of its schema."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from kubexm_exec.engine.ports import JournalError

HEAD: Final = "0004"
"""The newest revision of the schema that this version knows."""


class Door(Protocol):
    """A connection, which runs statements by their names (see ``statements``)."""

    prompt: ClassVar[bool] = True
    """Whether a statement never takes long: it is done after a sync of the disk, or fails because of a lock."""
    one_kernel: ClassVar[bool] = True
    """Whether all users of the database run on one machine: processes from before its last boot are gone."""

    def do(self, name: str, /, **values: Any) -> int:
        """Change something; returns the number of affected rows."""

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """The result of a query."""

    def now(self) -> float:
        """The time for leases, by one clock that all users of the database share."""

    def together(self) -> AbstractContextManager[None]:
        """What is done in it is durable all together, or not at all; only for a door of one's own."""

    def lock_leases(self) -> None:
        """Let nobody else change leases until the transaction ends; SQLite has only one writer anyway."""
        return

    def lock_run(self, run: str) -> None:
        """Let nobody else send requests to a run until the transaction ends, so that they are read in their order."""
        return

    def tidy(self) -> None:
        """Do maintenance at a moment when nobody waits; only for a door of one's own."""
        return

    def close(self) -> None:
        """Close it; only for a door of one's own."""


class Database(Protocol):
    """The database of a journal; may be used by several threads."""

    def writing(self) -> AbstractContextManager[Door]:
        """A transaction."""

    def looking(self) -> AbstractContextManager[Door]:
        """For queries only: neither waits for a writer nor makes one wait."""

    def connect(self) -> Door:
        """A door of one's own, in autocommit mode."""

    def give_back(self) -> None:
        """Return the space of removed runs to the file system; a server does that by itself."""
        return

    def check(self) -> None:
        """Raise GoneError if the file was removed or replaced."""
        return

    def close(self) -> None:
        """Close all connections."""


_SHOWN: Final = frozenset({"application_name", "connect_timeout", "host", "hostaddr", "port", "sslmode", "sslrootcert"})
"""Options of a URL that hold no secret."""


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of the journal: ``$KUBEXM_STATE``, or ``kubexm`` in the user's state folder."""
    env = os.environ if environ is None else environ
    if env.get("KUBEXM_STATE"):
        return Path(env["KUBEXM_STATE"]).absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "kubexm"


def shown(url: str) -> str:
    """A journal's place for messages, without passwords, also those among its options."""
    if "://" not in url:
        return f"journal {url}"
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # such as a port that is not a number: it may be part of a password
        return "journal"
    query = {key: value if key in _SHOWN else "***" for key, value in parsed.query.items()}
    return f"journal {parsed.set(query=query).render_as_string(hide_password=True).replace('%2A', '*')}"


def is_current(revision: str, place: str) -> bool:
    """Whether a schema is the one of this version; raises JournalError if it is newer."""
    if revision > HEAD:
        raise JournalError(
            f"{place} was made by a newer kubexm (its schema is {revision}, this version knows {HEAD})",
            "use that version, or another journal",
        )
    return revision == HEAD


def migrate(connection: Any) -> None:
    """Migrate the schema within a transaction of SQLAlchemy."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
