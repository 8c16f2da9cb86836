"""What can be wrong with a journal, in words that say what to do."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.ownership import NotOursError


class FencedError(JournalError):
    """Somebody else has taken over: this writer must stop."""


class BusyError(JournalError):
    """Somebody else writes, and did not let go in time."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place}: the journal is in use and does not become free", "see which other kubexm runs")


class GoneError(JournalError):
    """What is written is not where others look for it any more."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} was removed or replaced while it was in use: of this run it says nothing, or not all",
            "run the spec again: what is done already is found to be so",
        )


class UnknownRunError(JournalError):
    """There is no such run."""


_SIGNS: Final = (
    ("disk is full", "there is no space left for the journal", "free some space; the run can be resumed then"),
    ("disk i/o error", "the journal cannot be read or written (I/O error)", "look at the disk; the run can be resumed"),
    ("readonly database", "the journal cannot be written: it is read-only", "check the owner and mode of its folder"),
    ("read-only", "the journal cannot be written: it is read-only", "check where it lies, or choose another place"),
    ("unable to open", "the journal cannot be opened", "check the owner and mode of its folder"),
    ("file is not a database", "it is no journal: something else is in that file", "choose another file"),
    ("malformed", "the journal is damaged", "keep a copy of it, and move it away: kubexm makes a new one"),
    ("no space left", "there is no space left for the journal", "free some space; the run can be resumed then"),
    ("connection refused", "the database of the journal does not answer", "see whether it runs, and its address"),
    ("closed the connection", "the database of the journal has gone away", "see whether it runs"),
    ("terminating connection", "the database of the journal has gone away", "see whether it runs"),
    ("connection is lost", "the database of the journal has gone away", "see whether it runs"),
    ("connection is closed", "the database of the journal has gone away", "see whether it runs"),
    ("connection is bad", "the database of the journal does not answer", "see whether it runs, and its address"),
    ("connection failed", "the database of the journal does not answer", "see whether it runs, and its address"),
    ("permission denied", "the journal cannot be written: you may not", "check the owner and mode of its folder"),
    ("password authentication", "the database of the journal refuses the login", "check user and password"),
)
"""What databases say, what that means, and what to do about it."""


_LOOK: Final = "look at the place of the journal, or choose another one with --journal"


def explain(place: str, error: Exception) -> JournalError:
    """The error of a database in our words."""
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
    """What a database raises inside is a JournalError outside."""
    try:
        yield
    except _wrong() as error:
        raise explain(place, error) from error


def _wrong() -> tuple[type[Exception], ...]:
    # Whoever has not loaded SQLAlchemy cannot have an error of it.
    loaded = sys.modules.get("sqlalchemy.exc")
    return (sqlite3.Error, OSError, *(() if loaded is None else (loaded.SQLAlchemyError,)))
