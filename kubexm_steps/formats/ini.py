"""INI files, as many programs read them: sections of keys and values, with other values in them and all else as it was.

There is no standard, and the libraries for it refuse what is usual elsewhere (keys and sections that are there twice).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubexm_steps.formats.keypaths import EditError, KeyPath, show

_SECTION: Final = re.compile(r"\s*\[([^\]]*(?:\"[^\"]*\"[^\]]*)?)\]\s*(?:[#;].*)?")
_KEY: Final = re.compile(r"(\s*)([^=:\s](?:[^=:]*[^=:\s])?)(?:(\s*[=:][ \t]*)(.*))?")


class _Key(Struct):
    """A key with its value, in one or more lines."""

    name: str
    numbers: list[int]
    """Those of its lines; there may be comments between them."""
    indent: str
    separator: str
    """Empty for a key without a value."""
    value: str
    behind: str = ""
    """A comment behind the value, with the blanks before it."""


class _Section(Struct):
    name: str
    first: int
    """The number of the line behind its head."""
    keys: list[_Key]


def check(path: KeyPath, value: Any) -> None:
    """Raise ValueError if a file of this kind cannot have such a key or such a value."""
    shown = show(path)
    if len(path) > 2 or not all(isinstance(key, str) for key in path):
        raise ValueError(f"{shown}: in an ini file a path is KEY or SECTION.KEY; a name with dots in it is in quotes")
    section, name = ["", *map(str, path)][-2:]
    if "\n" in shown or "\r" in shown or "]" in section or name != name.strip() or re.search(r"[=:]|^[\[#;]", name):
        raise ValueError(f"{shown}: no ini file can have a key of this name")
    if isinstance(value, Mapping | list):
        raise ValueError(f"{shown}: the value is a {'map' if isinstance(value, Mapping) else 'list'}, not one text")
    text = written(value)
    if text is not None and (text != text.strip() or "\n" in text or "\r" in text):
        raise ValueError(f"{shown}: the value must be one line, without blanks at its ends")


def written(value: Any) -> str | None:
    """A value as it is written; None: the key stands alone."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def edited(text: str, values: Mapping[KeyPath, Any], removed: Sequence[KeyPath], *, inline: bool = False) -> str:
    """The text with these values set and removed; raises EditError.

    ``inline``: what follows a blank and `;` or `#` is a comment, not a part of the value.
    """
    lines = text.split("\n")
    ended = not lines[-1]
    if ended:
        lines.pop()
    before = lines[-1:]
    # It is a part of the line, and stays with it.
    cr = "\r" if "\r\n" in text else ""
    for path in removed:
        _remove(lines, path, inline)
    for path, value in values.items():
        _set(lines, path, written(value), inline, cr)
    return "\n".join(lines) + ("\n" if lines and (ended or lines[-1:] != before) else "")


def _parsed(lines: Sequence[str], inline: bool) -> list[_Section]:
    sections = [_Section("", 0, [])]
    open_key: _Key | None = None
    for number, whole in enumerate(lines):
        line = whole.removesuffix("\r")
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            if not stripped:
                open_key = None
            continue
        indent = line[: len(line) - len(line.lstrip())]
        if open_key is not None and len(indent.expandtabs()) > len(open_key.indent.expandtabs()):
            open_key.numbers.append(number)
            open_key.value += f"\n{stripped}"
            continue
        if stripped[0] == "[":
            head = _SECTION.fullmatch(line)
            if head is None:
                raise EditError("the head of a section is not closed with `]`", number + 1)
            sections.append(_Section(head[1].strip(), number + 1, []))
            open_key = None
            continue
        found = _KEY.fullmatch(line)
        if found is None:
            raise EditError("it is neither a comment nor a section nor a key", number + 1)
        value, behind = _apart((found[4] or "").rstrip()) if inline else ((found[4] or "").rstrip(), "")
        open_key = _Key(found[2], [number], found[1], found[3] or "", value, behind)
        sections[-1].keys.append(open_key)
    return sections


def _apart(value: str) -> tuple[str, str]:
    """A value, and the comment behind it with the blanks before that."""
    quote = ""
    for number, char in enumerate(value):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in ";#" and number and value[number - 1].isspace():
            kept = value[:number].rstrip()
            return kept, value[len(kept) :]
    return value, ""


def _split(path: KeyPath) -> tuple[str, str]:
    section, name = ["", *map(str, path)][-2:]
    return section, name


def _remove(lines: list[str], path: KeyPath, inline: bool) -> None:
    wanted, name = _split(path)
    found = [
        key for section in _parsed(lines, inline) if section.name == wanted for key in section.keys if key.name == name
    ]
    for number in sorted((number for key in found for number in key.numbers), reverse=True):
        del lines[number]


def _set(lines: list[str], path: KeyPath, value: str | None, inline: bool, cr: str) -> None:
    wanted, name = _split(path)
    sections = _parsed(lines, inline)
    found = [section for section in sections if section.name == wanted]
    keys = [key for section in found for key in section.keys if key.name == name]
    if keys:
        # Programs take the last one.
        key = keys[-1]
        if (key.value if key.separator else None) != value:
            separator = key.separator or _separator(found, sections)
            lines[key.numbers[0]] = _line(key.indent, key.name, separator, value) + key.behind + cr
            for number in reversed(key.numbers[1:]):
                del lines[number]
        return
    if not found:
        if lines and lines[-1].strip():
            lines.append(cr)
        lines += [f"[{wanted}]{cr}", _line(_indent(sections), name, _separator([], sections), value) + cr]
        return
    section = found[-1]
    at = section.keys[-1].numbers[-1] + 1 if section.keys else section.first
    indent = section.keys[-1].indent if section.keys else _indent(sections) if wanted else ""
    new = [_line(indent, name, _separator([section], sections), value) + cr]
    if not wanted and not section.keys:
        # Before the first section, behind the comments at the beginning.
        at = next((other.first - 1 for other in sections[1:]), len(lines))
        new += [cr] if at < len(lines) else []
    lines[at:at] = new


def _line(indent: str, name: str, separator: str, value: str | None) -> str:
    return indent + name if value is None else f"{indent}{name}{separator}{value}".rstrip()


def _separator(near: Sequence[_Section], sections: Sequence[_Section]) -> str:
    for section in (*reversed(near), *sections):
        for key in section.keys:
            if key.separator:
                blank = " " if key.separator[0] in " \t" else ""
                sign = key.separator.strip()
                return f"{blank}{sign}{' ' if blank or sign == ':' else ''}"
    return " = "


def _indent(sections: Sequence[_Section]) -> str:
    return next((section.keys[0].indent for section in sections[1:] if section.keys), "")
