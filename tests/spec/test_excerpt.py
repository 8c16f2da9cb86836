"""What people see of findings."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_spec.diagnostics import Diagnostics, Note, Span, SpecError
from kubexm_spec.excerpt import render, summary_line
from kubexm_spec.yaml.source import SourceFile

OURS = "---\napiVersion: kubexm.io/v1\n"
"""What makes a text a spec: no other is shown."""


def show(text: str, path: tuple[str | int, ...], *, key: bool = False, width: int = 100, hint: str = "") -> list[str]:
    source = SourceFile.from_text(text + OURS, "f.yaml")
    found = Diagnostics()
    found.error("code", "summary", source.place(0, path, key=key), hint=hint)
    return render(found, width=width, sources={"f.yaml": source}).splitlines()


def cells(text: str) -> int:
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def under_caret(lines: list[str]) -> str:
    """What is shown in the columns over the carets."""
    line, marks = lines[-2], lines[-1]
    first, last = marks.index("^"), marks.rindex("^") + 1
    out, at = "", 0
    for char in line:
        if first <= at < last:
            out += char
        at += cells(char)
    return out


def test_a_finding_looks_as_designed() -> None:
    text = "\n" * 12 + "steps:\n  - with:\n      pth: /etc/motd\n"
    source = SourceFile.from_text(text + OURS, "specs/site.yaml")
    found = Diagnostics()
    found.error(
        "unknown-key",
        'step "write" has no key "pth"; type "file" takes path, content, mode',
        source.place(0, ("steps", 0, "with", "pth"), key=True),
        hint='did you mean "path"?',
        detail="more to say\nin two lines",
        notes=[Note("used by", Span("specs/main.yaml", 8, 5, 8, 6)), Note("a note without a place")],
    )
    assert render(found, sources={source.name: source}) == (
        'error[unknown-key]: step "write" has no key "pth"; type "file" takes path, content, mode\n'
        "  --> specs/site.yaml:15:7\n"
        "   |\n"
        "14 |   - with:\n"
        "15 |       pth: /etc/motd\n"
        '   |       ^^^ did you mean "path"?\n'
        "   = more to say\n"
        "   = in two lines\n"
        "   = used by specs/main.yaml:8:5\n"
        "   = a note without a place\n"
    )


def test_findings_are_sorted_and_apart_by_an_empty_line() -> None:
    found = Diagnostics()
    found.warning("w", "second", Span("gone.yaml", 2, 1, 2, 2))
    found.error("e", "first", Span("gone.yaml", 1, 1, 1, 2))
    assert render(found) == ("error[e]: first\n  --> gone.yaml:1:1\n\nwarning[w]: second\n  --> gone.yaml:2:1\n")
    assert render(Diagnostics()) == ""


def test_a_finding_without_a_place_shows_its_hint_below() -> None:
    found = Diagnostics()
    found.error("file-not-found", "there is no file x", hint="did you mean y?")
    assert render(found) == "error[file-not-found]: there is no file x\n   = hint: did you mean y?\n"


def test_the_text_is_read_from_the_file_when_it_is_not_given(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nbb: \xff\r\napiVersion: kubexm.io/v1\r\n")
    found = Diagnostics()
    found.error("x", "here", Span(str(path), 2, 1, 2, 3))
    assert render(found).splitlines()[-2:] == [" 2 | bb: \N{REPLACEMENT CHARACTER}", "   | ^^"]


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text(OURS)])
def test_a_file_that_is_gone_or_shorter_now_shows_no_excerpt(tmp_path: Path, make: object) -> None:
    path = tmp_path / "f.yaml"
    assert callable(make)
    make(path)
    found = Diagnostics()
    found.error("x", "here", Span(str(path), 5, 1, 5, 3), hint="do this")
    assert render(found).splitlines()[1:] == [f"  --> {path}:5:1", "   = hint: do this"]


@pytest.mark.parametrize(
    "before",
    ["", "abc ", "你好 ", "e\u0301e\u0301 ", "ｆｕｌｌ ", "한국 ", "\N{ZERO WIDTH SPACE}x "],
    ids=["nothing", "latin", "chinese", "combining", "fullwidth", "korean", "invisible"],
)
def test_the_caret_stands_under_its_text_whatever_is_before_it(before: str) -> None:
    assert under_caret(show(f'{{"{before}": 1, key: 你好吗}}\n', ("key",), key=True)) == "key"
    assert under_caret(show(f'{{"{before}": 1, key: 你好吗}}\n', ("key",))) == "你好吗"


def test_tabs_are_expanded_and_the_caret_moves_with_them() -> None:
    lines = show("{a:\t1,\tkey:\t2}\n", ("key",), key=True)
    assert "\t" not in "".join(lines)
    assert under_caret(lines) == "key"


def test_a_very_long_line_is_cut_around_the_caret() -> None:
    lines = show(f"{{a: {'x' * 500}, key: here, b: {'y' * 500}}}\n", ("key",), width=80)
    assert under_caret(lines) == "here"
    assert all(cells(line) <= 80 for line in lines)
    assert lines[-2].count("…") == 2


def test_a_very_long_value_does_not_flood_the_screen() -> None:
    lines = show(f"a: {'x' * 5000}\n", ("a",), width=80)
    assert all(cells(line) <= 80 for line in lines)


def test_a_value_of_several_lines_is_marked_on_its_first() -> None:
    lines = show("a:\n  b: 1\n  c: 2\n", ("a",))
    assert lines[-2:] == [" 2 |   b: 1", "   |   ^^^^"]


def test_a_hint_that_finds_no_room_beside_the_caret_is_below() -> None:
    lines = show("a: 1\n", ("a",), hint="long " * 30, width=80)
    assert lines[-2:] == ["   |    ^", f"   = hint: {('long ' * 30).strip()}"]


def test_nothing_in_a_file_or_a_message_can_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: \x1b[31m\u202ered\x07\n" + OURS)
    found = Diagnostics()
    found.error(
        "x", "sum\x1b[2Jmary\nsecond", Span(str(path), 1, 4, 1, 6), hint="h\x1b", detail="d\x07", notes=[Note("n\x1b")]
    )
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", render(found).replace(str(path), ""))


def test_colour_adds_nothing_but_colour() -> None:
    source = SourceFile.from_text("a: 1\nb: 2\n" + OURS, "f")
    found = Diagnostics()
    found.error("x", "here", source.place(0, ("b",)), hint="do", notes=[Note("n")])
    found.warning("y", "there", source.place(0, ("a",)))
    plain, coloured = render(found, sources={"f": source}), render(found, color=True, sources={"f": source})
    assert "\x1b" not in plain
    assert coloured != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_the_last_line_counts_errors_warnings_and_files() -> None:
    found = Diagnostics()
    assert summary_line(found) == "No errors."
    found.warning("w", "a", Span("c", 1, 1, 1, 2))
    assert summary_line(found) == "1 warning in 1 file."
    found.error("e", "b", Span("a", 1, 1, 1, 2))
    found.error("e", "c", Span("b", 1, 1, 1, 2))
    assert summary_line(found) == "2 errors, 1 warning in 3 files. Nothing was run."
    assert summary_line(found, ran=True) == "2 errors, 1 warning in 3 files."
    alone = Diagnostics()
    alone.error("e", "no place")
    assert summary_line(alone) == "1 error. Nothing was run."


@given(st.text(max_size=60), st.integers(0, 70), st.integers(0, 70), st.integers(-5, 120), st.booleans())
def test_any_line_with_any_span_at_any_width_is_shown(
    text: str, start: int, length: int, width: int, color: bool
) -> None:
    line = re.sub(r"[\r\n]", "", text)
    try:
        source = SourceFile.from_text(f"# {line}\na: 1\n{OURS}", "f")
    except SpecError:
        return
    found = Diagnostics()
    found.error("x", text, Span("f", 1, start + 1, 1, start + 1 + length), hint=text, detail=text)
    shown = render(found, color=color, width=width, sources={"f": source})
    assert "^" in shown


@pytest.mark.parametrize(
    "text", ["root:$6$hash:1\n", "apiVersion: v1\nkind: Secret\n", "# apiVersion: kubexm.io/v1 of ours\n"]
)
def test_a_text_that_is_no_spec_shows_no_excerpt(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    found = Diagnostics()
    found.error("x", "here", Span(str(path), 1, 1, 1, 2))
    assert render(found) == f"error[x]: here\n  --> {path}:1:1\n"
