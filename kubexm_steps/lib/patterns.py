"""Patterns that leave things out, as a .gitignore has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from re import escape

from kubexm_spec.regex import Regex, RegexError, regex

_NOTHING = r"[^\x00-\x{10FFFF}]"


class Excluded:
    """Says of names below a folder whether a list of patterns leaves them out; the last one that matches decides.

    A pattern without a slash matches a name at any depth, one with a slash a path from the top. A slash at the end
    means folders only, ``*`` and ``?`` stop at slashes, ``**`` does not, and ``!`` takes back what an earlier pattern
    left out. What is in a folder that is left out is left out too.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._rules = [_rule(pattern) for pattern in patterns]
        self._folders: dict[str, bool] = {}

    def __call__(self, name: str, folder: bool) -> bool:
        """Whether that is left out; the name is relative, without a slash at its end."""
        if not self._rules:
            return False
        above, slash, _ = name.rpartition("/")
        if slash and self._folder(above):
            return True
        return self._folder(name) if folder else self._matches(name, folder=False)

    def _folder(self, name: str) -> bool:
        known = self._folders.get(name)
        if known is None:
            above, slash, _ = name.rpartition("/")
            known = self._folders[name] = bool(slash and self._folder(above)) or self._matches(name, folder=True)
        return known

    def _matches(self, name: str, *, folder: bool) -> bool:
        excluded = False
        for expression, folders_only, out in self._rules:
            if (folder or not folders_only) and expression.matches(name):
                excluded = out
        return excluded


def checked_pattern(pattern: str) -> str:
    """The pattern, if it means anything."""
    _rule(pattern)
    return pattern


def _rule(pattern: str) -> tuple[Regex, bool, bool]:
    out = not pattern.startswith("!")
    text = pattern if out else pattern[1:]
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text.strip("/"):
        raise ValueError(f"the pattern {pattern!r} matches nothing")
    anchored = "/" in text
    source = _translated(text.removeprefix("/"))
    try:
        expression = regex(f"(?s){source}" if anchored else f"(?s)(?:.*/)?{source}")
    except RegexError as error:
        raise ValueError(f"the pattern {pattern!r} cannot be read: {error}") from error
    return expression, folders_only, out


def _translated(text: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif text[at:] == "**" and (at == 0 or text[at - 1] == "/"):
            parts.append(".+")
            at += 2
        elif text[at] == "*":
            while text.startswith("*", at + 1):
                at += 1
            parts.append("[^/]*")
            at += 1
        elif text[at] == "?":
            parts.append("[^/]")
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside = text[at + 1 : end]
            negated = inside.startswith(("!", "^"))
            ranges = "".join(f"{_sign(low)}-{_sign(high)}" for low, high in _ranges(inside[negated:]))
            parts.append(f"[^/{ranges}]" if negated else f"[{ranges}]" if ranges else _NOTHING)
            at = end + 1
        elif text[at] == "\\" and at + 1 < len(text):
            parts.append(escape(text[at + 1]))
            at += 2
        else:
            parts.append(escape(text[at]))
            at += 1
    return "".join(parts)


def _ranges(inside: str) -> Iterator[tuple[str, str]]:
    """What brackets hold, as ranges; without the slash, which no bracket matches."""
    at = 0
    while at < len(inside):
        low = high = inside[at]
        at += 1
        if inside[at : at + 1] == "-" and at + 1 < len(inside):
            high = inside[at + 1]
            at += 2
        if low <= "/" <= high:
            yield from ((one, two) for one, two in ((low, "."), ("0", high)) if one <= two)
        else:
            yield low, high


def _sign(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
