"""Compares what a command printed with what a page shows: times, ids and paths may differ, lines may be left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

ELLIPSIS = "..."
"""A line of a page that stands for any number of lines."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+[\d:]+)?"), "<moment>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{4,24}\b(\.\.\.|…)?"), "<run>"),
    (re.compile(r"\b(\d+d )?(\d+h )?\d+m \d\ds\b|\b\d+(\.\d+)?(ms|s)\b"), "<duration>"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "<digest>"),
    (re.compile(r"\bport \d{4,5}\b|\bpid \d+\b"), "<number>"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "<version>"),
    (re.compile(r"([─━═-])\1{3,}"), "<rule>"),
    (re.compile(r" {2,}"), "  "),
)


def normal(line: str) -> str:
    """The line without what is different each time."""
    for pattern, name in _RULES:
        line = pattern.sub(name, line)
    return line.strip()


def _settled(lines: Sequence[str]) -> list[str]:
    """Lines that hosts write at the same time come in any order: each run of lines with a time is sorted."""
    found: list[str] = []
    for timed, run in groupby(map(normal, lines), key=lambda line: line.startswith("<time>")):
        said = list(run)
        found += sorted(said) if timed else said
    while found and not found[-1]:
        found.pop()
    return found


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the lines of a page and of a command say the same."""
    return _match(_settled(shown), _settled(printed))


def _match(shown: list[str], printed: list[str]) -> bool:
    pieces: list[list[str]] = [[]]
    for line in shown:
        if line == ELLIPSIS:
            pieces.append([])
        else:
            pieces[-1].append(line)
    first, *rest = pieces
    if printed[: len(first)] != first:
        return False
    if not rest:
        return len(printed) == len(first)
    at = len(first)
    *middle, last = rest
    for piece in middle:
        found = next((i for i in range(at, len(printed) + 1) if printed[i : i + len(piece)] == piece), None)
        if found is None:
            return False
        at = found + len(piece)
    return len(printed) - len(last) >= at and (not last or printed[-len(last) :] == last)
