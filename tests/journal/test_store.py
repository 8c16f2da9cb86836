"""The journal keeps what it was told, refuses whom it must, and says what is wrong with a database."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, create_engine, text

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal import database, leases
from kubexm_exec.journal.database import HEAD
from kubexm_exec.journal.errors import FencedError, UnknownRunError
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.results import is_alive
from kubexm_exec.journal.session import Session
from kubexm_exec.journal.store import Store
from kubexm_exec.model.ids import new_run_id
from tests.lab.postgres import Postgres

ME = Owner.me()


@contextlib.contextmanager
def raw(url: str) -> Iterator[Connection]:
    """The database as anybody sees it."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:") if "://" in url else f"sqlite:///{url}")
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def begin(store: Store, run: str = "", *, target: str = "t", made_from: object = None) -> tuple[str, int]:
    run = run or new_run_id()
    epoch = store.begin(
        run, name="demo", target=target, spec="demo.yaml", executor="concurrent", holder=ME, made_from=made_from or {}
    )
    return run, epoch


def dead_holder() -> Owner:
    """A process that was, on this machine."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return replace(ME, pid=process.pid, started="1")


UNSEEN = replace(ME, space="pid:[1]")
"""A process in a namespace that cannot be looked into, such as another container on this machine."""


def test_entries_come_back_in_order_with_what_the_run_was_made_from(store: Store) -> None:
    run, epoch = begin(store, made_from={"graph": {"name": "ü"}, "odd": "\udcff"})
    store.append(run, epoch, 1, [{"kind": "a"}, {"kind": "b", "text": "é\n\"'"}])
    store.append(run, epoch, 2, [{"kind": "c"}])
    assert [(seq, [entry["kind"] for entry in entries]) for seq, _, entries in store.entries(run)] == [
        (1, ["a", "b"]),
        (2, ["c"]),
    ]
    assert [seq for seq, _, _ in store.entries(run, after=1)] == [2]
    assert store.made_from(run) == {"graph": {"name": "ü"}, "odd": "\udcff"}


def test_more_entries_than_a_page_come_back_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubexm_exec.journal.store._PAGE", 3)
    run, epoch = begin(store)
    for seq in range(1, 8):
        store.append(run, epoch, seq, [{"kind": str(seq)}])
    assert [seq for seq, _, _ in store.entries(run)] == list(range(1, 8))


def test_another_process_sees_what_was_acknowledged(store: Store, url: str) -> None:
    run, epoch = begin(store)
    store.append(run, epoch, 1, [{"kind": "a"}])
    other = Store(url)
    assert [entries for _, _, entries in other.entries(run)] == [[{"kind": "a"}]]
    other.close()


def test_writer_of_an_older_epoch_is_refused_and_leaves_nothing(store: Store) -> None:
    run, epoch = begin(store)
    assert store.take_on(run, epoch, ME) == 2
    with pytest.raises(FencedError, match="taken over by another process"):
        store.append(run, epoch, 1, [{"kind": "late"}])
    with pytest.raises(FencedError):
        store.end(run, epoch, status="Success", message="", counts={})
    assert list(store.entries(run)) == []
    store.append(run, 2, 1, [{"kind": "new"}])
    assert store.run(run).status == "Running"


def test_of_several_who_take_a_run_on_one_wins(store: Store) -> None:
    run, epoch = begin(store)

    def take(_: int) -> int:
        try:
            return store.take_on(run, epoch, ME)
        except FencedError:
            return 0

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(take, range(4))) == [0, 0, 0, 2]


def test_accepted_changes_are_what_the_run_is_made_from(store: Store) -> None:
    run, epoch = begin(store, made_from={"graph": 1})
    store.take_on(run, epoch, ME, {"graph": 2})
    assert store.made_from(run) == {"graph": 2}
    store.take_on(run, 2, ME)
    assert store.made_from(run) == {"graph": 2}


def test_run_is_found_by_its_id_by_a_part_of_it_and_as_the_last(store: Store) -> None:
    with pytest.raises(UnknownRunError, match="there is no run yet"):
        store.run("last")
    for run in ("01AAAAAAAAAAAAAAAAAAAAAAA1", "01AAAAAAAAAAAAAAAAAAAAAAB2", "01BBBBBBBBBBBBBBBBBBBBBBB2"):
        begin(store, run)
    assert store.run("01aaaaaaaaaaaaaaaaaaaaaaa1").id == "01AAAAAAAAAAAAAAAAAAAAAAA1"
    assert store.run("01b").id == "01BBBBBBBBBBBBBBBBBBBBBBB2"
    assert store.run("a1").id == "01AAAAAAAAAAAAAAAAAAAAAAA1"
    assert store.run("last").id == "01BBBBBBBBBBBBBBBBBBBBBBB2"
    with pytest.raises(UnknownRunError, match='"01A" is ambiguous'):
        store.run("01A")
    with pytest.raises(UnknownRunError, match='there is no run "%"'):
        store.run("%")
    with pytest.raises(UnknownRunError):
        store.run("")


def test_runs_are_listed_newest_first_with_how_they_ended(store: Store) -> None:
    first, epoch = begin(store)
    time.sleep(0.002)  # ids of the same millisecond have no order
    second, _ = begin(store)
    store.end(first, epoch, status="Failed", message="1 failed", counts={"failed": 1})
    assert [(row.id, row.status, row.over) for row in store.runs()] == [
        (second, "Running", False),
        (first, "Failed", True),
    ]
    assert [row.id for row in store.runs(status="Failed")] == [first]
    assert store.run(first).counts == {"failed": 1}
    assert is_alive(store, store.run(second))


def test_run_whose_process_is_gone_is_not_alive(store: Store) -> None:
    run, epoch = begin(store)
    store.take_on(run, epoch, dead_holder())
    row = store.run(run)
    assert (row.over, is_alive(store, row)) == (False, False)


def test_forgotten_run_leaves_nothing(store: Store, url: str) -> None:
    run, epoch = begin(store)
    other, _ = begin(store)
    store.append(run, epoch, 1, [{"kind": "a"}])
    store.keep(run, "t" * 64, b"content")
    store.ask(run, "cancel", "me")
    leases.remove(store, store.run(run))
    assert [row.id for row in store.runs()] == [other]
    with raw(url) as connection:
        for table in ("inputs", "entries", "blobs", "requests"):
            left = connection.execute(text(f"SELECT count(*) FROM {table} WHERE run = '{run}'")).scalar()
            assert left == 0, table


def test_content_is_kept_once_and_comes_back(store: Store) -> None:
    run, _ = begin(store)
    data = bytes(range(256)) * 1000
    token = hashlib.sha256(data).hexdigest()
    for _ in range(2):
        store.keep(run, token, data)
    assert store.kept(run, token) == data
    with pytest.raises(KeyError):
        store.kept(run, "b" * 64)


def test_content_that_was_changed_in_the_journal_is_not_given_out(store: Store) -> None:
    run, _ = begin(store)
    store.keep(run, hashlib.sha256(b"before").hexdigest(), b"something else")
    with pytest.raises(JournalError, match="was changed"):
        store.kept(run, hashlib.sha256(b"before").hexdigest())


def test_requests_are_heard_once_whatever_the_clocks_say(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = begin(store)
    store.ask(run, "cancel", "somebody")
    ((number, kind, by, _),) = store.asked(run)
    assert (kind, by) == ("cancel", "somebody")
    assert store.asked(run, number) == []
    monkeypatch.setattr(time, "time", lambda: 0.0)
    store.ask(run, "cancel", "whose clock is late")
    assert [by for _, _, by, _ in store.asked(run, number)] == ["whose clock is late"]


def test_of_two_who_go_on_with_a_run_the_second_is_refused_and_the_first_keeps_its_lease(
    store: Store, tmp_path: Path
) -> None:
    run, epoch = begin(store)
    store.end(run, epoch, status="Failed", message="", counts={})
    session = Session.go_on(store, tmp_path, run, "resume")
    with pytest.raises(leases.HeldError, match=run):
        Session.go_on(store, tmp_path, run, "resume")
    leases.renew(store, "t", run, session.epoch)
    assert session.close(None, {}) is None


def test_run_whose_lease_was_taken_before_it_was_written_down_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = begin(store)
    taken_on = store.take_on
    monkeypatch.setattr(Owner, "me", lambda: UNSEEN)

    def sleepy(*args: object) -> int:
        # As a process that was stopped here and woke up after its lease had run out.
        leases.renew(store, "t", run, 2, term=-1.0)
        leases.acquire(store, "t", begin(store)[0], 1, ME)
        return taken_on(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "take_on", sleepy)
    with pytest.raises(FencedError, match="was lost"):
        Session.go_on(store, tmp_path, run, "resume")


def test_whoever_takes_a_run_over_waits_for_what_is_being_written(server: Postgres) -> None:
    url = server.new_database()
    writer, other = Store(url), Store(url + "&options=-c%20lock_timeout%3D100ms")
    run, epoch = begin(writer)
    with writer.writing() as door:
        writer.append_by(door, run, epoch, 1, [{"kind": "a"}])
        with pytest.raises(JournalError, match="lock timeout"):
            other.take_on(run, epoch, ME)
    other.take_on(run, epoch, ME)
    assert [seq for seq, _, _ in other.entries(run)] == [1]
    for store in (writer, other):
        store.close()


def test_newest_migration_is_the_one_that_the_code_knows() -> None:
    from alembic.script import ScriptDirectory

    folder = Path(database.__file__).parent / "migrations"
    assert ScriptDirectory(str(folder)).get_heads() == [HEAD]


def test_several_processes_that_open_a_new_journal_at_once_all_get_it(url: str) -> None:
    code = "import sys; from kubexm_exec.journal.store import Store; print(len(Store(sys.argv[1]).runs()))"
    several = [subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[0].strip() for process in several] == [b"0"] * 4


def test_journal_of_a_newer_version_is_refused(store: Store, url: str) -> None:
    with raw(url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(JournalError, match="was made by a newer kubexm"):
        Store(url)


def test_database_of_another_program_is_not_touched(url: str) -> None:
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url) as other:
            other.execute("CREATE TABLE songs (name text)")
    else:
        Path(url).parent.mkdir()
        with sqlite3.connect(url) as lite:
            lite.execute("CREATE TABLE songs (name text)")
        lite.close()
    with pytest.raises(JournalError, match="is the database of another program"):
        Store(url)


# What only SQLite has


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


def test_files_of_the_journal_are_for_their_owner_alone(path: Path) -> None:
    store = Store(str(path))
    begin(store)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    store.close()


@pytest.mark.parametrize("content", [b"this is no database, but a text that is long enough", b"\0" * 5000])
def test_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"not a journal|damaged"):
        Store(str(path))
    assert path.read_bytes() == content


def test_damaged_journal_says_so(path: Path) -> None:
    store = Store(str(path))
    run, epoch = begin(store)
    for seq in range(1, 200):
        store.append(run, epoch, seq, [{"kind": "x" * 500}])
    store.close()
    data = bytearray(path.read_bytes())
    data[4096 : len(data) - 4096] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(JournalError, match="damaged"):
        list(Store(str(path)).entries(run))


def test_place_that_is_no_place_says_what_to_give() -> None:
    with pytest.raises(JournalError, match="give the path of a file, or postgresql://"):
        Store("gopher://x")
    with pytest.raises(JournalError, match=r"does not answer") as caught:
        Store("postgresql://me:hunter22@127.0.0.1:9/x")
    assert "hunter22" not in str(caught.value)


# Leases


@pytest.fixture
def two(store: Store) -> tuple[str, str]:
    return begin(store)[0], begin(store)[0]


def test_target_of_a_living_run_is_refused_with_who_and_since_when(store: Store, two: tuple[str, str]) -> None:
    assert leases.acquire(store, "t", two[0], 1, ME) is None
    with pytest.raises(leases.HeldError) as caught:
        leases.acquire(store, "t", two[1], 1, ME)
    assert f"run {two[0]} of {ME.user}@{ME.host} (process {ME.pid}) since" in caught.value.what
    leases.release(store, "t", two[0], 1)
    assert leases.acquire(store, "t", two[1], 1, ME) is None


def test_other_target_is_free(store: Store, two: tuple[str, str]) -> None:
    leases.acquire(store, "t", two[0], 1, ME)
    assert leases.acquire(store, "u", two[1], 1, ME) is None


def test_lease_of_a_dead_process_is_taken_over_and_its_run_fenced(store: Store, two: tuple[str, str]) -> None:
    leases.acquire(store, "t", two[0], 1, dead_holder())
    old = leases.acquire(store, "t", two[1], 1, ME)
    assert old is not None
    assert old.run == two[0]
    with pytest.raises(FencedError):
        store.append(two[0], 1, 1, [{"kind": "late"}])
    with pytest.raises(FencedError, match="was lost"):
        leases.renew(store, "t", two[0], 1)
    assert store.run(two[0]).status == "Interrupted"


def test_lease_that_has_run_out_is_taken_over_and_one_that_is_renewed_is_not(
    store: Store, two: tuple[str, str]
) -> None:
    leases.acquire(store, "t", two[0], 1, UNSEEN, term=-1.0)
    leases.renew(store, "t", two[0], 1, term=60.0)
    with pytest.raises(leases.HeldError):
        leases.acquire(store, "t", two[1], 1, ME)
    leases.renew(store, "t", two[0], 1, term=-1.0)
    assert leases.acquire(store, "t", two[1], 1, ME) is not None


def test_process_that_lives_keeps_its_lease_however_late_it_renews_it(store: Store, two: tuple[str, str]) -> None:
    leases.acquire(store, "t", two[0], 1, ME, term=-3600.0)
    with pytest.raises(leases.HeldError):
        leases.acquire(store, "t", two[1], 1, ME)
    assert is_alive(store, store.run(two[0]))


def test_stopped_process_loses_its_lease_when_that_has_run_out(store: Store, two: tuple[str, str]) -> None:
    with subprocess.Popen(["sleep", "300"]) as sleeper:
        stat = Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()
        os.kill(sleeper.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        holder = replace(ME, pid=sleeper.pid, started=stat[19])
        leases.acquire(store, "t", two[0], 1, holder, term=60.0)
        with pytest.raises(leases.HeldError):
            leases.acquire(store, "t", two[1], 1, ME)
        leases.renew(store, "t", two[0], 1, term=-1.0)
        assert leases.acquire(store, "t", two[1], 1, ME) is not None
        sleeper.kill()


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_clock_of_a_process_does_not_decide_about_leases(
    store: Store, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    leases.acquire(store, "t", two[0], 1, UNSEEN)
    with store.writing() as door:
        door.do("run.take", run=two[0], old=1, epoch=1, holder=UNSEEN.to_json(), status="Running")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    assert is_alive(store, store.run(two[0]))
    with pytest.raises(leases.HeldError):
        leases.acquire(store, "t", two[1], 1, ME)
    leases.renew(store, "t", two[0], 1, term=-1.0)
    assert not is_alive(store, store.run(two[0]))
    assert leases.acquire(store, "t", two[1], 1, ME) is not None


def test_same_host_name_does_not_make_another_machine_this_one_before_its_restart(
    server: Postgres, tmp_path: Path
) -> None:
    elsewhere = replace(ME, boot="00000000-0000-0000-0000-000000000000")
    shared, file = Store(server.new_database()), Store(str(tmp_path / "journal.db"))
    for store in (shared, file):
        leases.acquire(store, "t", begin(store)[0], 1, elsewhere)
    with pytest.raises(leases.HeldError):
        leases.acquire(shared, "t", begin(shared)[0], 1, ME)
    # A file is never used by two machines at once.
    assert leases.acquire(file, "t", begin(file)[0], 1, ME) is not None
    shared.close()
    file.close()


def test_holder_that_an_older_version_wrote_down_is_looked_for_by_its_number() -> None:
    assert replace(ME, space="").alive() is True
    assert replace(dead_holder(), space="").alive() is False
    assert Owner.from_json('{"user": "u", "host": "h", "pid": 1}').alive() is None


def test_request_with_a_lower_number_is_not_lost_when_it_becomes_visible_later(server: Postgres) -> None:
    url = server.new_database()
    first, second, listener = Store(url), Store(url), Store(url)
    run, _ = begin(first)
    heard: list[tuple[int, str, str, str]] = []

    def listen() -> None:
        heard.extend(listener.asked(run, heard[-1][0] if heard else 0))

    def waits() -> bool:
        with listener.looking() as door:
            return bool(door._connection.exec_driver_sql("SELECT 1 FROM pg_locks WHERE NOT granted").all())  # type: ignore[attr-defined]

    with ThreadPoolExecutor(1) as pool:
        with first.writing() as door:
            door.lock_run(run)
            door.do("request.new", run=run, kind="cancel", at=0.0, by="first", data="")
            later = pool.submit(second.ask, run, "approve", "second")
            while not later.done() and not waits():
                listen()
        later.result(timeout=60)
    listen()
    assert [by for _, _, by, _ in heard] == ["first", "second"]
    for store in (first, second, listener):
        store.close()


def test_of_many_who_want_a_lease_one_gets_it(store: Store) -> None:
    runs = [begin(store)[0] for _ in range(6)]

    def take(run: str) -> bool:
        try:
            leases.acquire(store, "t", run, 1, ME)
        except leases.HeldError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(take, runs)) == 1


def test_keeper_renews_hears_requests_and_lets_go_at_its_end(store: Store, two: tuple[str, str]) -> None:
    import queue

    heard: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    leases.acquire(store, "t", two[0], 1, ME, term=0.3)
    keeper = leases.Keeper(
        store,
        "t",
        two[0],
        1,
        lost=lambda error: pytest.fail(str(error)),
        asked=lambda kind, by, data: heard.put((kind, by)),
        beat=0.05,
        term=60.0,
    )
    keeper.start()
    store.ask(two[0], "cancel", "me")
    assert heard.get(timeout=20) == ("cancel", "me")
    until = time.monotonic() + 20
    with store.looking() as door:
        soon = door.now() + 30
    while (lease := leases.find(store, "t")) is not None and lease.expires < soon:
        assert time.monotonic() < until
    keeper.close()
    assert leases.find(store, "t") is None
    assert heard.empty()


def test_keeper_tells_when_the_lease_is_lost(store: Store, two: tuple[str, str]) -> None:
    import queue

    told: queue.SimpleQueue[JournalError] = queue.SimpleQueue()
    leases.acquire(store, "t", two[0], 1, dead_holder())
    keeper = leases.Keeper(store, "t", two[0], 1, lost=told.put, asked=lambda kind, by, data: None, beat=0.02)
    leases.acquire(store, "t", two[1], 1, ME)
    keeper.start()
    assert isinstance(told.get(timeout=20), FencedError)
    keeper.close()
    assert leases.find(store, "t") is not None, "the lease of the other one stays"
