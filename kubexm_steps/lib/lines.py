"""Texts as lines, with their line ends kept: what the steps that edit a part of a file share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator

from kubexm_exec.step import StepFailed
from kubexm_spec.regex import checked_regex, regex

Pattern = Annotated[str, AfterValidator(checked_regex)]
"""A regular expression, of RE2's syntax."""


def split(text: str) -> tuple[list[str], str]:
    """The lines without their ends, and what they end with."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.removesuffix(end).split(end) if text else []
    return lines, end


def joined(lines: Sequence[str], end: str, old: str) -> str:
    """The lines as a text that ends as the old one did."""
    if not lines:
        return ""
    return end.join(lines) + (end if old.endswith(end) else "")


def matching(lines: Sequence[str], pattern: str | None) -> list[int]:
    """The numbers of the lines in which the pattern is found."""
    if pattern is None:
        return []
    search = regex(pattern).search
    return [number for number, line in enumerate(lines) if search(line) is not None]


def with_block(
    text: str,
    begin: str,
    end: str,
    block: Sequence[str] | None,
    *,
    after: str | None = None,
    before: str | None = None,
    where: str = "the file",
) -> str:
    """The text with these lines between the two markers, or without block and markers if it is None.

    A block that is there stays where it is; a new one goes after the last line that matches ``after``, before the
    first one that matches ``before``, else to the end. Further blocks of the same markers are taken out.
    """
    lines, ending = split(text)
    spans = _spans(lines, begin, end, where)
    wanted = [] if block is None else [begin, *block, end]
    if not spans:
        if not wanted:
            return text
        anchors = matching(lines, after) if after is not None else matching(lines, before)
        place = len(lines) if not anchors else anchors[-1] + 1 if after is not None else anchors[0]
        lines[place:place] = wanted
        # A last line without an end gets one: it is not the last any more, or the block is.
        return ending.join(lines) + ending if place + len(wanted) == len(lines) else joined(lines, ending, text)
    for first, last in reversed(spans[1:]):
        del lines[first : last + 1]
    first, last = spans[0]
    lines[first : last + 1] = wanted
    return joined(lines, ending, text)


def _spans(lines: Sequence[str], begin: str, end: str, where: str) -> list[tuple[int, int]]:
    """The first and last line of each block; a marker without its partner is a failure."""
    spans: list[tuple[int, int]] = []
    opened: int | None = None
    for number, line in enumerate(lines):
        if line.rstrip() == begin:
            if opened is not None:
                raise _unpaired(where, begin, opened)
            opened = number
        elif line.rstrip() == end:
            if opened is None:
                raise _unpaired(where, end, number)
            spans.append((opened, number))
            opened = None
    if opened is not None:
        raise _unpaired(where, begin, opened)
    return spans


def _unpaired(where: str, marker: str, number: int) -> StepFailed:
    return StepFailed(
        f"{where}, line {number + 1}: the marker {marker!r} has no partner",
        hint="the other marker was removed: restore it, or remove this one by hand",
    )
