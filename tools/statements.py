"""Writes the statements of the journal down as SQLite takes them; `make docs` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from kubexm_exec.journal.statements import STATEMENTS

PREPARED = Path(__file__).resolve().parents[1] / "kubexm_exec" / "journal" / "prepared.py"

_HEAD = '''\
"""The statements of the journal as SQLite takes them. Made from ``statements`` by tools/statements.py: `make docs`."""
# ruff: noqa: E501

from __future__ import annotations

from typing import Final

SQLITE: Final = {
'''


def prepared() -> str:
    """The whole module."""
    dialect = SQLiteDialect_pysqlite(paramstyle="named")
    lines = []
    for name, statement in STATEMENTS.items():
        text = " ".join(str(statement.compile(dialect=dialect)).split())  # type: ignore[attr-defined]
        lines.append(f'    "{name}": {text!r},\n' if '"' in text else f'    "{name}": "{text}",\n')
    return _HEAD + "".join(lines) + "}\n"


if __name__ == "__main__":
    PREPARED.write_text(prepared())
    sys.stdout.write(f"wrote {PREPARED.name}\n")
