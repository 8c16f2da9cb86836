"""Turns offsets in a text into lines and columns."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

from kubexm_spec.diagnostics import Span

# What editors call a line end, and what loading lets through of what YAML calls one.
_LINE_END = re.compile(r"\r\n|\n|\r")
_OURS = re.compile(r"""(?:^|[{,])[ \t]*(?:---[ \t]+)?["']?apiVersion["']?[ \t]*:[ \t]*["']?kubexm""", re.MULTILINE)


def is_spec(text: str) -> bool:
    """Whether a text is a spec, readable or not: anything else may be a file of secrets, and is never quoted."""
    return _OURS.search(text) is not None


class LineTable:
    """The lines of one text; offsets count characters from 0, lines and columns count from 1."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(m.end() for m in _LINE_END.finditer(self._text))]

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends; a line end at the very end starts no further line."""
        lines = _LINE_END.split(self._text)
        return lines[:-1] if lines[-1] == "" else lines

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset; one past the end is the end of the last line that has text."""
        offset = max(0, min(offset, len(self._text)))
        if offset == len(self._text):
            offset = len(self._text.rstrip())
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, file: str, start: int, end: int) -> Span:
        """The span of text[start:end], at least one character wide if it can be."""
        line, column = self.position(start)
        end_line, end_column = self.position(max(start, end))
        if (end_line, end_column) <= (line, column):
            end_line, end_column = line, column + 1
        return Span(file, line, column, end_line, end_column)

    def end_of_line(self, offset: int) -> int:
        """The offset where the line of an offset ends."""
        found = _LINE_END.search(self._text, offset)
        return found.start() if found else len(self._text)
