"""The filters and tests that expressions have beyond Jinja2's own."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import pass_context

from kubexm_exec.values.limits import fit, fit_items, weighed
from kubexm_spec.regex import regex


def to_json(value: Any, indent: int | str | None = None) -> str:
    """The value as JSON."""
    copy = _Copy()
    plain = copy.of(value)
    if indent:
        fit((copy.items + 1) * (len(indent) if isinstance(indent, str) else indent))
    return json.dumps(plain, indent=indent, ensure_ascii=False, sort_keys=True)


def from_json(text: str) -> Any:
    """The value that a JSON text holds."""
    return json.loads(text)


def b64encode(text: str) -> str:
    """The text's UTF-8 bytes in base64."""
    return base64.b64encode(str(text).encode()).decode()


def b64decode(text: str) -> str:
    """The UTF-8 text behind base64."""
    return base64.b64decode(text, validate=True).decode()


def sha256(text: str) -> str:
    """The hex sha256 of the text's UTF-8 bytes."""
    return hashlib.sha256(str(text).encode()).hexdigest()


def quote(value: Any) -> str:
    """The value as one word of a POSIX shell."""
    import shlex

    return shlex.quote(str(value))


@pass_context
def regex_replace(context: Any, text: str, pattern: str, replacement: str = "") -> str:
    """The text with every match replaced."""
    made = 0

    def pay(characters: int) -> None:
        nonlocal made
        made += characters
        fit(made)
        context.budget.spend()

    return regex(pattern).replaced(str(text), replacement, pay)


def regex_search(text: str, pattern: str) -> str:
    """The first match (its first group if it has one), or an empty text."""
    return regex(pattern).search(str(text)) or ""


def split(text: str, separator: str | None = None) -> list[str]:
    """The parts of the text."""
    return str(text).split(separator)


def contains(values: Any, value: Any) -> bool:
    """Whether the value is one of the values: ``in`` the other way round, for ``selectattr``."""
    return value in values


class _Copy:
    """Copies a value for JSON, and counts on the way, so that it is gone through only once."""

    __slots__ = ("characters", "items")

    def __init__(self) -> None:
        self.characters = self.items = 0

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            self.characters += len(value)
            fit(self.characters)
        elif kind is dict or isinstance(value, Mapping):
            self.items += len(value) + 1
            fit_items(self.items)
            return {str(weighed(key)): self.of(item) for key, item in value.items()}
        elif isinstance(value, list | tuple):
            self.items += len(value) + 1
            fit_items(self.items)
            return [self.of(item) for item in value]
        return value


FILTERS: dict[str, Callable[..., Any]] = {
    "to_json": to_json,
    "tojson": to_json,
    "from_json": from_json,
    "b64encode": b64encode,
    "b64decode": b64decode,
    "sha256": sha256,
    "quote": quote,
    "regex_replace": regex_replace,
    "regex_search": regex_search,
    "basename": posixpath.basename,
    "dirname": posixpath.dirname,
    "split": split,
}
TESTS: dict[str, Callable[..., Any]] = {"contains": contains}
