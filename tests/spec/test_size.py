"""Sizes as people write them."""

from __future__ import annotations

import pytest

from kubexm_spec.size import parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8Gi", 8 << 30),
        ("1700Mi", 1700 << 20),
        ("10G", 10**10),
        (" 1.5Ki ", 1536),
        ("12", 12),
        (12, 12),
        ("2Ti", 2 << 40),
    ],
)
def test_sizes_are_bytes(text: str | int, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["8GB", "-1", "", "Gi", "8 Gi", "1e9", True, None, 1.5, "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 8Gi"):
        parse_size(text)
