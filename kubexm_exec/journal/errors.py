"""What can be wrong with a journal, and what to do about it."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.ownership import NotOursError


class FencedError(JournalError):
    """Another process has taken over: this writer must stop."""


class BusyError(JournalError):
    """Another process writes, and did not finish in time."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place}: another process keeps the journal locked", "find out which other kubexm runs")


class GoneError(JournalError):
    """The database was removed or replaced."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} was removed or replaced while it was in use: it does not have all of this run",
            "run the spec again: steps find what is already done",
        )


class UnknownRunError(JournalError):
    """There is no such run."""


_SIGNS: Final = (
    ("disk is full", "there is no space left for the journal", "free some space, then resume the run"),
    ("disk i/o error", "the journal cannot be read or written (I/O error)", "check the disk, then resume the run"),
    ("readonly database", "the journal cannot be written: it is read-only", "check the owner and mode of its folder"),
    ("read-only", "the journal cannot be written: it is read-only", "check its file system, or choose another place"),
    ("unable to open", "the journal cannot be opened", "check the owner and mode of its folder"),
    ("file is not a database", "the file is not a journal", "choose another file"),
    ("malformed", "the journal is damaged", "keep a copy and move it away: kubexm creates a new one"),
    ("no space left", "there is no space left for the journal", "free some space, then resume the run"),
    ("connection refused", "the database of the journal does not answer", "check that it runs, and its address"),
    ("closed the connection", "the database of the journal has gone away", "check that it runs"),
    ("terminating connection", "the database of the journal has gone away", "check that it runs"),
    ("connection is lost", "the database of the journal has gone away", "check that it runs"),
    ("connection is closed", "the database of the journal has gone away", "check that it runs"),
    ("connection is bad", "the database of the journal does not answer", "check that it runs, and its address"),
    ("connection failed", "the database of the journal does not answer", "check that it runs, and its address"),
    ("permission denied", "the journal cannot be written: permission denied", "check the owner and mode of its folder"),
    ("password authentication", "the database of the journal refuses the login", "check user and password"),
)
"""What databases say, what it means, and what to do."""

_LOOK: Final = "check the place of the journal, or choose another one"


def explain(place: str, error: Exception) -> JournalError:
    """The JournalError for an error of a database."""
    if isinstance(error, NotOursError):
        return JournalError(f"{place}: {error.strerror}", error.hint)
    said = str(getattr(error, "orig", None) or error).strip()
    lower = said.lower()
    if "database is locked" in lower:
        return BusyError(place)
    for sign, what, hint in _SIGNS:
        if sign in lower:
            return JournalError(f"{place}: {what}", hint)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return JournalError(f"{place}: {said.splitlines()[0] if said else type(error).__name__}", _LOOK)


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turns what a database raises inside into a JournalError."""
    try:
        yield
    except _wrong() as error:
        raise explain(place, error) from error


def _wrong() -> tuple[type[Exception], ...]:
    # As long as SQLAlchemy is not loaded, nothing can raise its errors.
    loaded = sys.modules.get("sqlalchemy.exc")
    return (sqlite3.Error, OSError, *(() if loaded is None else (loaded.SQLAlchemyError,)))
