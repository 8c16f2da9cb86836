"""The database of the journal: a SQLite file in the user's state folder, or a server by URL; brings its schema up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from kubexm_exec.engine.ports import JournalError

HEAD: Final = "0003"
"""The newest revision of the schema that this version knows."""


class Door(Protocol):
    """A connection, which is asked by the names of statements."""

    @property
    def prompt(self) -> bool:
        """Whether it does at once what it can do at all; only for a door that is one's own."""

    def do(self, name: str, /, **values: Any) -> int:
        """Change something; gives the number of rows that it met."""

    def rows(self, name: str, /, **values: Any) -> list[Any]:
        """What is there."""

    @property
    def one_kernel(self) -> bool:
        """Whether all who use the database run on one machine: who began before it was started anew is gone."""

    def now(self) -> float:
        """The time for leases, by one clock that all who use the database share: theirs differ."""

    def lock_leases(self) -> None:
        """Let nobody else change leases until the transaction ends."""

    def lock_run(self, run: str) -> None:
        """Let nobody else ask anything of a run until the transaction ends: requests are seen in their order."""

    def tidy(self) -> None:
        """Put what was written in order, for a moment in which nobody waits; only for a door that is one's own."""

    def close(self) -> None:
        """Let go of it; only for a door that is one's own."""


class Database(Protocol):
    """Where a journal lies; may be used by several threads."""

    def writing(self) -> AbstractContextManager[Door]:
        """A transaction."""

    def looking(self) -> AbstractContextManager[Door]:
        """For questions alone: it never waits for a writer, and no writer waits for it."""

    def connect(self) -> Door:
        """A door of one's own, on which every statement is a transaction."""

    def give_back(self) -> None:
        """Give the space of what was forgotten back to the file system."""

    def check(self) -> None:
        """Raise GoneError if what is written is not where others look for it any more."""

    def close(self) -> None:
        """Let go of it."""


_SHOWN: Final = frozenset({"application_name", "connect_timeout", "host", "hostaddr", "port", "sslmode", "sslrootcert"})
"""Options of an address that hold no secret."""


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where runs leave what they need later: ``$KUBEXM_STATE``, or ``kubexm`` in the user's state folder."""
    env = os.environ if environ is None else environ
    if env.get("KUBEXM_STATE"):
        return Path(env["KUBEXM_STATE"]).absolute()
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".local" / "state")
    return Path(base) / "kubexm"


def shown(url: str) -> str:
    """The place of a journal for messages, without a password, also of one among its options."""
    if "://" not in url:
        return f"journal {url}"
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number, which may be a piece of a password
        return "journal"
    query = {key: value if key in _SHOWN else "***" for key, value in parsed.query.items()}
    return f"journal {parsed.set(query=query).render_as_string(hide_password=True).replace('%2A', '*')}"


def is_current(revision: str, place: str) -> bool:
    """Whether a schema is the newest one; raises JournalError if it is newer still."""
    if revision > HEAD:
        raise JournalError(
            f"{place} was made by a newer kubexm (its schema is {revision}, this one knows {HEAD})",
            "use that version, or another journal",
        )
    return revision == HEAD


def migrate(connection: Any) -> None:
    """Bring the schema up in a transaction of SQLAlchemy's."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
