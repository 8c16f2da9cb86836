"""Opens the database of a journal: a SQLite file, or a server by its URL."""

from __future__ import annotations

from pathlib import Path

from kubexm_exec.journal.database import Database, shown
from kubexm_exec.journal.errors import explained


def open_database(url: str, *, reading: bool = False) -> Database:
    """A database with the newest schema; raises JournalError.

    ``url`` is a path of a SQLite file, or a URL such as ``postgresql://user@host/name``. ``reading``: it is only asked,
    so that a file which cannot be written will do.
    """
    place = shown(url)
    with explained(place):
        if "://" not in url:
            if reading:
                from kubexm_exec.journal.sqliteread import SqliteReading, may_only_be_read

                if may_only_be_read(Path(url)):
                    return SqliteReading(Path(url), place)
            from kubexm_exec.journal.sqlitefile import SqliteFile

            return SqliteFile(Path(url), place)
        from kubexm_exec.journal.server import Server

        return Server(url, place)
