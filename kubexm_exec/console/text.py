"""Text for terminals: made harmless, measured in cells, cut to fit, and coloured if that is wanted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import FailureKind

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_ITEMS: Final = 10_000
"""Progress with a smaller total counts items, with a larger one bytes: few things are done in that many pieces."""


def format_size(size: float) -> str:
    """``512 B``, ``18.4 MB``, ``1.2 GB``: powers of 1000, as disks and networks are sold."""
    number, unit = _scaled(size, _unit(size))
    return f"{number} {unit}"


def format_progress(done: float | None, total: float | None) -> str:
    """``12.1/18.4 MB``, ``3/12``, or how much is done where the end is not known; empty if nothing is known."""
    if total is None or total <= 0:
        return "" if not done or done < 0 else (f"{done:g}" if done < _ITEMS else format_size(done))
    done = min(max(done or 0.0, 0.0), total)
    if total < _ITEMS:
        return f"{done:g}/{total:g}"
    power = _unit(total)
    return f"{_scaled(done, power)[0]}/{format_size(total)}"


def _unit(size: float) -> int:
    power = 0
    # 999.95 kB would be shown as 1000.0 kB.
    while abs(size) >= (999.5 if power == 0 else 999.95) and power < len(_UNITS) - 1:
        size /= 1000
        power += 1
    return power


def _scaled(size: float, power: int) -> tuple[str, str]:
    return (f"{size:.0f}" if power == 0 else f"{size / 1000**power:.1f}"), _UNITS[power]


STYLES: Final = {
    "ok": "\x1b[32m",
    "changed": "\x1b[33m",
    "skipped": "\x1b[36m",
    "failed": "\x1b[31m\x1b[1m",
    "warning": "\x1b[35m",
    "running": "\x1b[34m\x1b[1m",
    "dim": "\x1b[2m",
    "head": "\x1b[1m",
}
"""Colours by meaning; the words beside them say the same."""
_STYLE: Final = re.compile(r"\x1b\[[0-9]*m")

KINDS: Final = {
    FailureKind.FAILED.value: "",
    FailureKind.TIMED_OUT.value: "timed out",
    FailureKind.UNREACHABLE.value: "unreachable",
    FailureKind.ERRORED.value: "error",
}
"""How a failure kind is said; a plain failure needs no word."""


class Paint:
    """Colours text, or leaves it alone."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, text: str, style: str) -> str:
        """The text in a style of ``STYLES``."""
        return f"{STYLES[style]}{text}\x1b[0m" if self.color and style and text else text


def unstyle(text: str) -> str:
    """The text without the colours that it was given."""
    return _STYLE.sub("", text)


def one_line(text: str) -> str:
    """The first line with something on it, and a sign if there is more."""
    lines = [line.strip() for line in clean(text).split("\n") if line.strip()]
    if not lines:
        return ""
    return " ".join(lines[0].split("\t")) + (" …" if len(lines) > 1 else "")


def text_lines(text: str) -> list[str]:
    """The lines of a text, clean, without empty ones at its ends."""
    lines = [line.rstrip() for line in clean(text).expandtabs(4).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def fit(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it takes more than that many cells."""
    if len(text) <= width and text.isascii():
        return text
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """The text in lines of that many characters, all but the first one indented; no word is cut."""
    import textwrap

    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def pad(text: str, width: int) -> str:
    """The text, filled up with spaces to that many cells; never cut."""
    return text + " " * max(0, width - cell_len(text))


def names(items: Iterable[str], most: int = 5) -> str:
    """``a, b, c, + 9 more``."""
    items = list(items)
    if len(items) > most + 1:
        items = [*items[:most], f"+ {len(items) - most} more"]
    return ", ".join(clean(item) for item in items)


def columns(rows: Sequence[Sequence[str]], left: frozenset[int] = frozenset({0}), gap: int = 2) -> list[str]:
    """Rows as lines with aligned columns; those named in ``left`` are aligned to the left, numbers to the right."""
    widths = [max(cell_len(unstyle(cell)) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
            filler = " " * (width - cell_len(unstyle(cell)))
            cells.append(cell + filler if index in left else filler + cell)
        lines.append((" " * gap).join(cells).rstrip())
    return lines
