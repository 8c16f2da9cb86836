"""Ranges of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_spec.ranges import MAX_NAMES, expand_pair, expand_range, is_range


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("node", ["node"]),
        ("node[1:3]", ["node1", "node2", "node3"]),
        ("node[01:03].lab", ["node01.lab", "node02.lab", "node03.lab"]),
        ("node[08:11]", ["node08", "node09", "node10", "node11"]),
        ("node[8:11]", ["node8", "node9", "node10", "node11"]),
        ("node[098:101]", ["node098", "node099", "node100", "node101"]),
        ("node[1:9:4]", ["node1", "node5", "node9"]),
        ("node[1:8:4]", ["node1", "node5"]),
        ("rack[a:c]", ["racka", "rackb", "rackc"]),
        ("rack[A:C:2]", ["rackA", "rackC"]),
        ("r[a:b]n[1:2]", ["ran1", "ran2", "rbn1", "rbn2"]),
        ("[5:5]", ["5"]),
        ("n[0:1]", ["n0", "n1"]),
    ],
)
def test_a_range_stands_for_its_names_in_order(name: str, names: list[str]) -> None:
    assert expand_range(name) == names


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("n[5:1]", "ends before it begins"),
        ("n[1:]", "is not a range"),
        ("n[]", "is not a range"),
        ("n[1-3]", "is not a range"),
        ("n[a:F]", "is not a range"),
        ("n[a:5]", "is not a range"),
        ("n[1:5:0]", "step"),
        ("n[01:5]", r"\[01:05\]"),
        ("n[1", "no partner"),
        ("n1]", "no partner"),
        ("n[[1:2]]", "no partner"),
        ("n[1:200000]", "more than 100,000"),
        ("n[1:1000]x[1:1000]", "more than 100,000"),
        ("n[0:" + "9" * 50 + "]", "too long"),
        ("n[" + "x" * 500 + "]", "is not a range"),
    ],
)
def test_a_wrong_range_is_refused_with_a_clear_and_short_text(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        expand_range(name)
    assert len(str(caught.value)) < 250


def test_the_largest_range_is_allowed() -> None:
    assert len(expand_range(f"n[1:{MAX_NAMES}]")) == MAX_NAMES


def test_names_and_addresses_are_expanded_side_by_side() -> None:
    assert expand_pair("n[1:2]", "10.0.0.[11:12]") == [("n1", "10.0.0.11"), ("n2", "10.0.0.12")]
    assert expand_pair("n", "10.0.0.1") == [("n", "10.0.0.1")]


def test_names_and_addresses_must_be_as_many() -> None:
    with pytest.raises(ValueError, match=r"stands for 3 names, but .* stands for 2 addresses"):
        expand_pair("n[1:3]", "10.0.0.[1:2]")
    with pytest.raises(ValueError, match="1 address;"):
        expand_pair("n[1:3]", "10.0.0.1")


def test_is_range_knows_a_range_from_a_name() -> None:
    assert is_range("n[1:2]")
    assert is_range("n[1")
    assert not is_range("node-1.lab")


@given(st.integers(0, 500), st.integers(0, 200), st.integers(1, 7), st.integers(1, 5))
def test_numbers_are_those_of_python_with_both_ends_and_as_wide_as_written(
    first: int, length: int, step: int, width: int
) -> None:
    last = first + length
    low, high = str(first).zfill(width), str(last).zfill(width)
    names = expand_range(f"n[{low}:{high}:{step}]")
    assert [int(name[1:]) for name in names] == list(range(first, last + 1, step))
    assert len(set(names)) == len(names)
    if low.startswith("0") and len(low) > 1:
        assert all(len(name) >= width + 1 for name in names)


@given(st.text("n[]:019a-", max_size=14))
def test_any_text_is_expanded_or_refused_with_a_value_error(name: str) -> None:
    message = "none"
    try:
        assert expand_range(name)
    except ValueError as error:
        message = str(error)
    assert message
