from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.draw.text import clean, escape, fit, text_width
from kubexm_spec.diagnostics import plural


def test_wide_letters_are_wider_than_narrow_ones_and_bold_than_plain() -> None:
    assert text_width("WWW", 12) > 2 * text_width("iii", 12)
    assert text_width("name", 12, bold=True) > text_width("name", 12)
    assert text_width("漢字", 12) >= 24


def test_text_that_fits_is_not_cut() -> None:
    assert fit("short", 200, 12) == "short"


def test_long_text_is_cut_in_the_middle_so_that_its_end_can_be_read() -> None:
    cut = fit("a-very-long-name-of-a-step-number-17", 120, 12)
    assert cut.startswith("a-very")
    assert cut.endswith("17")
    assert "…" in cut


@given(st.text(max_size=80), st.floats(20, 400))
def test_what_is_fitted_is_never_wider_than_its_room(text: str, width: float) -> None:
    assert text_width(fit(text, width, 12), 12) <= width + 1e-6


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=60))
def test_escaped_text_holds_no_markup_and_nothing_a_document_may_not_hold(text: str) -> None:
    escaped = escape(text)
    assert not set("<>\"'") & set(escaped)
    escaped.encode("utf-8")
    assert clean(escaped) == escaped


def test_marks_that_turn_the_direction_of_writing_are_taken_out() -> None:
    assert escape("safe\u202etxt.exe") == "safe\ufffdtxt.exe"


def test_counts_read_as_people_write_them() -> None:
    assert [plural(n, "step") for n in (0, 1, 1200)] == ["0 steps", "1 step", "1,200 steps"]
