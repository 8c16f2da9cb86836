"""Texts of data as trees that know where each value is written, so that one is changed and all else stays as it is."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, field

from kubexm_steps.formats.keypaths import EditError, KeyPath, check_kind, drop, put, same, show, too_far

MAX_DEPTH: Final = 100
"""How many maps and lists may be inside one another."""
_BLANK: Final = re.compile(r"\s*$")


class Node(Struct):
    """A value, and where it is in the text: from ``start`` on, before ``end``."""

    kind: Literal["map", "list", "value"]
    start: int
    end: int
    value: Any = None
    """Of a single value."""
    flow: bool = True
    """Whether a map or list is written in braces or brackets."""
    entries: list[Entry] = field(default_factory=list)
    column: int = 0
    """Of a map or list that is written in lines."""
    style: str = ""
    """The quotes of a text."""
    shared: str = ""
    """The anchor by which others refer to it."""

    def data(self) -> Any:
        """It as plain data."""
        if self.kind == "map":
            return {entry.name: entry.node.data() for entry in self.entries}
        return [entry.node.data() for entry in self.entries] if self.kind == "list" else self.value


class Entry(Struct):
    """A key with its value, or an item of a list; ``start`` and ``end`` are those of the key."""

    node: Node
    start: int
    end: int
    name: str = ""


class DataText(ABC):
    """A format of texts that hold data."""

    def edited(self, text: str, values: Mapping[KeyPath, Any], removed: Sequence[KeyPath]) -> str:
        """The text with these values set and removed; raises EditError.

        The new text is read again: what it means differs in these values alone.
        """
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        crlf = "\r\n" in text and "\n" not in text.replace("\r\n", "")
        text = text.removeprefix(mark).replace("\r\n", "\n") if crlf else text.removeprefix(mark)
        try:
            before = self.read(text)
            wanted = copy.deepcopy(before)
            for path in removed:
                drop(wanted, path)
            for path, value in values.items():
                put(wanted, path, value)
            if not same(before, wanted):
                text = self.written(text, values, removed)
                if not same(self.read(text), wanted):
                    raise EditError("it is written in a way that cannot be changed: write it as a whole, by `template`")
        except RecursionError:
            raise EditError("it is nested too deeply") from None
        return mark + (text.replace("\n", "\r\n") if crlf else text)

    @abstractmethod
    def read(self, text: str) -> Any:
        """The plain data in a text; raises EditError with the line if there is none."""

    @abstractmethod
    def written(self, text: str, values: Mapping[KeyPath, Any], removed: Sequence[KeyPath]) -> str:
        """The text with these values set and removed."""


class SpanText(DataText):
    """A format that is changed where its values are written."""

    def __init__(self) -> None:
        self._read: tuple[str, Node] | None = None

    def tree(self, text: str) -> Node:
        """The tree of a text; that of the last one is kept."""
        if self._read is None or self._read[0] != text:
            self._read = (text, self.parse(text))
        return self._read[1]

    @abstractmethod
    def parse(self, text: str) -> Node:
        """The tree of a text; an empty map that is written nowhere for an empty one."""

    @abstractmethod
    def inline(self, value: Any, near: Node, text: str) -> str:
        """A value as it is written in braces or brackets, or in the place of another one."""

    @abstractmethod
    def item(self, name: str, value: Any, near: Node, text: str) -> str:
        """A key with its value as it is written in braces; without a name an item of a list."""

    @abstractmethod
    def fill(self, text: str, node: Node, name: str, value: Any) -> str:
        """The text with a first entry in an empty map or list."""

    def read(self, text: str) -> Any:
        return self.tree(text).data()

    def written(self, text: str, values: Mapping[KeyPath, Any], removed: Sequence[KeyPath]) -> str:
        for path in removed:
            text = self._without(text, path)
        for path, value in values.items():
            text = self._with(text, path, value)
        return text

    def _with(self, text: str, path: KeyPath, value: Any) -> str:
        node = self.tree(text)
        for number, key in enumerate(path):
            entry = _entry(node, key, path[:number])
            inner = path[number + 1 :]
            if entry is None:
                _refuse_shared(self.tree(text), path[:number])
                if isinstance(key, int) and key > len(node.entries):
                    raise too_far(path[:number], len(node.entries))
                made, name = _nested(inner, value), "" if isinstance(key, int) else key
                return self.insert(text, node, name, made) if node.entries else self.fill(text, node, name, made)
            old = entry.node
            if not inner and same(old.data(), value):
                return text
            if not inner or (old.kind == "value" and old.value is None):
                _refuse_shared(self.tree(text), path[: number + 1])
                return self.replace(text, node, entry, _nested(inner, value))
            node = old
        return text

    def _without(self, text: str, path: KeyPath) -> str:
        node, above = self.tree(text), list[tuple[Node, Entry]]()
        for number, key in enumerate(path):
            if node.kind == "value" and node.value is None:
                return text
            entry = _entry(node, key, path[:number])
            if entry is None:
                return text
            above.append((node, entry))
            node = entry.node
        _refuse_shared(self.tree(text), path[:-1])
        return self.remove(text, above)

    def replace(self, text: str, node: Node, entry: Entry, value: Any) -> str:
        """The text with another value in an entry."""
        return text[: entry.node.start] + self.inline(value, entry.node, text) + text[entry.node.end :]

    def insert(self, text: str, node: Node, name: str, value: Any) -> str:
        """The text with one more entry behind the others."""
        last = node.entries[-1]
        end = last.node.end
        found = _BLANK.search(text, 0, last.start)
        blank = found[0] if found else ""
        if not blank and len(node.entries) == 1:
            blank = self.gap(text)
        made = self.item(name, value, node, text)
        comma = re.compile(r"\s*,").match(text, end)
        if comma:
            return text[: comma.end()] + blank + made + text[comma.end() - 1 :]
        return f"{text[:end]},{blank}{made}{text[end:]}"

    def gap(self, text: str) -> str:
        """What is behind a comma."""
        return " "

    def remove(self, text: str, above: Sequence[tuple[Node, Entry]]) -> str:
        """The text without an entry; ``above`` are those on the way to it, and it is the last one."""
        node, entry = above[-1]
        at = node.entries.index(entry)
        if len(node.entries) == 1:
            return text[: node.start + 1] + text[node.end - 1 :]
        if at:
            return text[: node.entries[at - 1].node.end] + text[entry.node.end :]
        return text[: entry.start] + text[node.entries[1].start :]


def _entry(node: Node, key: str | int, above: KeyPath) -> Entry | None:
    check_kind({"map": {}, "list": []}.get(node.kind, node.value), "list" if isinstance(key, int) else "map", above)
    if isinstance(key, int):
        return node.entries[key] if key < len(node.entries) else None
    return next((entry for entry in node.entries if entry.name == key), None)


def _refuse_shared(root: Node, path: KeyPath) -> None:
    """Raise EditError if anything on the way to an entry, or that entry, also stands where an alias refers to it."""
    node = root
    for number, key in enumerate(path):
        entry = _entry(node, key, path[:number])
        if entry is None:
            return
        node = entry.node
        if node.shared:
            raise EditError(f"{show(path[: number + 1])} is used in several places ({node.shared})")


def _nested(path: KeyPath, value: Any) -> Any:
    """A value inside maps and lists of nothing else."""
    for number in reversed(range(len(path))):
        key = path[number]
        if isinstance(key, int) and key:
            raise too_far(path[:number], 0)
        value = {key: value} if isinstance(key, str) else [value]
    return value
