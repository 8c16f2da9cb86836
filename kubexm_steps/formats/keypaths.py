"""Paths of keys (``server.ports[0]``) in data of maps and lists: read, looked up, set and removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

KeyPath: TypeAlias = tuple[str | int, ...]
"""Names of keys, and numbers of items of lists."""

_NAME: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.\[\]"]+)')
_ITEM: Final = re.compile(r"\[(\d{1,9})\]")


class EditError(Exception):
    """A text cannot be read, or what should change in it cannot be."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class Opaque(Struct, frozen=True):
    """A value that only means something where it is: an alias, or one with a tag of its program."""

    noun: str
    text: str = ""


def parse(text: str) -> KeyPath:
    """The path that a text stands for; raises ValueError with what is wrong.

    Names are separated by dots, and one with a dot or a bracket in it is in double quotes; ``[0]`` is the first item of
    a list.
    """
    path: list[str | int] = []
    at = 0
    while at < len(text) or not path:
        if item := _ITEM.match(text, at):
            path.append(int(item[1]))
            at = item.end()
            continue
        if path and text.startswith(".", at):
            at += 1
        elif path:
            raise ValueError(f"{text!r} is not a path of keys: a dot or `[NUMBER]` belongs at position {at + 1}")
        name = _NAME.match(text, at)
        if name is None:
            raise ValueError(
                f"{text!r} is not a path of keys: a name belongs at position {at + 1}; write one with dots or "
                'brackets in it in double quotes, such as a."b.c"[0]'
            )
        path.append(re.sub(r"\\(.)", r"\1", name[1], flags=re.DOTALL) if name[2] is None else name[2])
        at = name.end()
    return tuple(path)


def show(path: Sequence[str | int]) -> str:
    """A path as ``parse`` reads it."""
    shown = ""
    for key in path:
        if isinstance(key, int):
            shown += f"[{key}]"
            continue
        plain = _NAME.fullmatch(key)
        quoted = key if plain and plain[2] is not None else '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'
        shown += f".{quoted}" if shown else quoted
    return shown


def kind_of(value: object) -> str:
    """What a value is, for a message."""
    match value:
        case None:
            return "empty"
        case Opaque():
            return value.noun
        case bool():
            return "true or false"
        case Mapping():
            return "a map"
        case str():
            return "a text"
        case Sequence():
            return "a list"
        case int() | float():
            return "a number"
    return "a value"


def _has(node: Any, key: str | int, above: KeyPath) -> bool:
    """Whether there is something under a key; a node of another kind is an error."""
    if isinstance(key, int):
        check_kind(node, "list", above)
        return key < len(node)
    check_kind(node, "map", above)
    return key in node


def check_kind(value: object, kind: str, path: KeyPath) -> None:
    """Raise EditError unless there is a map, or a list, at a path."""
    found = kind_of(value)
    if found != f"a {kind}":
        raise EditError(f"{show(path) or 'the file'} is {found}, not a {kind}")


def put(
    root: Any,
    path: KeyPath,
    value: Any,
    new_map: Callable[[Any], Any] = lambda above: {},
    new_list: Callable[[Any], Any] = lambda above: [],
) -> None:
    """Set a value, unless it is there already; maps and lists on the way are made, inside others."""
    node = root
    for number, key in enumerate(path):
        there = _has(node, key, path[:number])
        old = node[key] if there else None
        if number < len(path) - 1:
            if old is None:
                old = new_list(node) if isinstance(path[number + 1], int) else new_map(node)
                _assign(node, key, old, path[:number])
                old = node[key]
            node = old
        elif not there or not same(plain(old), value):
            _assign(node, key, value, path[:number])


def _assign(node: Any, key: Any, value: Any, above: KeyPath) -> None:
    if isinstance(key, int) and key == len(node):
        node.append(value)
    elif isinstance(key, int) and key > len(node):
        raise too_far(above, len(node))
    else:
        node[key] = value


def too_far(path: KeyPath, count: int) -> EditError:
    """The error of an item far behind the last one of a list."""
    return EditError(f"{show(path) or 'the file'} has {count} items: the next one is [{count}]")


def drop(root: Any, path: KeyPath) -> None:
    """Remove a value, if there is one."""
    node = root
    for number, key in enumerate(path):
        if node is None or not _has(node, key, path[:number]):
            return
        if number < len(path) - 1:
            node = node[key]
        else:
            del node[key]


def same(one: Any, other: Any) -> bool:
    """Whether plain data is the same: ``1`` is ``1.0``, but not ``true`` or ``"1"``."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, float) and one != one:
        return other != other
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return (numbers or type(one) is type(other)) and bool(one == other)


def plain(value: Any) -> Any:
    """Data as plain dicts, lists, texts, numbers and true or false; whatever else stays as it is."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if unwrap := getattr(value, "unwrap", None):
        value = unwrap()
    return next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), value)
