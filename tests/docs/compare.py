"""Compares what a command printed with what a page shows: times, ids and paths may differ, lines may be left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

ELLIPSIS = "..."
"""A line of a page that stands for any number of lines."""

_TIMED = "<time>"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+[\d:]+)?"), "<moment>"),
    (re.compile(r"\S+@\S+ \(process \d+\)"), "<process>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), _TIMED),
    (re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{4,24}\b(\.\.\.|…)?"), "<run>"),
    (re.compile(r"\b(\d+d )?(\d+h )?\d+m \d\ds\b|\b\d+(\.\d+)?(ms|s)\b"), "<duration>"),
    (re.compile(r"<duration> to <duration>"), "<duration>"),
    (re.compile(r'"seconds": [\d.]+'), '"seconds": <duration>'),
    # What took no time at all is shown without it.
    (re.compile(r"\s+\(<duration>\)$"), ""),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "<digest>"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "<version>"),
    (re.compile(r"([─━═-])\1{3,}"), "<rule>"),
    (re.compile(r" {2,}"), "  "),
)


@dataclass(slots=True)
class _Piece:
    """A line, or lines with a time: those that hosts write at the same time come in any order."""

    lines: list[str]
    timed: bool = False
    partial: bool = False
    """Some of the lines are left out."""

    def fits(self, other: _Piece) -> bool:
        """Whether another one, of what was printed, is what this one of a page shows."""
        if not self.timed or not other.timed:
            return self.lines == other.lines
        shown, printed = Counter(self.lines), Counter(other.lines)
        return shown <= printed if self.partial else shown == printed


def normal(line: str) -> str:
    """The line without what is different each time."""
    line = line.rstrip()
    for pattern, name in _RULES:
        line = pattern.sub(name, line)
    return line.strip()


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the lines of a page and of a command say the same."""
    return _match(_pieces(shown), _pieces(printed))


def _pieces(lines: Sequence[str]) -> list[_Piece]:
    found: list[_Piece] = []
    said = [normal(line) for line in lines]
    while said and not said[-1]:
        said.pop()
    for line in said:
        if not line.startswith(_TIMED):
            found.append(_Piece([line]))
        elif found and found[-1].timed:
            found[-1].lines.append(line)
        elif len(found) > 1 and found[-1].lines == [ELLIPSIS] and found[-2].timed:
            # Lines left out between lines with a time: one piece with a hole.
            found.pop()
            found[-1].lines.append(line)
            found[-1].partial = True
        else:
            found.append(_Piece([line], timed=True))
    for one, other in pairwise(found):
        one.partial = one.partial or other.lines == [ELLIPSIS]
        other.partial = other.partial or one.lines == [ELLIPSIS]
    return found


def _match(shown: list[_Piece], printed: list[_Piece]) -> bool:
    if not shown:
        return not printed
    first, *rest = shown
    if first.lines == [ELLIPSIS]:
        return any(_match(rest, printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and first.fits(printed[0]) and _match(rest, printed[1:])
