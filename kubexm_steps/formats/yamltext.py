"""YAML with other values in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from kubexm_spec.yaml.events import open_events
from kubexm_spec.yaml.load import resolve_plain
from kubexm_steps.formats.keypaths import EditError, Opaque
from kubexm_steps.formats.spans import MAX_DEPTH, Entry, Node, SpanText

# Texts that need no quotes, wherever they are. Many programs read YAML 1.1, where some words are not texts.
_BARE: Final = re.compile(
    r"[A-Za-z_/][\w./@%+=~-]*(?: [\w./@%+=~(][\w./@%+=~()-]*)*"
    r"|[0-9]+[A-DF-NP-WYZa-df-np-wyz][A-Za-z]*",  # such as 200Mi
    re.ASCII,
)
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNPRINTED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class _Body(Struct):
    """A value as it is written behind a key: ``head`` on the same line, and more lines."""

    head: str
    lines: list[str] = []


class YamlText(SpanText):
    """YAML, with its comments, quotes and indentation."""

    def parse(self, text: str) -> Node:
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        try:
            found = _tree(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            reason = " ".join((error.problem or error.context or "it cannot be read").split())
            raise EditError(reason, None if mark is None else mark.line + 1) from error
        except (YAMLError, ValueError) as error:
            raise EditError(" ".join(str(error).split())) from error
        if found is None or (found.kind == "value" and found.value is None and found.start == found.end):
            return Node("map", len(text), len(text))
        return found

    # In lines

    def insert(self, text: str, node: Node, name: str, value: Any) -> str:
        if _is_bare(node, text):
            made = f"{text[node.start : node.end]}, {self.item(name, value, node, text)}"
            return f"{text[: node.start]}{{{made}}}{text[node.end :]}"
        if node.flow:
            return super().insert(text, node, name, value)
        at = _line_end(text, node.end)
        return f"{text[:at]}\n{self._entry(text, node, name, value)}{text[at:]}"

    def fill(self, text: str, node: Node, name: str, value: Any) -> str:
        if node.start < node.end:
            return text[: node.start + 1] + self.item(name, value, node, text) + text[node.end - 1 :]
        # There are comments at most.
        start = text if text.endswith("\n") or not text else f"{text}\n"
        return f"{start}{self._entry(text, node, name, value)}\n"

    def replace(self, text: str, node: Node, entry: Entry, value: Any) -> str:
        old = entry.node
        if node.flow:
            return super().replace(text, node, entry, value)
        if node.kind == "list":
            column = old.start - _line_start(text, old.start)
            made = self._compact(text, value, column)
            return text[: old.start] + (" " if text[old.start - 1] == "-" else "") + made + text[old.end :]
        colon = _colon(text, entry)
        body = self._body(text, value, node.column, old.style)
        more = "".join(f"\n{line}" for line in body.lines)
        gap, head = text[colon : old.start], body.head
        if "\n" not in gap:
            end = _line_end(text, old.end)
            head = f"{gap or ' '}{head}" if head else ""
            return text[:colon] + head + text[old.end : end] + more + text[end:]
        # It begins on a line of its own.
        first, last = _line_start(text, old.start), _line_end(text, old.end)
        head = f" {head}" if head else ""
        return text[:colon] + head + text[colon : first - 1] + more + text[last:]

    def remove(self, text: str, above: Sequence[tuple[Node, Entry]]) -> str:
        node, entry = above[-1]
        if _is_bare(node, text):
            return f"{text[: node.start]}{{}}{text[node.end :]}"
        if node.flow:
            return super().remove(text, above)
        at, end = node.entries.index(entry), _line_end(text, entry.node.end)
        if len(node.entries) == 1 and len(above) > 1:
            return self.replace(text, *above[-2], {})
        start = _line_start(text, entry.start)
        if text[start : entry.start].strip():
            # The first key behind a dash: the next one takes its place, unless there are comments between them.
            if at or len(node.entries) == 1:
                raise EditError("the map is written in a way that cannot be changed")
            following = node.entries[1].start
            if "#" in text[entry.node.end : following]:
                return text[: entry.start].rstrip(" ") + text[end:]
            return text[: entry.start] + text[following:]
        return text[:start] + text[end + 1 :]

    def _entry(self, text: str, node: Node, name: str, value: Any) -> str:
        """The lines of a new entry of a map or list, without the end of the last one."""
        indent = " " * node.column
        if not name and node.kind == "list":
            return f"{indent}- {self._compact(text, value, node.column + 2)}"
        body = self._body(text, value, node.column)
        head = f" {body.head}" if body.head else ""
        return "\n".join([f"{indent}{_key(name)}:{head}", *body.lines])

    def _body(self, text: str, value: Any, column: int, style: str = "") -> _Body:
        """A value behind a key that is at a column."""
        step, offset = _indentation(self.tree(text))
        if isinstance(value, dict | list) and value:
            inner = column + (step if isinstance(value, dict) else offset)
            return _Body("", list(self._lines(value, inner, step, offset)))
        if isinstance(value, str) and _is_block(value):
            tail = "" if not value.endswith("\n\n") else "+"
            tail = tail if value.endswith("\n") else "-"
            lines = value.removesuffix("\n").split("\n")
            return _Body(f"|{tail}", [" " * (column + step) + line if line else "" for line in lines])
        return _Body(_scalar(value, style))

    def _lines(self, value: Any, column: int, step: int, offset: int) -> Iterator[str]:
        indent = " " * column
        if isinstance(value, list) and value:
            for item in value:
                first, *more = self._lines(item, column + 2, step, offset)
                yield from (f"{indent}- {first.lstrip(' ')}", *more)
        elif isinstance(value, dict) and value:
            for name, item in value.items():
                if isinstance(item, dict | list) and item:
                    yield f"{indent}{_key(name)}:"
                    yield from self._lines(item, column + (step if isinstance(item, dict) else offset), step, offset)
                else:
                    yield f"{indent}{_key(name)}: {_flow(item)}"
        else:
            yield indent + _flow(value)

    def _compact(self, text: str, value: Any, column: int) -> str:
        """A value behind a dash."""
        if not isinstance(value, dict | list) or not value:
            return _scalar(value, "")
        return "\n".join(self._lines(value, column, *_indentation(self.tree(text)))).lstrip(" ")

    # In braces and brackets

    def inline(self, value: Any, near: Node, text: str) -> str:
        return _scalar(value, near.style) if isinstance(value, str) else _flow(value)

    def item(self, name: str, value: Any, near: Node, text: str) -> str:
        return f"{_key(name)}: {_flow(value)}" if near.kind == "map" else _flow(value)


def _is_bare(node: Node, text: str) -> bool:
    """Whether it is a map in brackets without braces of its own: ``[a: 1]``."""
    return node.flow and node.kind == "map" and node.start < len(text) and text[node.start] != "{"


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _colon(text: str, entry: Entry) -> int:
    """The place behind the colon of a key."""
    found = re.compile(r"\s*:").match(text, entry.end)
    if found is None:
        raise EditError(f"the key {entry.name!r} is written in a way that cannot be changed")
    return found.end()


def _scalar(value: Any, style: str) -> str:
    """A single value, a text in the quotes of another one."""
    if isinstance(value, str) and style == "'" and not _UNPRINTED.search(value) and "\n" not in value:
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and style == '"' else _flow(value)


def _key(name: str) -> str:
    return _flow(name)


def _flow(value: Any) -> str:
    """A value on one line."""
    match value:
        case str():
            if _BARE.fullmatch(value) and value.lower() not in _WORDS:
                return value
            if _UNPRINTED.search(value) or "\n" in value or "'" in value or "\t" in value:
                return _UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
            return f"'{value}'"
        case dict():
            return "{" + ", ".join(f"{_key(name)}: {_flow(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flow, value)) + "]"
        case float() if value != value or value in (float("inf"), -float("inf")):
            return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    return json.dumps(value)


def _is_block(value: str) -> bool:
    """Whether a text can be written in lines of its own."""
    lines = value.split("\n")
    fine = value[:1] not in ("", " ", "\n", "\t") and not _UNPRINTED.search(value)
    return len(lines) > 1 and fine and not any(line.strip() == "" != line for line in lines)


def _indentation(root: Node) -> tuple[int, int]:
    """By how much a map, and a list, is indented below the key that it is the value of: as the first ones are."""
    found: dict[str, int] = {}
    todo = [root]
    while todo and len(found) < 2:
        node = todo.pop()
        for entry in node.entries:
            inner = entry.node
            if node.kind == "map" and inner.entries and not node.flow and not inner.flow:
                found.setdefault(inner.kind, inner.column - node.column)
        todo += [entry.node for entry in reversed(node.entries)]
    return max(found.get("map", 2), 1), max(found.get("list", 2), 0)


def _tree(text: str) -> Node | None:
    """The tree of the only document; None if there is none."""
    from ruamel.yaml import events as ev

    next_event = open_events(text)
    root: Node | None = None
    stack: list[Node] = []
    keys: list[Entry | None] = []
    names: list[set[str]] = []
    documents = 0
    while True:
        event = next_event()
        kind = type(event)
        start, end = event.start_mark.index, event.end_mark.index
        if kind is ev.StreamEndEvent:
            return root
        if kind is ev.DocumentStartEvent:
            documents += 1
            if documents > 1:
                said = "it has several documents, and only a file with one can be changed"
                raise EditError(said, event.start_mark.line + 1)
            continue
        if kind is ev.MappingEndEvent or kind is ev.SequenceEndEvent:
            done = stack.pop()
            keys.pop()
            names.pop()
            if done.flow and not _is_bare(done, text):
                done.end = end
            elif done.entries:
                done.end = done.entries[-1].node.end
            continue
        node: Node
        if kind is ev.ScalarEvent:
            node = _value(event, text, start, end)
        elif kind is ev.AliasEvent:
            node = Node("value", start, end, Opaque(f"an alias (*{event.anchor})"))
        elif kind is ev.MappingStartEvent or kind is ev.SequenceStartEvent:
            if len(stack) >= MAX_DEPTH:
                raise EditError("it is nested too deeply", event.start_mark.line + 1)
            # What is before it on the line, an anchor or a tag, is not a part of it.
            flow = bool(event.flow_style)
            begin = end - 1 if flow and text[start:end] else _first(text, start, end, event)
            column = begin - _line_start(text, begin)
            node = Node("map" if kind is ev.MappingStartEvent else "list", begin, end, flow=flow, column=column)
            node.shared = f"&{event.anchor}" if event.anchor is not None else ""
        else:
            continue
        if not stack:
            root = node
        elif stack[-1].kind == "list":
            stack[-1].entries.append(Entry(node, node.start, node.start))
        elif (key := keys[-1]) is None:
            if node.kind != "value" or kind is ev.AliasEvent:
                raise EditError("a key is a map, a list or an alias", event.start_mark.line + 1)
            if event.value in names[-1]:
                raise EditError(f"the key {event.value!r} is in one map twice", event.start_mark.line + 1)
            names[-1].add(event.value)
            keys[-1] = Entry(node, start, end, event.value)
        else:
            key.node = node
            stack[-1].entries.append(key)
            keys[-1] = None
        if node.kind != "value":
            stack.append(node)
            keys.append(None)
            names.append(set())


def _first(text: str, start: int, end: int, event: Any) -> int:
    """Where a map or list in lines begins: behind its anchor and its tag."""
    if event.anchor is None and event.ctag is None:
        return start
    found = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*").match(text, end)
    return found.end() if found else end


def _value(event: Any, text: str, start: int, end: int) -> Node:
    style = event.style or ""
    value: Any = event.value
    if event.ctag is not None:
        value = Opaque(f"a value with a tag ({event.tag})", value)
    elif event.implicit[0] and not style:
        value = resolve_plain(value)
    if style in ("|", ">"):
        end = start + len(text[start:end].rstrip())
    shared = f"&{event.anchor}" if event.anchor is not None else ""
    return Node("value", start, end, value, style=style, shared=shared)
