from __future__ import annotations

import pytest

from kubexm_exec.draw.status import LOOKS, look, worst
from kubexm_exec.draw.style import DARK, LIGHT, svg_style
from kubexm_exec.model.result import SYMBOLS, Status


def luminance(colour: str) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(value) for value in bytes.fromhex(colour[1:]))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


GROUNDS = ("paper", "module", "task", "box")


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "soft"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_text_can_be_read_on_everything_it_stands_on(palette: dict[str, str], ink: str, ground: str) -> None:
    assert contrast(palette[ink], palette[ground]) >= 4.5


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("line", ["edge", "hook"])
def test_lines_can_be_seen(palette: dict[str, str], line: str) -> None:
    assert all(contrast(palette[line], palette[ground]) >= 2.9 for ground in GROUNDS)


@pytest.mark.parametrize("status", list(Status))
def test_a_drawing_has_the_symbol_that_every_view_has_for_a_status(status: Status) -> None:
    assert look(status.value).symbol == SYMBOLS[status]


@pytest.mark.parametrize("key", list(LOOKS))
def test_outcomes_can_be_read_as_words_and_their_signs_on_their_discs(key: str) -> None:
    one = LOOKS[key]
    assert contrast(one.light, LIGHT["paper"]) >= 4.5
    assert contrast(one.dark, DARK["paper"]) >= 4.5
    assert contrast(one.light, "#ffffff") >= 4.5  # the sign is white in the light
    assert contrast(one.dark, DARK["paper"]) >= 4.5  # and dark in the dark


def test_no_two_outcomes_share_a_symbol_or_a_sign() -> None:
    assert len({one.symbol for one in LOOKS.values()}) == len(LOOKS)
    assert len({one.icon for one in LOOKS.values()}) == len(LOOKS)


@pytest.mark.parametrize(
    ("status", "symbol"),
    [
        ("Success", "✔"),
        ("Failed", "✘"),
        ("Pending", "○"),
        ("Skipped", "⊘"),
        ("change", "~"),
        ("Unchanged", "="),
        ("unknown", "?"),
        ("never heard of", "○"),
    ],
)
def test_statuses_have_the_symbols_of_the_terminal(status: str, symbol: str) -> None:
    assert look(status).symbol == symbol


def test_the_worst_of_several_is_what_matters_most() -> None:
    found = worst(look(status) for status in ("Success", "Unchanged", "Failed", "Skipped"))
    assert found is not None
    assert found.key == "failed"
    assert worst([]) is None


def test_the_style_knows_only_the_outcomes_that_are_shown() -> None:
    assert "kx-failed" in svg_style(["failed"])
    assert "kx-failed" not in svg_style([])
