"""Formats the text of a spec and proves that nothing but its looks changed.

The tokens are written again one by one, each scalar and comment with its own characters, so that quotes, anchors,
numbers and comments are kept by construction: indentation, spaces, empty lines and the order of some keys change.
Mappings and lists are indented by two, a list below its key too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct

from kubexm_spec.diagnostics import Diagnostic, SpecError
from kubexm_spec.yaml.lines import LineTable
from kubexm_spec.yaml.load import load_documents
from kubexm_spec.yaml.positions import Node, compose

_SILENT: Final = frozenset({"StreamStart", "BlockMappingStart", "BlockSequenceStart", "BlockEnd"})


class Token(NamedTuple):
    """A token: its kind (the library's class name without "Token"), its range, and the style of a scalar."""

    kind: str
    start: int
    end: int
    style: str
    visible: bool  # whether it is there in the text: the marks of block structure and of implicit keys are not


def scan(text: str) -> Iterator[Token]:
    """The tokens of a text that can be loaded, up to and with the end of the stream."""
    for token in _raw_tokens(text):
        kind = type(token).__name__[:-5]
        start, end = token.start_mark.index, token.end_mark.index
        style = (token.style or "") if kind == "Scalar" else ""
        yield Token(kind, start, end, style, end > start and kind not in _SILENT)


def comments(text: str) -> list[tuple[int, str]]:
    """The comments of a text with their offsets; not those after the mark of a block scalar."""
    found = list[tuple[int, str]]()
    at = 0
    for token in scan(text):
        if not token.visible and token.kind != "StreamEnd":
            continue
        end = token.start if token.visible else len(text)
        while (mark := text.find("#", at, end)) >= 0:  # between tokens there is nothing but comments and space
            stop = text.find("\n", mark, end)
            at = end if stop < 0 else stop
            found.append((mark, text[mark:at].rstrip()))
        at = token.end
    return found


def _raw_tokens(text: str) -> Iterator[Any]:
    try:
        from ruamel.yaml.cyaml import CParser  # type: ignore[attr-defined]
    except ImportError:  # no compiled parser for this Python
        from ruamel.yaml import YAML

        yield from YAML(typ="safe", pure=True).scan(text)
        return
    parser = CParser(text)
    while (token := parser.get_token()) is not None:
        yield token
        if type(token).__name__ == "StreamEndToken":
            return


_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "params", "vars", "resources", "inventory")
_STEP: Final = ("name", "type", "when")
_STEP_LISTS: Final = ("steps", "pre", "post", "onFailure", "always")
_STEP_LAST: Final = ("with",)
_RISKY: Final = re.compile(
    r"[|>][0-9]?\+|[|>][0-9+-]*\s+#"
)  # blocks that own the lines after them; comments after a mark
_ROUNDS: Final = 5
_INDENT: Final = 2
_OPENING: Final = frozenset({"FlowMappingStart", "FlowSequenceStart"})
_CLOSING: Final = frozenset({"FlowMappingEnd", "FlowSequenceEnd"})
_AT_MARGIN: Final = frozenset({"Directive", "DocumentStart", "DocumentEnd", "StreamEnd"})
_MARKS: Final = frozenset({"Anchor", "Tag"})
_HEADER: Final = re.compile(r"([|>])([0-9+-]*)(.*)")


def format_text(text: str, name: str) -> str:
    """The text in the house style; formatting it again changes nothing.

    Raises `SpecError` if the text cannot be read, and with the code `format-unsafe` if the result would not hold the
    same data and the same comments.
    """
    text = re.sub(r"\r\n?", "\n", text.removeprefix("\ufeff"))
    data = load_documents(text, name)
    remarks = [comment for _, comment in comments(text)]
    for style in (_full, _lay_out):  # if the order of keys is what goes wrong, do without it
        result = _settle(text, style)
        if result is not None and _holds(result, data, remarks):
            return result
    summary = f"{name} cannot be formatted without changing its meaning"
    raise SpecError([Diagnostic("format-unsafe", summary, hint="it is unchanged: format it by hand")])


