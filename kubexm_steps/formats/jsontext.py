"""JSON with other values in it."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

from kubexm_steps.formats.keypaths import EditError
from kubexm_steps.formats.spans import MAX_DEPTH, Entry, Node, SpanText

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_WORD: Final = re.compile(r"[-+.\w]+")


class JsonText(SpanText):
    """JSON, with its indentation."""

    def parse(self, text: str) -> Node:
        if not text.strip():
            return Node("map", len(text), len(text))
        try:
            json.loads(text, object_pairs_hook=_unique, parse_constant=_no_value)
        except json.JSONDecodeError as error:
            raise EditError(f"{error.msg[:1].lower()}{error.msg[1:]}, column {error.colno}", error.lineno) from error
        except ValueError as error:
            raise EditError(str(error)) from error
        return _scan(text, _next(text, 0), 0)

    def inline(self, value: Any, near: Node, text: str) -> str:
        start = text.rfind("\n", 0, near.start) + 1
        indent = _SPACE.match(text, start, near.start)
        return self._shown(value, text, indent[0] if indent else "", "\n" in text.strip())

    def item(self, name: str, value: Any, near: Node, text: str) -> str:
        last = near.entries[-1] if near.entries else None
        lines = last is not None and "\n" in text[near.start : last.start]
        indent = ""
        if lines and last is not None:
            indent = text[text.rfind("\n", 0, last.start) + 1 : last.start]
            indent = indent if not indent.strip() else ""
        return self._item(name, value, text, indent, lines)

    def _item(self, name: str, value: Any, text: str, indent: str, lines: bool) -> str:
        shown = self._shown(value, text, indent, lines)
        return f"{_text(name)}:{self.gap(text)}{shown}" if name else shown

    def _shown(self, value: Any, text: str, indent: str, lines: bool) -> str:
        """A value, on several lines where its place is."""
        gap = self.gap(text)
        try:
            made = json.dumps(
                value, ensure_ascii=False, allow_nan=False, indent=self._step(text) if lines else None,
                separators=("," if lines else f",{gap}", f":{gap}"),
            )  # fmt: skip
        except (TypeError, ValueError) as error:
            raise EditError(f"a value cannot be written: {error}") from error
        return made.replace("\n", f"\n{indent}")

    def fill(self, text: str, node: Node, name: str, value: Any) -> str:
        whole = node.start == node.end
        if not whole and "\n" not in text.strip() and text.strip() not in ("{}", "[]"):
            return text[: node.start + 1] + self._item(name, value, text, "", False) + text[node.end - 1 :]
        start = text.rfind("\n", 0, node.start) + 1
        found = _SPACE.match(text, start, node.start)
        outer = found[0] if found and not whole else ""
        step = self._step(text)
        inner = outer + (" " * step if isinstance(step, int) else step)
        ends = "{}" if whole else text[node.start] + text[node.end - 1]
        made = f"{ends[0]}\n{inner}{self._item(name, value, text, inner, True)}\n{outer}{ends[1]}"
        return made + "\n" if whole else text[: node.start] + made + text[node.end :]

    def gap(self, text: str) -> str:
        return "" if re.search(r'"\s*:\S', text) and not re.search(r'"\s*: ', text) else " "

    def _step(self, text: str) -> str | int:
        found = re.search(r"\n([ \t]+)\S", text)
        return found[1] if found else 2


def _text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _next(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _scan(text: str, at: int, depth: int) -> Node:
    """The value that begins at a place of a text that is known to be JSON."""
    if depth > MAX_DEPTH:
        raise EditError("it is nested too deeply")
    first = text[at]
    if first == '"':
        value, end = scanstring(text, at + 1)
        return Node("value", at, end, value)
    if first not in "{[":
        found = _WORD.match(text, at)
        assert found is not None
        return Node("value", at, found.end(), json.loads(found[0]))
    node = Node("map" if first == "{" else "list", at, at)
    at = _next(text, at + 1)
    while text[at] not in "}]":
        start, end, name = at, at, ""
        if first == "{":
            name, end = scanstring(text, at + 1)
            at = _next(text, _next(text, end) + 1)
        inner = _scan(text, at, depth + 1)
        node.entries.append(Entry(inner, start, end, name))
        at = _next(text, inner.end)
        if text[at] == ",":
            at = _next(text, at + 1)
    node.end = at + 1
    return node


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise EditError(f"the key {name!r} is in one map twice")
        found[name] = value
    return found


def _no_value(word: str) -> Any:
    raise EditError(f"{word} is no value of JSON")
