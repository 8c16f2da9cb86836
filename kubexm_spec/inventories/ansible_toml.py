"""Reads TOML files of ansible's, with the places of what they say."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.inventories.converted import Locate, TextSource
from kubexm_spec.yaml.positions import Range
from kubexm_spec.yaml.source import Path

_KEY: Final = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEYS: Final = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_LINE: Final = re.compile(rf"^[ \t]*(?:\[[ \t]*(?P<table>{_KEYS})[ \t]*\]|(?P<key>{_KEYS})[ \t]*=)", re.MULTILINE)
_AT: Final = re.compile(r"at line (\d+), column (\d+)")


def read_toml(source: TextSource) -> Mapping[str, Any]:
    """The data of a file; raises SpecError, without a word of the file, since it may be any file."""
    try:
        found: Mapping[str, Any] = _plain(tomllib.loads(source.text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = _AT.search(str(error))
        offset = len(source.text)
        if at:
            offset = sum(map(len, source.text.splitlines(keepends=True)[: int(at[1]) - 1])) + int(at[2]) - 1
        finding = Diagnostic("toml-syntax", "this is not TOML", source.span_of((offset, offset + 1)))
        raise SpecError([finding]) from None
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    is_time = isinstance(value, datetime.date | datetime.time)
    return value.isoformat() if is_time else value


def in_toml(text: str) -> Locate:
    """Origins are paths in the data; what is inside a value is at its key."""
    ranges: dict[Path, Range] = {}

    def locate(origin: Path, rest: Path, on_key: bool) -> Range:
        if not ranges:
            ranges.update({(): (0, 0), **_ranges(text)})
        path = (*origin, *rest)
        return next(ranges[path[:length]] for length in range(len(path), -1, -1) if path[:length] in ranges)

    return locate


def _ranges(text: str) -> dict[Path, Range]:
    ranges: dict[Path, Range] = {}
    table: Path = ()
    for match in _LINE.finditer(text):
        kind = "table" if match["table"] is not None else "key"
        path: Path = tuple(key.strip("\"'") for key in re.findall(_KEY, match[kind]))
        if kind == "table":
            table = path
        else:
            path = (*table, *path)
        for length in range(1, len(path) + 1):
            ranges.setdefault(path[:length], match.span(kind))
    return ranges
