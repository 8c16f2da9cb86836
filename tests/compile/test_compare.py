"""What is said of two values that differ says where they do, however long they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.compile.compare import differences

_TEXTS = st.text(max_size=5)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | _TEXTS
    | st.builds(lambda a, b: "x" * 300 + a + "y" * 300 + b, _TEXTS, _TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(_VALUES, _VALUES)
def test_both_sides_of_a_difference_are_shown_differently_and_are_short(one: Any, other: Any) -> None:
    if one == other:
        return
    found = list(differences("v", one, other))
    assert found
    for line in found:
        if line.endswith("more differences in it"):
            continue
        assert len(line) < 300
        old, arrow, new = line.partition(": ")[2].rpartition(" -> ")
        assert arrow
        assert old != new


LONG = "a = 1\n" * 500


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("short", "other", ['v: "short" -> "other"']),
        (
            LONG + "port = 80\n" + LONG,
            LONG + "port = 81\n" + LONG,
            ["v (from line 501 on): ", "port = 80", "port = 81"],
        ),
        ({"env": {"A": LONG, "B": "1"}}, {"env": {"A": LONG, "B": "2"}}, ['v.env.B: "1" -> "2"']),
        ([LONG, "x"], [LONG, "y"], ['v[1]: "x" -> "y"']),
        ([LONG, "x"], [LONG, "x", "z"], ["v: ", '"x"]', '"x", "z"]']),
        (LONG, LONG + "more", ["v (from line 501 on): ", "more"]),
    ],
)
def test_the_part_that_differs_is_shown(one: Any, other: Any, said: list[str]) -> None:
    (line,) = differences("v", one, other)
    assert all(text in line for text in said), line


def test_a_value_with_many_differences_shows_some_and_counts_the_rest() -> None:
    one, other = ({f"key{number}": f"{side} {'x' * 50}" for number in range(25)} for side in ("a", "b"))
    found = list(differences("v", one, other))
    assert len(found) == 11
    assert found[-1] == "v: 15 more differences in it"
