"""Where in the text every key and value of a document is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from kubexm_spec.yaml.events import MAX_DEPTH, open_events, skip_collection

_PROPERTIES: Final = re.compile(r"(?:[&!][^\s,\[\]{}]*\s+)+")
Range = tuple[int, int]


class Node:
    """A value: its range in the text, and what is inside it."""

    __slots__ = ("end", "entries", "items", "merges", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.entries: dict[str, Entry] | None = None
        self.items: list[Node] | None = None
        self.merges: list[Node] = []

    def child(self, part: str | int) -> Entry | None:
        """What a key or an index leads to, also through `<<`."""
        if isinstance(part, int):
            if self.items is None or not 0 <= part < len(self.items):
                return None
            item = self.items[part]
            return Entry(item.head(), item)
        waiting: list[Node] = [self]  # not recursive: a file can merge what merges what merges ...
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if node.entries is not None and part in node.entries:
                return node.entries[part]
            for merged in reversed(node.merges):
                waiting.extend(reversed(merged.items) if merged.items is not None else [merged])
        return None

    def locate(self, path: tuple[str | int, ...]) -> Entry | None:
        """What a path leads to, or None."""
        entry: Entry | None = Entry(self.head(), self)
        for part in path:
            entry = entry.node.child(part) if entry else None
        return entry

    def head(self) -> Range:
        """What stands for the whole: the first key of a mapping, else the value itself."""
        if self.entries:
            return next(iter(self.entries.values())).key
        return self.start, self.end


class Entry(Struct, frozen=True):
    """A value and the range of its key (for an item of a list: of its head)."""

    key: Range
    node: Node


class _TooDeep(Exception):
    """More collections inside one another than are read."""


class _Open:
    """A collection being read, and the key whose value comes next: its range, and its name (None: not usable)."""

    __slots__ = ("flow", "key", "merging", "name", "node")

    def __init__(self, node: Node, flow: bool) -> None:
        self.node = node
        self.flow = flow
        self.key: Range | None = None
        self.name: str | None = None
        self.merging = False


def compose(text: str) -> list[Node]:
    """The root of each document; of a broken text, as far as it can be read."""
    from ruamel.yaml.error import YAMLError

    composer = _Composer(text)
    with contextlib.suppress(YAMLError, _TooDeep):  # reported when the text is loaded; what came before is of use
        composer.run()
    return composer.roots


class _Composer:
    def __init__(self, text: str) -> None:
        self._text = text
        self.roots: list[Node] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._names: dict[str, str] = {}  # what an anchored scalar says, for aliases used as keys
        self._document: Range = (0, 0)

    def run(self) -> None:
        from ruamel.yaml import events as ev

        next_event = open_events(self._text)
        while True:
            event = next_event()
            kind = type(event)
            if kind is ev.ScalarEvent:
                self._scalar(event)
            elif kind is ev.MappingStartEvent or kind is ev.SequenceStartEvent:
                self._begin(event, kind is ev.MappingStartEvent, next_event)
            elif kind is ev.MappingEndEvent or kind is ev.SequenceEndEvent:
                done = self._stack.pop()
                if done.flow:
                    done.node.end = event.end_mark.index
                self._reach(done.node.end)
            elif kind is ev.AliasEvent:
                self._alias(event)
            elif kind is ev.DocumentStartEvent:
                self._anchors.clear()
                self._names.clear()
                self._document = (event.start_mark.index, event.end_mark.index)
            elif kind is ev.StreamEndEvent:
                return

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].node.entries is not None and self._stack[-1].key is None

    def _scalar(self, event: Any) -> None:
        start, end = self._trim(event.start_mark.index, event.end_mark.index)
        if event.anchor is not None:
            self._names[event.anchor] = event.value
        if self._awaits_key():
            merging = event.value == "<<" and event.implicit[0] and event.ctag is None
            self._set_key((start, end), event.value, merging)
            if event.anchor is not None:
                self._anchors[event.anchor] = Node(start, end)
            return
        if start == end:
            start, end = self._instead_of_nothing(start)
        node = Node(start, end)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._attach(node, end)

    def _begin(self, event: Any, mapping: bool, next_event: Callable[[], Any]) -> None:
        start, end = self._trim(event.start_mark.index, event.end_mark.index)
        if self._awaits_key():
            self._set_key((start, end), None, False)
            if not skip_collection(next_event):
                raise _TooDeep
            return
        if len(self._stack) >= MAX_DEPTH:
            raise _TooDeep
        node = Node(start, end)
        if mapping:
            node.entries = {}
        else:
            node.items = []
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._attach(node, end)
        self._stack.append(_Open(node, bool(event.flow_style)))

    def _alias(self, event: Any) -> None:
        here = (event.start_mark.index, event.end_mark.index)
        if self._awaits_key():
            self._set_key(here, self._names.get(event.anchor), False)
            return
        node = self._anchors.get(event.anchor)
        if node is None or any(frame.node is node for frame in self._stack):
            node = Node(*here)
        self._attach(node, here[1])

    def _set_key(self, key: Range, name: str | None, merging: bool) -> None:
        frame = self._stack[-1]
        frame.key, frame.name, frame.merging = key, name, merging
        self._reach(key[1])

    def _attach(self, node: Node, end: int) -> None:
        self._reach(end)
        if not self._stack:
            self.roots.append(node)
            return
        frame = self._stack[-1]
        if frame.node.items is not None:
            frame.node.items.append(node)
            return
        key, frame.key = frame.key, None
        if frame.merging:
            frame.node.merges.append(node)
        elif frame.node.entries is not None and key is not None and frame.name is not None:
            frame.node.entries.setdefault(frame.name, Entry(key, node))

    def _reach(self, end: int) -> None:
        """A block collection has no end of its own: it ends with the last thing in it."""
        if self._stack and self._stack[-1].node.end < end:
            self._stack[-1].node.end = end

    def _trim(self, start: int, end: int) -> Range:
        """Without anchor and tag before it, and without the line ends after it (block scalars)."""
        text = self._text
        if text[start : start + 1] in ("&", "!") and (properties := _PROPERTIES.match(text, start, end)):
            start = properties.end()
        return start, start + len(text[start:end].rstrip())

    def _instead_of_nothing(self, at: int) -> Range:
        """The range that stands for a value that is not written: its key, its dash, or the start of the document."""
        if not self._stack:
            return self._document
        frame = self._stack[-1]
        if frame.key is not None:
            return frame.key
        dash = self._text.rfind("-", 0, at)
        return (dash, dash + 1) if dash >= 0 else (at, at)
