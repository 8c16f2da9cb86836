"""The statements that SQLite is given are those that every other database is given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kubexm_exec.journal.prepared import SQLITE
from kubexm_exec.journal.statements import STATEMENTS
from tools.statements import PREPARED, prepared


def test_prepared_statements_are_made_from_those_of_the_code() -> None:
    assert PREPARED.read_text() == prepared(), "run make docs"
    assert list(SQLITE) == list(STATEMENTS)


def test_a_run_loads_no_sqlalchemy_once_its_journal_is_there(tmp_path: Path) -> None:
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
    assert subprocess.check_output([sys.executable, "-c", code, place]) == b"True\n"
    assert subprocess.check_output([sys.executable, "-c", code.replace('"R"', '"S"'), place]) == b"False\n"
