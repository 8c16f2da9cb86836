"""The filters that expressions have beyond Jinja2's own."""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any


def to_json(value: Any, indent: int | None = None) -> str:
    """The value as JSON."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, sort_keys=True)


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


def regex_replace(text: str, pattern: str, replacement: str = "") -> str:
    """The text with every match replaced."""
    return re.sub(pattern, replacement, str(text))


def regex_search(text: str, pattern: str) -> str:
    """The first match (its first group if it has one), or an empty text."""
    match = re.search(pattern, str(text))
    if match is None:
        return ""
    return match[1] if match.re.groups else match[0]


def split(text: str, separator: str | None = None) -> list[str]:
    """The parts of the text."""
    return str(text).split(separator)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
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
