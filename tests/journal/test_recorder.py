"""The pen of a run: what it writes in which order, here or in its own thread, and whom it waits for."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.owner import Owner
from kubexm_exec.journal.session import Recorder
from kubexm_exec.journal.store import Store
from kubexm_exec.model.ids import new_run_id

LATE = 60.0


@pytest.fixture
def recorder(store: Store) -> Iterator[Recorder]:
    run = new_run_id()
    epoch = store.begin(run, name="n", target="t", spec="s", executor="concurrent", holder=Owner.me(), made_from={})
    made = Recorder(store, run, epoch)
    made.write("first")
    yield made
    made.close()


def written(recorder: Recorder) -> list[str]:
    return [entry for _, _, entries in recorder.store.entries(recorder.run) for entry in entries]


def nothing() -> None:
    """Nothing to be done."""


def test_what_is_written_here_comes_between_what_the_thread_writes(recorder: Recorder) -> None:
    answers: SimpleQueue[JournalError | None] = SimpleQueue()
    for number in range(100):
        recorder.submit_here([f"here {number}"], answers.put, nothing)
        assert answers.get(timeout=LATE) is None
        # Whoever was answered can rely on it at once.
        assert written(recorder)[-1] == f"here {number}"
        recorder.write(f"there {number}")
    assert written(recorder) == ["first", *(f"{where} {n}" for n in range(100) for where in ("here", "there"))]


def test_what_is_to_be_done_aside_is_done_once(recorder: Recorder) -> None:
    done: list[int] = []
    for number in range(200):
        recorder.submit_here([str(number)], lambda error: None, partial(done.append, number))
    recorder.write("last")
    assert done == list(range(200))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_is_written_here_is_answered_when_what_is_done_aside_is_over(recorder: Recorder) -> None:
    order: list[str] = []
    for number in range(100):
        recorder.submit_here(
            [str(number)], lambda error: order.append("answer"), lambda: order.append(threading.current_thread().name)
        )
    assert order[1::2] == ["answer"] * 100
    assert "answer" not in order[::2]


def test_what_goes_wrong_aside_is_raised_here_and_the_entries_are_written(recorder: Recorder) -> None:
    def break_it() -> None:
        raise ValueError("broken")

    for number in range(50):
        with pytest.raises(ValueError, match="broken"):
            recorder.submit_here([str(number)], lambda error: None, break_it)
    recorder.write("last")
    assert written(recorder) == ["first", *map(str, range(50)), "last"]


def test_after_an_error_nothing_is_written_here_either(recorder: Recorder) -> None:
    wrong = JournalError("enough")
    recorder.fail(wrong)
    answers: SimpleQueue[JournalError | None] = SimpleQueue()
    recorder.submit_here(["never"], answers.put, nothing)
    assert answers.get(timeout=LATE) is wrong
    assert written(recorder) == ["first"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_nobody_waits_here_for_another_process_that_writes(recorder: Recorder, tmp_path: Path) -> None:
    [path] = tmp_path.rglob("journal.db")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answered = threading.Event()
    aside: list[str] = []
    # The other one holds on for as long as this takes.
    recorder.submit_here(["here"], lambda error: answered.set(), lambda: aside.append("done"))
    assert aside == ["done"]
    assert not answered.is_set()
    assert written(recorder) == ["first"]
    other.execute("COMMIT")
    other.close()
    assert answered.wait(LATE)
    assert (written(recorder), recorder.error) == (["first", "here"], None)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_journal_that_is_never_free_is_an_error(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubexm_exec.journal.session._BUSY", 0.2)
    [path] = tmp_path.rglob("journal.db")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalError, match="another process keeps the journal locked"):
        recorder.write("never")
    other.close()
    with pytest.raises(JournalError, match="keeps the journal locked"):
        recorder.write("neither")
    assert written(recorder) == ["first"]
