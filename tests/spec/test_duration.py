"""Times: parsing, formatting, and the pydantic type."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from kubexm_spec.duration import Duration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("2s", 2.0),
        ("2d", 172800.0),
        ("1.5h", 5400.0),
        ("1h 30m", 5400.0),
        (" 3s ", 3.0),
        ("90", 90.0),
        ("0", 0.0),
        (3, 3.0),
        (1.5, 1.5),
    ],
)
def test_durations_are_read_as_seconds(value: str | float, seconds: float) -> None:
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "empty"),
        ("soon", "not a duration"),
        ("5 minutes", "not a duration"),
        ("1e3", "not a duration"),
        (".5s", "not a duration"),
        ("-3s", "negative"),
        (-1, "negative"),
        ("1s1s", "twice"),
        ("30s1m", "largest comes first"),
        (True, "not bool"),
        (None, "not NoneType"),
        (float("nan"), "not a duration"),
        (float("inf"), "not a duration"),
        (10**400, "not a duration"),
        ("9" * 400 + "s", "not a duration"),
        ("4000d", "ten years"),
        ("٣s", "not a duration"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_clear_and_short_text(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_duration(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.84, "840ms"),
        (0.9996, "1.0s"),
        (18.24, "18.2s"),
        (59.96, "1m 00s"),
        (67, "1m 07s"),
        (3599.6, "1h 00m"),
        (7380, "2h 03m"),
        (273600, "3d 04h"),
        (-5, "-5.0s"),
    ],
)
def test_durations_are_shown_in_human_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_can_be_shown(seconds: float) -> None:
    assert re.fullmatch(r"\?|-?\d+(ms|\.\ds|m \d\ds|h \d\dm|d \d\dh)", format_duration(seconds))


@given(st.text(max_size=12) | st.from_regex(r"\A[0-9]{1,3}(ms|d|h|m|s)\s?[0-9]{0,2}[a-z]?\Z"))
def test_any_text_is_read_or_refused_with_a_value_error(text: str) -> None:
    message = "none"
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        message = str(error)
    assert message


def test_a_duration_field_takes_what_people_write_and_holds_seconds() -> None:
    class Retry(BaseModel):
        delay: Duration = 1.0

    assert Retry.model_validate({"delay": "2m"}).delay == 120.0
    assert Retry.model_validate({"delay": 5}).delay == 5.0
    with pytest.raises(ValidationError, match="write for example 30s"):
        Retry.model_validate({"delay": "later"})


def test_the_schema_of_a_duration_takes_a_text_with_a_pattern_or_a_number() -> None:
    schema = TypeAdapter(Duration).json_schema()
    text, number = schema["anyOf"]
    assert number == {"type": "number", "minimum": 0}
    for good in ("30s", "1h30m", "500ms", "1h 30m", "7", "1.5"):
        assert re.search(text["pattern"], good), good
        parse_duration(good)
    for bad in ("", "soon", "5x", "-1s"):
        assert not re.search(text["pattern"], bad), bad
