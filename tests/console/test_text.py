from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kubexm_exec.console.text import columns, fit, format_progress, format_size, names, one_line, pad, text_lines
from kubexm_exec.console.writer import LineWriter
from kubexm_exec.model.harmless import clean
from kubexm_spec.diagnostics import plural

ROOT = Path(__file__).resolve().parents[2]


@given(st.text(st.characters() | st.sampled_from("\x1b[]\x07\x9b;m0\r\n\t\u202e\u2028")))
def test_clean_text_has_nothing_that_steers_a_terminal(text: str) -> None:
    found = clean(text)
    assert not {char for char in found if ord(char) < 32} - {"\n", "\t"}
    assert not set(found) & set("\x7f\x9b\u202e\u2028\u2029\u2066")
    assert clean(found) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\after", "after"),
        ("10%\r55%\r100%\n", "100%\n"),
        ("windows\r\nends\r\n", "windows\nends\n"),
        ("half\r", "half"),
        ("\x9b31mred", "red"),
        ("bell\x07 null\x00", "bell null"),
    ],
)
def test_clean_keeps_what_a_person_would_have_seen(text: str, found: str) -> None:
    assert clean(text) == found


@given(st.text(), st.integers(0, 40))
def test_fit_text_is_never_wider_than_it_may(text: str, width: int) -> None:
    text = one_line(text)
    found = fit(text, width)
    assert cell_len(found) <= max(width, 0)
    assert found == text or found.endswith("…") or width == 0


def test_wide_characters_count_as_two_cells() -> None:
    assert fit("節點節點", 5) == "節點…"
    assert pad("節點", 6) == "節點  "
    assert columns([["節點", "1"], ["a", "20"]]) == ["節點   1", "a     20"]


def test_one_line_says_that_there_is_more() -> None:
    assert one_line("\n first \n second") == "first …"
    assert one_line("only\n\n") == "only"
    assert one_line(" \n") == ""


def test_lines_lose_empty_ends_and_keep_inner_space() -> None:
    assert text_lines("\n\n a\n\n\tb \n\n") == [" a", "", "    b"]


def test_names_are_folded_only_if_it_saves_something() -> None:
    assert names("abcdef") == "a, b, c, d, e, f"
    assert names("abcdefg") == "a, b, c, d, e, + 2 more"
    assert plural(1, "host") == "1 host"
    assert plural(0, "host") == "0 hosts"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (18_400_000, "18.4 MB"),
        (1.5e12, "1.5 TB"),
        (5e21, "5000.0 EB"),
    ],
)
def test_sizes_are_in_human_units(size: float, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (12_100_000, 18_400_000, "12.1/18.4 MB"),
        (500, 18_400_000, "0.0/18.4 MB"),
        (3, 12, "3/12"),
        (None, 12, "0/12"),
        (20, 12, "12/12"),
        (5_000_000, None, "5.0 MB"),
        (7, None, "7"),
        (None, None, ""),
        (0, 0, ""),
    ],
)
def test_progress_is_in_the_unit_of_the_whole(done: float | None, total: float | None, text: str) -> None:
    assert format_progress(done, total) == text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_a_stream_does_not_have_are_escaped(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    LineWriter(stream).write("✔ \udcff節\n")
    assert raw.getvalue().decode(encoding).endswith("\n")
    assert b"\\udcff" in raw.getvalue()


def test_reader_that_has_gone_ends_the_writing_and_nothing_else() -> None:
    reader, end = os.pipe()
    with open(end, "w") as stream:  # noqa: PTH123 - a descriptor
        writer = LineWriter(stream)
        writer.write("seen\n")
        os.close(reader)
        writer.write("unseen\n")
        assert writer.gone
        writer.write("unseen\n")


def test_closed_stream_ends_the_writing_and_nothing_else() -> None:
    stream = io.StringIO()
    stream.close()
    writer = LineWriter(stream)
    writer.write("unseen\n")
    assert writer.gone


def test_program_whose_output_nobody_reads_ends_without_a_word() -> None:
    code = (
        "import sys; from kubexm_exec.console.writer import LineWriter; writer = LineWriter(sys.stdout)\n"
        "while not writer.gone: writer.write('line\\n')"
    )
    command = f'"{sys.executable}" -c "$CODE" | head -1; exit "${{PIPESTATUS[0]}}"'
    env = {**os.environ, "CODE": code, "PYTHONPATH": str(ROOT)}
    done = run(["bash", "-c", command], env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"line\n", b"")
