"""Versions: their order, minors, ranges and spans."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_spec.semver import in_range, in_span, is_span, minor_of, newest_first, parse_range, parse_version

NUMBERS = st.tuples(*[st.integers(0, 99)] * 3)


@given(NUMBERS, NUMBERS)
def test_versions_are_in_the_order_of_their_numbers(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    texts = [".".join(map(str, each)) for each in (one, other)]
    assert newest_first(texts) == [".".join(map(str, each)) for each in sorted({one, other}, reverse=True)]


def test_a_pre_release_comes_before_its_release() -> None:
    given_order = ["1.37.0-rc.1", "1.37.0", "1.37.0-rc.10", "1.37.0-alpha.0", "1.36.9"]
    assert newest_first(given_order) == ["1.37.0", "1.37.0-rc.10", "1.37.0-rc.1", "1.37.0-alpha.0", "1.36.9"]


def test_a_leading_v_means_nothing() -> None:
    assert parse_version("v1.36.4") == "1.36.4"
    assert minor_of("v1.36.4") == "1.36"


@pytest.mark.parametrize("text", ["1.36", "1.36.x", "", "v", "1.36.4.5", "latest"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="three numbers"):
        parse_version(text)


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        ("2.2.0", ">=2.2.0", True),
        ("2.1.9", ">=2.2.0", False),
        ("1.7.33", ">=1.7.28 <2", True),
        ("2.0.0", ">=1.7.28 <2", False),
        ("2.0.0-rc.1", ">=1.7.28 <2", True),
        ("3.6.14", "=3.6.14", True),
        ("10.0.0", ">9", True),
    ],
)
def test_a_range_is_all_its_clauses(version: str, text: str, expected: bool) -> None:
    assert in_range(version, parse_range(text)) is expected


@pytest.mark.parametrize("text", ["2.2.0", "newest", ">=x", ">=2 or so", ""])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range of versions"):
        parse_range(text)


def test_both_ends_of_a_span_belong_to_it() -> None:
    assert [in_span(f"1.35.{patch}", "1.35.1 - 1.35.3") for patch in range(5)] == [False, True, True, True, False]
    assert in_span("1.36.0", "1.36.0")
    assert not is_span("1.36")
    assert not is_span("1.35.0-1.35.x - 2")
