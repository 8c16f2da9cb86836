"""A journal that may only be read: what is there is found, whether or not somebody writes to it at the same time."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.sqlitefile import SqliteReading
from kubexm_exec.journal.store import Store, open_database

# Sessions one after another, each of which makes the log, moves it into the file, and removes it.
SESSIONS = """
import sys
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.store import Store
for number in range(60):
    store = Store(sys.argv[1])
    made = [str(each * number) for each in range(20_000)]
    run = f"R{number}"
    store.begin(run, name="n", target=run, spec="s", executor="e", holder=Owner.me(), made_from=made)
    store.end(run, 1, status="Success", message="", counts={})
    store.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "journal.db"
    store = Store(str(path))
    begin(store, "FIRST")
    store.close()
    # It was written long ago, not within the same tick of the file system's clock.
    os.utime(path, (1, 1))
    return path


def begin(store: Store, run: str, made_from: object = None) -> None:
    store.begin(run, name="n", target=run, spec="s", executor="e", holder=Owner.me(), made_from=made_from)


def seen(path: Path) -> list[str]:
    """The runs, by somebody who writes nothing; nothing is left beside the file either."""
    before = sorted(path.parent.iterdir())
    with SqliteReading(path, "journal").looking() as door:
        rows = door.rows("runs.newest", limit=1000, name="", status="", spec="", target="")
    assert sorted(path.parent.iterdir()) == before
    return sorted(row[0] for row in rows)


def test_what_is_in_the_file_is_read_also_by_a_link_and_with_an_odd_name(path: Path, tmp_path: Path) -> None:
    assert [each.name for each in path.parent.iterdir()] == ["journal.db"]
    assert seen(path) == ["FIRST"]
    odd = tmp_path / "100%?#" / "it's.db"
    odd.parent.mkdir()
    shutil.copy(path, odd)
    assert seen(odd) == ["FIRST"]
    (tmp_path / "link").symlink_to(path)
    assert seen(tmp_path / "link") == ["FIRST"]


def test_what_somebody_has_just_written_is_read(path: Path) -> None:
    store = Store(str(path))
    begin(store, "SECOND")
    assert Path(f"{path}-wal").stat().st_size > 0
    assert seen(path) == ["FIRST", "SECOND"]
    begin(store, "THIRD")
    assert seen(path) == ["FIRST", "SECOND", "THIRD"]
    store.close()
    assert seen(path) == ["FIRST", "SECOND", "THIRD"]


def test_what_a_process_left_that_died_is_read(path: Path) -> None:
    code = SESSIONS.replace("store.close()", "import os; os.kill(os.getpid(), 9)")
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert Path(f"{path}-wal").exists()
    assert seen(path) == ["FIRST", "R0"]


def test_every_answer_is_whole_while_sessions_come_and_go(path: Path) -> None:
    door = SqliteReading(path, "journal")
    writer = subprocess.Popen([sys.executable, "-c", SESSIONS, str(path)])
    most = over = 0
    try:
        while not over:
            over = writer.poll() is not None
            rows = door.rows("runs.newest", limit=1000, name="", status="", spec="", target="")
            assert len(rows) >= most
            most = len(rows)
            for row in rows[:3]:
                assert len(door.rows("inputs.newest", run=row[0], limit=5)) == 1, row[0]
    finally:
        writer.kill()
        writer.wait()
    assert most == 61


class Meanwhile:
    """The id of a run for a question; the first time that SQLite takes it for one, somebody writes."""

    def __init__(self, run: str, write: Callable[[], None]) -> None:
        self._run, self._write = run, write
        self.asked = 0

    def __conform__(self, protocol: object) -> str:
        self.asked += 1
        if self.asked == 1:
            self._write()
        return self._run


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("stays", [True, False])
def test_a_question_is_asked_again_if_somebody_wrote_meanwhile(path: Path, size: int, stays: bool) -> None:
    writers: list[Store] = []

    def write() -> None:
        writers.append(Store(str(path)))
        begin(writers[0], "SECOND", [secrets.token_hex() for _ in range(size)])
        if not stays:
            writers[0].close()

    door = SqliteReading(path, "journal")
    wanted = Meanwhile("SECOND", write)
    [[found]] = door.rows("inputs.newest", run=wanted, limit=5)
    assert len(json.loads(zlib.decompress(found))) == size
    assert wanted.asked == 2
    writers[0].close()


def test_nothing_can_be_written_and_that_is_said(path: Path) -> None:
    door = SqliteReading(path, "journal")
    writes: list[Callable[[], object]] = [door.writing, door.connect, door.give_back, lambda: door.do("run.remove")]
    for write in writes:
        with pytest.raises(JournalError, match="cannot be written: it is read-only"):
            write()
    assert seen(path) == ["FIRST"]


def test_journal_of_another_version_or_program_is_not_read(path: Path, tmp_path: Path) -> None:
    with sqlite3.connect(path) as older:
        older.execute("UPDATE alembic_version SET version_num = '0000'")
    older.close()
    with pytest.raises(JournalError, match="made by an older kubexm and cannot be migrated"):
        SqliteReading(path, "journal")
    with sqlite3.connect(tmp_path / "songs.db") as other:
        other.execute("CREATE TABLE songs (name text)")
    other.close()
    with pytest.raises(JournalError, match="is the database of another program"):
        SqliteReading(tmp_path / "songs.db", "journal")


def test_journal_that_can_be_written_or_is_not_there_is_opened_as_always(path: Path, tmp_path: Path) -> None:
    for each in (path, tmp_path / "new" / "journal.db"):
        database = open_database(str(each), reading=True)
        assert not isinstance(database, SqliteReading)
        database.close()
    assert (tmp_path / "new" / "journal.db").exists()
