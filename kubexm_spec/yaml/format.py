"""Formats the text of a spec and proves that nothing but its looks changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.yaml.layout import lay_out
from kubexm_spec.yaml.lines import LineTable
from kubexm_spec.yaml.load import load_documents
from kubexm_spec.yaml.positions import Node, compose
from kubexm_spec.yaml.tokens import comments

_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "params", "vars", "resources", "inventory")
_STEP: Final = ("name", "type", "when")
_STEP_LISTS: Final = ("steps", "pre", "post", "onFailure", "always")
_STEP_LAST: Final = ("with",)
_RISKY: Final = re.compile(
    r"[|>][0-9]?\+|[|>][0-9+-]*\s+#"
)  # blocks that own the lines after them; comments after a mark


def order_keys(text: str) -> str:
    """The text with keys in their usual order; it must be laid out already.

    A mapping with a comment, an empty line or a merge in it stays as it is.
    """
    todo = [(node, is_step) for root in compose(text) for node, is_step in _mappings(root) if _order(node, is_step)]
    if not todo:
        return text
    table = LineTable(text)
    lines = list(table.lines)
    commented = {table.position(offset)[0] - 1 for offset, _ in comments(text)}
    for node, is_step in todo:
        _reorder(node, is_step, lines, commented, table)
    return "".join(f"{line}\n" for line in lines)


def _mappings(root: Node) -> Iterator[tuple[Node, bool]]:
    """Steps from the inside out, then the document: an inner mapping is a part of one entry of an outer one."""
    steps = list[Node]()
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        for name, entry in (node.entries or {}).items():
            if name in _STEP_LISTS and entry.node.items is not None:
                steps += [item for item in entry.node.items if item.entries and "type" in item.entries]
        inner = [entry.node for entry in (node.entries or {}).values()] + (node.items or [])
        for child in inner:
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)
    for step in sorted(steps, key=lambda step: step.end - step.start):
        yield step, True
    yield root, False


def _order(node: Node, is_step: bool) -> list[str]:
    """The names of the keys in their usual order, or nothing if they are in it already."""
    names = list(node.entries or ())
    wanted = sorted(names, key=lambda name: _rank(name, is_step))
    return wanted if wanted != names and not node.merges else []


def _reorder(node: Node, is_step: bool, lines: list[str], commented: set[int], table: LineTable) -> None:
    if not node.entries:
        return
    names, wanted = list(node.entries), _order(node, is_step)
    places = [table.position(entry.key[0]) for entry in node.entries.values()]
    first, column = places[0][0] - 1, places[0][1] - 1
    end = table.position(node.end - 1)[0]
    starts = [line - 1 for line, _ in places]
    if any(place[1] - 1 != column for place in places) or len(set(starts)) != len(starts):
        return
    if re.fullmatch(r"[ -]*", lines[first][:column]) is None or any(lines[s][:column].strip() for s in starts[1:]):
        return
    parts = [lines[start:stop] for start, stop in zip(starts, [*starts[1:], end], strict=True)]
    if commented.intersection(range(first, end)) or any(not part[-1].strip() for part in parts):
        return
    if any(_RISKY.search(line) for line in lines[first:end]):
        return
    prefix = lines[first][:column]
    by_name = {name: [part[0][column:], *part[1:]] for name, part in zip(names, parts, strict=True)}
    new = list[str]()
    for name in wanted:
        head, *rest = by_name[name]
        new += [(" " * column if new else prefix) + head, *rest]
    lines[first:end] = new


def _rank(name: str, is_step: bool) -> int:
    first = _STEP if is_step else _DOCUMENT
    if name in first:
        return first.index(name)
    return len(first) + (1 if is_step and name in _STEP_LAST else 0)


_ROUNDS: Final = 5


def format_text(text: str, name: str) -> str:
    """The text in the house style; formatting it again changes nothing.

    Raises `SpecError` if the text cannot be read, and with the code `format-unsafe` if the result would not hold the
    same data and the same comments.
    """
    text = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff"))
    data = load_documents(text, name)
    remarks = [comment for _, comment in comments(text)]
    for style in (_full, lay_out):  # if the order of keys is what goes wrong, do without it
        result = _settle(text, style)
        if result is not None and _holds(result, data, remarks):
            return result
    summary = f"{name} cannot be formatted without changing its meaning"
    raise SpecError([Diagnostic("format-unsafe", summary, hint="it is unchanged: format it by hand")])


def _full(text: str) -> str:
    return order_keys(lay_out(text))


def _settle(text: str, style: Callable[[str], str]) -> str | None:
    """The text that the style leaves as it is, or None if there is none."""
    from ruamel.yaml.error import YAMLError

    for _ in range(_ROUNDS):
        try:
            done = style(text)
        except YAMLError:  # what came out cannot be read: not the text that is looked for
            return None
        if done == text:
            return done
        text = done
    return None


def _holds(text: str, data: list[Any], remarks: list[str]) -> bool:
    """Whether a text has this data and these comments."""
    try:
        found = load_documents(text, "")
    except SpecError:
        return False
    return [comment for _, comment in comments(text)] == remarks and _same(found, data, set())


def _same(a: Any, b: Any, seen: set[tuple[int, int]]) -> bool:
    """Equal, with types (1 is not 1.0) and with NaN equal to itself; what is shared is compared once."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (dict, list)):
        pair = (id(a), id(b))
        if pair in seen:
            return True
        seen.add(pair)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(_same(a[key], b[key], seen) for key in a)
        return len(a) == len(b) and all(_same(x, y, seen) for x, y in zip(a, b, strict=True))
    return bool(a == b or (a != a and b != b))
