"""A new journal in SQLite is made without SQLAlchemy, and is the one that the migrations make."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

from kubexm_exec.journal.sqlitefile import MAGIC
from kubexm_exec.journal.store import Store


def test_a_run_loads_no_sqlalchemy_not_even_the_first_one(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from kubexm_exec.journal import leases
from kubexm_exec.journal.session import Session, Start
from kubexm_exec.journal.store import Store
store = Store(sys.argv[1])
start = Start(run="R" * 26, name="n", target="t", spec="s", executor="concurrent", made_from={})
session = Session.begin(store, Path(sys.argv[1]).parent, start, wait=None)
session.recorder.write({"kind": "a"})
session.recorder.keep("t", b"content")
session.close(None, {})
print("sqlalchemy" in sys.modules)
"""
    place = str(tmp_path / "journal.db")
    assert subprocess.check_output([sys.executable, "-c", code, place]) == b"False\n"
    assert subprocess.check_output([sys.executable, "-c", code.replace('"R"', '"S"'), place]) == b"False\n"


def test_an_older_schema_is_brought_up_by_the_migrations(tmp_path: Path) -> None:
    def schema(path: Path) -> set[str]:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return {" ".join(sql.replace("(", " ( ").replace(")", " ) ").split()) for (sql,) in rows}

    version = "CREATE TABLE alembic_version ( version_num VARCHAR ( 32 ) NOT NULL )"
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.execute(version)
        connection.execute(f"PRAGMA application_id = {MAGIC}")
    Store(str(old)).close()
    Store(str(new)).close()
    assert schema(old) - {version} == {sql for sql in schema(new) if "alembic_version" not in sql}
    Store(str(old)).close()
