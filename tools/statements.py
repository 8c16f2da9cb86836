"""Writes the statements and the schema of the journal down as SQLite takes them; `make docs` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from kubexm_exec.journal.database import HEAD, migrate
from kubexm_exec.journal.statements import STATEMENTS

PREPARED = Path(__file__).resolve().parents[1] / "kubexm_exec" / "journal" / "prepared.py"

_HEAD = '''\
"""Statements and schema of the journal as SQLite takes them. Made by tools/statements.py: `make docs`."""
# ruff: noqa: E501

from __future__ import annotations

from typing import Final

SQLITE: Final = {
'''
_MIDDLE = """\
}

SCHEMA: Final = (
"""


def prepared() -> str:
    """The whole module."""
    dialect = SQLiteDialect_pysqlite(paramstyle="named")
    lines = []
    for name, statement in STATEMENTS.items():
        said = " ".join(str(statement.compile(dialect=dialect)).split())  # type: ignore[attr-defined]
        lines.append(f'    "{name}": {_quoted(said)},\n')
    return _HEAD + "".join(lines) + _MIDDLE + "".join(f"    {_quoted(each)},\n" for each in schema()) + ")\n"


def schema() -> list[str]:
    """What the migrations come to in an empty database."""
    with create_engine("sqlite://").begin() as connection:
        migrate(connection)
        found = connection.execute(text("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"))
        made = [" ".join(str(each).split()) for each in found.scalars()]
    return [*made, f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')"]


def _quoted(text: str) -> str:
    return repr(text) if '"' in text else f'"{text}"'


if __name__ == "__main__":
    PREPARED.write_text(prepared())
    sys.stdout.write(f"wrote {PREPARED.name}\n")
