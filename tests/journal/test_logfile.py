"""The whole output of a run in a file: read while it grows, and after a session that broke off."""

from __future__ import annotations

from pathlib import Path

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.session import NAME, OutputLog, read_log
from kubexm_exec.model.events import ACTION_OUTPUT, Event


def write(folder: Path, *texts: str) -> None:
    lost: list[JournalError] = []
    log = OutputLog(folder, lost.append)
    for text in texts:
        log(Event(ACTION_OUTPUT, "run", 1.0, "m/t/s", "h", {"stream": "stdout", "text": text}))
    log.close()
    assert not lost


def test_pieces_are_read_from_where_the_last_look_ended(tmp_path: Path) -> None:
    write(tmp_path, "one\n")
    ((offset, piece),) = read_log(tmp_path)
    assert (piece["text"], piece["node"], piece["host"]) == ("one\n", "m/t/s", "h")
    write(tmp_path, "two\n")
    assert [piece["text"] for _, piece in read_log(tmp_path, offset)] == ["two\n"]


def test_half_a_line_at_the_end_is_left_for_later(tmp_path: Path) -> None:
    write(tmp_path, "one\n")
    with (tmp_path / NAME).open("a") as file:
        file.write('{"time":2.0,"node":"m')
    assert [piece["text"] for _, piece in read_log(tmp_path)] == ["one\n"]


def test_half_a_line_of_a_session_that_broke_off_costs_nothing_of_the_next(tmp_path: Path) -> None:
    write(tmp_path, "one\n")
    with (tmp_path / NAME).open("a") as file:
        file.write('{"time":2.0,"node":"m')
    write(tmp_path, 'says {"time": and "quotes"\n', "three\n")
    assert [piece["text"] for _, piece in read_log(tmp_path)] == ["one\n", 'says {"time": and "quotes"\n', "three\n"]


def test_bytes_that_are_no_text_are_read_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, "\udcff\n")
    assert [piece["text"] for _, piece in read_log(tmp_path)] == ["\udcff\n"]


def test_there_is_no_log_of_a_run_that_printed_nothing(tmp_path: Path) -> None:
    assert list(read_log(tmp_path)) == []
