"""Regular expressions that a spec holds: those of RE2, which end in time whatever the pattern and the text are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

LONGEST_PATTERN: Final = 10_000
"""Characters that a pattern may have."""
MOST_WORK: Final = 3 << 27
"""Characters of a text times the size of the compiled pattern: three seconds, where RE2 is at its slowest."""
_MEMORY: Final = 2 << 20  # of a compiled pattern; what needs more is refused as too large
_PYTHONS: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(Z)|.)|(\[\^?\]?)((?:\\.|[^\]\\])*)(\])|\{,(\d+)\}", re.DOTALL
)
_TEMPLATE: Final = re.compile(r"\\(?:([1-9][0-9]?)|g<(\w+)>|(.?))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "f": "\f", "v": "\v", "b": "\b", "\\": "\\"}


class RegexError(ValueError):
    """A pattern or a replacement that cannot be used; the message says why."""


class Regex:
    """A compiled pattern; ``regex`` makes it."""

    __slots__ = ("_compiled", "_size", "groups", "pattern")

    def __init__(self, pattern: str) -> None:
        import re2  # a plain run needs none

        if len(pattern) > LONGEST_PATTERN:
            raise RegexError(f"it has more than {LONGEST_PATTERN:,} characters")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY
        try:
            self._compiled: Any = re2._Regexp(_rewritten(pattern), options)
        except (re2.error, UnicodeEncodeError) as error:
            raise RegexError(_reason(error)) from None
        self._size: int = max(self._compiled.programsize, self._compiled.reverseprogramsize)
        self.pattern = pattern
        self.groups: int = self._compiled.groups

    def search(self, text: str) -> str | None:
        """The first match, or its first group if the pattern has one; None if there is no match."""
        found = self._compiled.search(self._searchable(text))
        return None if found is None else _cut_out(text, found.span(1 if self.groups else 0))

    def matches(self, text: str) -> bool:
        """Whether the whole text is a match."""
        return self._compiled.fullmatch(self._searchable(text)) is not None

    def replaced(self, text: str, replacement: str, pay: Callable[[int], None] = lambda characters: None) -> str:
        r"""The text with every match replaced; ``\1`` and ``\g<name>`` in the replacement are groups.

        ``pay`` is told the length of each part of the result before it is made, and may raise.
        """
        parts = self._template(replacement)
        made: list[str] = []
        end = 0
        for spans in self._matches(text):
            pay(spans[0][0] - end + sum(len(p) if isinstance(p, str) else spans[p][1] - spans[p][0] for p in parts))
            made.append(text[end : spans[0][0]])
            made += [part if isinstance(part, str) else _cut_out(text, spans[part]) for part in parts]
            end = spans[0][1]
        return "".join([*made, text[end:]])

    def _matches(self, text: str) -> Iterator[list[tuple[int, int]]]:
        for found in self._compiled.finditer(self._searchable(text)):
            yield [found.span(group) for group in range(self.groups + 1)]

    def _searchable(self, text: str) -> str | bytes:
        if len(text) * self._size > MOST_WORK:
            raise RegexError(f"the pattern {_cut(self.pattern)} is too large for a text of {len(text):,} characters")
        if text.isascii():
            return text.encode()  # a byte a character: places need not be translated, which takes half of the time
        # Bytes of a host that are no UTF-8 come as lone surrogates, of which RE2 knows nothing: one sign for each.
        return text.encode("utf-8", "replace").decode()

    def _template(self, replacement: str) -> list[str | int]:
        parts: list[str | int] = []
        end = 0
        for match in _TEMPLATE.finditer(replacement):
            parts.append(replacement[end : match.start()])
            end = match.end()
            number, name, other = match.groups()
            if other is not None:
                if other not in _ESCAPES and (other.isalnum() or not other):
                    raise RegexError(f"the replacement {_cut(replacement)} has a bad escape {match[0]}")
                parts.append(_ESCAPES.get(other, match[0]))
                continue
            group = int(number or name) if (number or name).isdecimal() else self._compiled.groupindex.get(name, -1)
            if not 0 <= group <= self.groups:
                raise RegexError(
                    f"the replacement {_cut(replacement)} refers to a group {match[0]} that does not exist"
                )
            parts.append(group)
        return [part for part in [*parts, replacement[end:]] if part != ""]


@lru_cache(maxsize=64)
def regex(pattern: str) -> Regex:
    """The compiled pattern; raises RegexError."""
    return Regex(pattern)


def checked_regex(pattern: str) -> str:
    """The pattern itself, if it is one; for validators, raises ValueError."""
    try:
        regex(pattern)
    except RegexError as error:
        raise ValueError(f"{_cut(pattern)} is not a regular expression: {error}") from None
    return pattern


def _cut_out(text: str, span: tuple[int, int]) -> str:
    return text[span[0] : span[1]] if span[0] >= 0 else ""


def _rewritten(pattern: str) -> str:
    """What Python's writes in another way, in RE2's words: RE2 would take some of it for plain characters."""

    def rewritten(found: re.Match[str]) -> str:
        short, long, end, opened, inside, closed, most = found.groups()
        if opened is not None:
            return opened + _PYTHONS.sub(rewritten, inside) + closed if "\\" in inside else found[0]
        if most is not None:
            return f"{{0,{most}}}"
        if end is not None:
            return r"\z"
        return rf"\x{{{short or long}}}" if short or long else found[0]

    return _PYTHONS.sub(rewritten, pattern)


def _reason(error: Exception) -> str:
    text = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
    if text.startswith(("invalid perl operator", "invalid escape sequence", "invalid repetition size")):
        text += (
            "; lookahead, lookbehind, backreferences and repetitions of more than 1000 are not supported, so that a "
            "search takes linear time"
        )
    return text


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