def _lay_out(text: str) -> str:
    return _Layout(text).run()


def _full(text: str) -> str:
    return _order_keys(_lay_out(text))


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


def _order_keys(text: str) -> str:
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


class _Block(Struct, frozen=True):
    """An open block collection: its column in the old text and in the new one."""

    old: int
    new: int
    is_list: bool
    unmarked: bool = False  # a list as little indented as its key has no token for its start and its end


class _Layout:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[str] = []  # finished ones
        self._line: list[str] = []  # the pieces of the current one
        self._indent = 0  # of the current line
        self._blocks: list[_Block] = []
        self._blocks_before: list[_Block] = []  # as they were at the last visible token
        self._flows: list[int] = []  # for each open flow collection the indentation of the line it begins on
        self._last: Token | None = None
        self._at = 0  # how far the old text is written
        self._empty_before = False  # whether empty lines were cut from the end of a block scalar
        self._key_next = False

    def run(self) -> str:
        for token in scan(self._text):
            if not self._flows:
                self._structure(token)
            if token.visible or token.kind == "StreamEnd":
                self._write(token)
                self._key_next = False
        return "".join(f"{line}\n" for line in self._lines)

    def _structure(self, token: Token) -> None:
        if token.kind in ("Key", "BlockEnd", "StreamEnd", "DocumentStart", "DocumentEnd"):
            if self._blocks and self._blocks[-1].unmarked:
                self._blocks.pop()
            if token.kind == "BlockEnd":
                self._blocks.pop()
            self._key_next = token.kind == "Key"
        elif token.kind in ("BlockMappingStart", "BlockSequenceStart"):
            self._open(token, token.kind == "BlockSequenceStart")
        elif token.kind == "BlockEntry" and not (self._blocks and self._blocks[-1].is_list):
            self._open(token, True, unmarked=True)

    def _open(self, token: Token, is_list: bool, *, unmarked: bool = False) -> None:
        if self._begins_line(token.start):
            new = self._blocks[-1].new + _INDENT if self._blocks else 0
        else:  # on the line of its dash
            new = sum(map(len, self._line)) + 1
        self._blocks.append(_Block(self._column(token.start), new, is_list, unmarked))

    def _write(self, token: Token) -> None:
        if token.kind == "StreamEnd":
            self._write_gap(self._gap(len(self._text)).rstrip() + "\n", 0, 0)
            return
        gap = self._gap(token.start)
        if self._last is not None and "\n" not in gap:
            self._line.append(self._space(self._last, token))
        else:
            indent = self._indentation(token)
            self._write_gap(gap, self._column(token.start), indent)
            self._line, self._indent = [" " * indent], indent
        if token.kind in _CLOSING:
            self._flows.pop()
        elif token.kind in _OPENING:
            self._flows.append(max(self._indent, self._blocks[-1].new if self._blocks else 0))
        self._at = token.end
        self._empty_before = False
        self._last = token
        if token.kind == "Scalar":
            self._write_scalar(token)
        else:
            self._line.append(self._text[token.start : token.end])
        self._blocks_before = list(self._blocks)

    def _gap(self, end: int) -> str:
        """The old text since the last token; the line end of a block scalar is part of its token, so it is added."""
        gap = self._text[self._at : end]
        if self._last is not None and self._last.style in ("|", ">"):
            return "\n" * (2 if self._empty_before else 1) + gap
        return gap

    def _end_line(self) -> None:
        self._lines.append("".join(self._line))

    # Spaces

    @staticmethod
    def _space(last: Token, token: Token) -> str:
        if token.kind in _CLOSING or token.kind == "FlowEntry":
            return " " if last.kind == "Value" else ""  # {a:} would be the key "a:"
        if token.kind == "Value":
            return " " if last.kind in _MARKS or last.kind in ("Alias", "Key") else ""
        return "" if last.kind in _OPENING else " "

    def _indentation(self, token: Token) -> int:
        if token.kind in _AT_MARGIN:
            return 0
        if self._flows:
            return self._flows[-1] + (0 if token.kind in _CLOSING else _INDENT)
        if not self._blocks:
            return 0
        own = self._key_next or token.kind in ("BlockEntry", "Key", "Value")
        return self._blocks[-1].new + (0 if own else _INDENT)

    def _value_indent(self) -> int:
        """The indentation of the further lines of a scalar."""
        if self._flows:
            return self._flows[-1] + _INDENT
        return (self._blocks[-1].new if self._blocks else 0) + _INDENT

    def _begins_line(self, offset: int) -> bool:
        return not self._text[self._line_start(offset) : offset].strip()

    def _column(self, offset: int) -> int:
        return offset - self._line_start(offset)

    def _line_start(self, offset: int) -> int:
        return self._text.rfind("\n", 0, offset) + 1

    # What is between tokens

    def _write_gap(self, gap: str, next_old: int, next_new: int) -> None:
        """The rest of the line, then comments and at most one empty line at a time."""
        pieces = gap.split("\n")
        if self._last is not None:
            rest = pieces.pop(0)
            if rest.strip():
                blank = rest[: rest.index("#")]
                self._line += [blank if blank and "\t" not in blank else "  ", rest.strip()]
            self._end_line()
        if pieces and not pieces[-1].strip():
            pieces.pop()  # the old indentation of the next token
        for piece in pieces:
            if piece.strip():
                old = len(piece) - len(piece.lstrip())
                self._lines.append(" " * self._comment_indent(old, next_old, next_new) + piece.strip())
            elif self._lines and self._lines[-1]:
                self._lines.append("")

    def _comment_indent(self, old: int, next_old: int, next_new: int) -> int:
        """A comment goes with what follows, unless it is further in: then it goes with what ends before it."""
        if self._flows:
            return self._flows[-1] + _INDENT
        if old <= next_old or not self._blocks_before:
            return next_new
        deepest = self._blocks_before[-1]
        if old > deepest.old and self._last is not None and self._last.kind in ("Value", "BlockEntry"):
            return deepest.new + _INDENT  # below a key without a value: what was commented out
        return max((b.new for b in self._blocks_before if b.old <= old and b.new >= next_new), default=next_new)

    # Scalars

    def _write_scalar(self, token: Token) -> None:
        text = self._text[token.start : token.end]
        if token.style in ("|", ">"):
            self._write_block_scalar(text)
        elif "\n" in text:
            first, *rest = text.split("\n")
            self._line.append(first if token.style else first.rstrip())
            self._end_line()
            self._indent = self._value_indent()
            lines = [" " * self._indent + line.lstrip(" \t") if line.strip(" \t") else "" for line in rest]
            self._lines += [line if token.style else line.rstrip() for line in lines[:-1]]
            self._line = [lines[-1]]
        else:
            self._line.append(text)

    def _write_block_scalar(self, text: str) -> None:
        header, *body = text.split("\n")
        match = _HEADER.fullmatch(header)
        assert match is not None, "a block scalar begins with its mark"
        style, marks, rest = match.groups()
        digit = re.search(r"[0-9]", marks)
        chomp = marks.strip("0123456789")
        if not text.endswith("\n"):  # at the very end of the file: the line end it gets now must not become part of it
            chomp = "-"
        else:
            body.pop()
        if digit:
            width = self._old_parent_column() + int(digit.group())
        else:
            width = next((len(line) - len(line.lstrip(" ")) for line in body if line.strip(" ")), 0)
            width = width or max((len(line) for line in body), default=0)
        kept = [line[width:] for line in body]
        if chomp != "+":
            while kept and not kept[-1]:
                kept.pop()
                self._empty_before = True
        indent = self._value_indent()
        self._line.append(f"{style}{_INDENT if digit else ''}{chomp}{rest.rstrip()}")
        for line in kept:
            self._end_line()
            self._line = [" " * indent + line if line else ""]

    def _old_parent_column(self) -> int:
        """The old column that an explicit indentation counts from."""
        marked = [block.old for block in self._blocks if not block.unmarked]
        return marked[-1] if marked else 0
