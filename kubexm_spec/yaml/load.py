"""Reads YAML 1.2 text into plain Python data, quickly and without trusting it.

The events of libyaml's C parser become data in one loop without recursion. What plain scalars mean is decided here (the
JSON types and nothing else), because the library's constructors also make dates and YAML 1.1 numbers, in four times the
time: `yes`, `on`, `2024-01-31`, `12:30:45` and `1_000` are strings. So is a number with a leading zero: YAML 1.1 reads
`0644` as 420, YAML 1.2 (and the library's C loader) as 644, and whoever writes it means the file mode "0644".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from kubexm_spec.diagnostics import Diagnostic, Diagnostics, Note, SpecError, did_you_mean
from kubexm_spec.yaml.events import MAX_DEPTH, open_events, skip_collection
from kubexm_spec.yaml.lines import LineTable

_EXPRESSION: Final = re.compile(r"""[^\r\n#"']*?(?:[:\-,\[]\s+|[\[{,]|^\s*)(\{\{|\{%)""", re.MULTILINE)
_QUOTE_EXPRESSION: Final = 'put the whole value in quotes: "{{ ... }}"'
_TAB: Final = "indent with spaces; most editors can convert tabs"

# The parser's words -> ours, and what to do.
_IN_WORDS: Final[dict[str, tuple[str, str]]] = {
    "mapping values are not allowed in this context": (
        "a colon is not expected here",
        "quote a value that contains a colon and a space, or check the indentation",
    ),
    "mapping values are not allowed here": (
        "a colon is not expected here",
        "quote a value that contains a colon and a space, or check the indentation",
    ),
    "found unexpected ':'": (
        "a colon is not expected here",
        "quote a value that contains a colon: it has a meaning between { } and [ ]",
    ),
    "did not find expected key": ("expected a key here", "check the indentation, and that quotes are closed"),
    "did not find expected '-' indicator": (
        "expected another list item here, beginning with a dash",
        "check the indentation: a list and keys cannot be mixed at the same level",
    ),
    "block sequence entries are not allowed in this context": (
        "a list item is not expected here",
        "begin the list on its own line, below the key",
    ),
    "sequence entries are not allowed here": (
        "a list item is not expected here",
        "begin the list on its own line, below the key",
    ),
    "did not find expected ',' or ']'": ("expected a comma or ] here", "close the list, or put the value in quotes"),
    "did not find expected ',' or '}'": ("expected a comma or } here", "close the mapping, or put the value in quotes"),
    "could not find expected ':'": ("expected a colon after this key", 'write "key: value", and check the indentation'),
    "found unknown escape character": (
        "this is not a valid escape in double quotes",
        "double the backslash, or use single quotes",
    ),
    "did not find expected <document start>": (
        "the document has ended before this",
        "check the indentation, or begin another document with ---",
    ),
    "found incompatible YAML document": ("this version of YAML is not supported", "remove the %YAML line"),
    "found undefined tag handle": ("this tag is not defined", "remove the tag: a spec is plain data"),
    "found invalid Unicode character escape code": ("this escape is not a Unicode character", ""),
}
_NEVER_CLOSED: Final = {"[": "this list is never closed with ]", "{": "this mapping is never closed with }"}


def syntax_error(error: Exception, text: str, name: str, lines: LineTable) -> Diagnostic:
    """The finding for an exception of the YAML parser."""
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "this is not YAML")
    offset = _index(getattr(error, "problem_mark", None))
    if offset is None:
        offset = int(getattr(error, "position", 0) or 0)
    begun = _index(getattr(error, "context_mark", None))
    found = _special(problem, offset, begun, text)
    if found is not None:
        start, end, code, summary, hint = found
        return Diagnostic(code, summary, lines.span(name, start, end), hint=hint)
    summary, hint = _IN_WORDS.get(problem, (problem, ""))
    notes: tuple[Note, ...] = ()
    if begun is not None and lines.position(begun) != lines.position(offset):
        notes = (Note(_context(str(getattr(error, "context", ""))), lines.span(name, begun, begun + 1)),)
    return Diagnostic("yaml-syntax", summary, lines.span(name, offset, offset + 1), hint=hint, notes=notes)


def _special(problem: str, offset: int, begun: int | None, text: str) -> tuple[int, int, str, str, str] | None:
    """Start, end, code, summary and hint, where the text around says more than the parser does."""
    line_start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    indentation = re.compile(r"[ \t]*").match(text, line_start)
    blank = indentation.group() if indentation else ""
    char = text[offset : offset + 1]
    if "\t" in blank and offset <= line_start + len(blank):
        tab = line_start + blank.index("\t")
        return tab, line_start + len(blank), "tab-indentation", "a tab cannot be used for indentation", _TAB
    if offset >= len(text.rstrip()) and begun is not None and begun < len(text):
        opening = text[begun]
        if opening in "\"'":
            summary = "the quote that opens here is never closed"
            return begun, begun + 1, "yaml-syntax", summary, "close it, or remove it"
        if opening in _NEVER_CLOSED:
            hint = "close it, or put it in quotes if it is a text"
            return begun, begun + 1, "yaml-syntax", _NEVER_CLOSED[opening], hint
    if (expression := _EXPRESSION.match(text, line_start)) is not None:
        summary = "a value that begins with {{ or {% must be in quotes"
        return expression.start(1), expression.end(1), "unquoted-expression", summary, _QUOTE_EXPRESSION
    if problem == "found character that cannot start any token" and char.strip():
        return offset, offset + 1, "yaml-syntax", f"a value cannot begin with {char}", "put the value in quotes"
    if problem == "could not find expected ':'" and begun is not None:
        line = re.compile(r"[^\r\n]*").match(text, begun)
        return begun, line.end() if line else begun + 1, "yaml-syntax", *_IN_WORDS[problem]
    return None


def _context(context: str) -> str:
    what = re.sub(r"^while (?:parsing|scanning) an? ", "", context)
    kind = "mapping" if "mapping" in what else "list" if "sequence" in what or "collection" in what else "text"
    return f"the {kind} it belongs to begins here"


def _index(mark: Any) -> int | None:
    index = getattr(mark, "index", None)
    return int(index) if index is not None else None


MAX_EXPANSION: Final = 1_000_000
"""How many nodes aliases may stand for, beyond ten times the nodes that are really written."""
MAX_FINDINGS: Final = 50
"""After so many findings in one file, reading stops."""

_WORDS: Final[dict[str, object]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_FIRST: Final = frozenset("~nNtTfF+-.0123456789")  # what a plain scalar that is no string can begin with
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_OTHER_INT: Final = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# Besides what YAML forbids: U+0085, U+2028 and U+2029, which nobody sees and which YAML 1.1 parsers take for line ends.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPED_NUL: Final = re.compile(r"\\(?:0|x00|u0000|U00000000)")
_TAG: Final = "tag:yaml.org,2002:"
_TAGS: Final = (f"{_TAG}seq", f"{_TAG}map")
_TAGGED: Final = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}


class Dialect(Struct, frozen=True):
    """What may differ where the YAML is not ours."""

    first: frozenset[str] = _FIRST
    """What a plain scalar that is no string can begin with."""
    resolve: Callable[[str], object] | None = None
    """What an unquoted scalar means; None: as `resolve_plain` says."""
    tags: Mapping[str, Callable[[str], object]] = {}
    """What scalars with these tags mean."""
    any_key: bool = False
    """Whether numbers and the like are keys too: as the texts that are written."""


_OURS: Final = Dialect()


class _Marker:
    """A key that is no string: none yet, a merge, or one that was refused."""


_NO_KEY: Final = _Marker()
_MERGE: Final = _Marker()
_REFUSED: Final = _Marker()


_UNQUOTED: Final = {
    "duplicate-key": "duplicate key in this mapping",
    "key-not-a-string": "a key must be a text",
    "recursive-alias": "this alias is inside the value that it refers to",
    "unknown-alias": "there is no such anchor before this",
    "unknown-tag": "a tag is not allowed",
    "yaml-syntax": "this is not YAML",
}


def unquoted(finding: Diagnostic) -> Diagnostic:
    """The same finding without a word of the file that it is about."""
    summary = _UNQUOTED.get(finding.code)
    return finding if summary is None else structs.replace(finding, summary=summary, hint="")


def load_documents(
    text: str, name: str, dialect: Dialect = _OURS, *, names: dict[int, tuple[int, int]] | None = None
) -> list[Any]:
    """The documents of a text; raises `SpecError` with everything that is wrong with it.

    ``names`` gets, by the ``id()`` of a mapping, the offsets of the text that is its ``name``, if it is plainly written
    there.
    """
    return _Loader(text, name, dialect, {} if names is None else names).run()


def resolve_plain(value: str) -> object:
    """What an unquoted scalar means in YAML 1.2; ValueError for a number that cannot be held."""
    if value and value[0] not in _FIRST:
        return value
    if value in _WORDS:
        return _WORDS[value]
    if _INT.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    if _OTHER_INT.fullmatch(value):
        return int(value, 0)
    return value


class _Loader:
    """One pass over the events of one text."""

    def __init__(self, text: str, name: str, dialect: Dialect, named: dict[int, tuple[int, int]]) -> None:
        self._text = text
        self._name = name
        self._dialect = dialect
        self._named = named
        self._merged: list[list[tuple[Any, Any]]] = []
        """What was merged: as long as a text is loaded no two mappings may have the same ``id()``."""
        self._lines = LineTable(text)
        self._found = Diagnostics()
        self._names: dict[str, str] = {}
        # An open collection: what is around it, that one's merges, its anchor, the weight before it, its key or index.
        self._stack: list[tuple[Any, list[tuple[Any, Any]] | None, str | None, int, Any]] = []
        self._duplicates: list[tuple[int, tuple[str | int, ...], tuple[int, int]]] = []

    def run(self) -> list[Any]:
        from ruamel.yaml.error import YAMLError

        self._refuse_control_characters()
        documents: list[Any] = []
        try:
            self._read(documents)
        except YAMLError as error:
            self._report_syntax(error)
        self._report_duplicates()
        self._found.raise_if_errors()
        return documents

    def _read(self, documents: list[Any]) -> None:
        """The hot loop: half a million events go through it in a second, so it calls as little as it can."""
        from ruamel.yaml import events as ev

        scalar, alias = ev.ScalarEvent, ev.AliasEvent
        map_start, list_start = ev.MappingStartEvent, ev.SequenceStartEvent
        next_event = open_events(self._text)
        weigh = "*" in self._text and "&" in self._text
        check_nul = _ESCAPED_NUL.search(self._text) is not None
        stack = self._stack
        named = self._named
        first = self._dialect.first
        resolved: dict[str, object] = {}
        anchors: dict[str, Any] = {}
        weights: dict[str, int | None] = {}  # None while the anchored collection is still open
        total = written = 0
        container: Any = documents
        key: Any = _NO_KEY
        merges: list[tuple[Any, Any]] | None = None

        while True:
            event = next_event()
            kind = type(event)
            if kind is scalar:
                text = value = event.value
                if event.ctag is not None:
                    value = self._tagged_scalar(event)
                elif event.implicit[0] and (not text or text[0] in first):
                    value = resolved.get(text, _NO_KEY)
                    if value is _NO_KEY:
                        value = resolved[text] = self._resolve(event)
                elif text == "<<" and event.implicit[0] and key is _NO_KEY and type(container) is dict:
                    if merges is not None:
                        hint = "merge several with one key: <<: [*a, *b]"
                        self._problem("duplicate-key", 'duplicate key "<<" in this mapping', event, hint)
                    merges = merges or []
                    key = _MERGE
                    continue
                if check_nul and "\0" in text:
                    hint = r'in double quotes "\0" is a NUL; double the backslash for the two characters'
                    self._problem("control-character", "a value cannot contain a NUL character", event, hint)
                if weigh:
                    weight = 1 + (len(text) >> 6)
                    total += weight
                    written += weight
                    if event.anchor is not None:
                        anchors[event.anchor] = value
                        weights[event.anchor] = weight
            elif kind is map_start or kind is list_start:
                if key is _NO_KEY and type(container) is dict:
                    self._refuse_collection_as_key(event, next_event)
                    key = _REFUSED
                    continue
                if len(stack) >= MAX_DEPTH:
                    summary = f"more than {MAX_DEPTH} levels of nesting"
                    self._problem("too-deep", summary, event, "split the document")
                    raise SpecError(self._found)
                if event.ctag is not None and str(event.tag) not in (_TAGS[kind is map_start], "!"):
                    self._refuse_tag(event)
                value = {} if kind is map_start else []
                if event.anchor is not None:
                    anchors[event.anchor] = value
                    weights[event.anchor] = None
                if type(container) is list:
                    stack.append((container, merges, event.anchor, total, len(container)))
                    container.append(value)
                else:
                    stack.append((container, merges, event.anchor, total, key))
                    if key is _MERGE:
                        merges.append((value, event))  # type: ignore[union-attr]
                    elif key is not _REFUSED:
                        container[key] = value
                total += 1
                written += 1
                container, key, merges = value, _NO_KEY, None
                continue
            elif kind is ev.MappingEndEvent or kind is ev.SequenceEndEvent:
                if merges:
                    self._merged.append(merges)
                    self._merge(container, merges)
                done = container
                container, merges, anchor, before, _ = stack.pop()
                if anchor is not None and anchors[anchor] is done:
                    weights[anchor] = total - before
                continue
            elif kind is alias:
                value, weight = self._aliased(event, anchors, weights)
                total += weight
                written += 1
                if total > MAX_EXPANSION + 10 * written:
                    summary = f"the aliases of this file expand to more than {MAX_EXPANSION:,} nodes"
                    self._problem("alias-bomb", summary, event, "repeat the data, or put anchors on smaller parts")
                    raise SpecError(self._found)
            elif kind is ev.StreamEndEvent:
                return
            else:
                if kind is ev.DocumentStartEvent:
                    anchors.clear()
                    weights.clear()
                continue

            if type(container) is list:
                container.append(value)
            elif key is _NO_KEY:
                key = self._checked_key(value, event, container, documents)
            else:
                if key is _MERGE:
                    merges.append((value, event))  # type: ignore[union-attr]
                elif key is not _REFUSED:
                    container[key] = value
                    if key == "name" and kind is scalar and text and event.anchor is None and event.ctag is None:
                        named[id(container)] = event.start_mark.index, event.end_mark.index
                key = _NO_KEY

    # Scalars, keys and tags

    def _resolve(self, event: Any) -> object:
        try:
            return (self._dialect.resolve or resolve_plain)(event.value)
        except ValueError:
            self._problem("number-too-long", "this number has too many digits", event, "quote it if it is a text")
            return event.value

    def _tagged_scalar(self, event: Any) -> object:
        tag, value = str(event.tag), event.value
        kind = tag.removeprefix(_TAG)
        if tag in self._dialect.tags:
            return self._dialect.tags[tag](value)
        if tag == "!" or kind == "str":
            return value
        if kind == tag or kind not in _TAGGED:
            self._refuse_tag(event)
            return value
        found = self._resolve(event)
        if type(found) not in _TAGGED[kind]:
            self._problem("wrong-tag", f"this value does not match its tag !!{kind}", event, "remove the tag")
            return value
        return float(found) if kind == "float" and isinstance(found, int) else found

    def _refuse_tag(self, event: Any) -> None:
        tag = str(event.tag)
        shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
        start = event.start_mark.index
        width = re.compile(r"(?:&\S+\s+)?!\S*").match(self._text, start)
        end = width.end() if width else event.end_mark.index
        hint = "remove the tag: a spec is plain data (texts, numbers, true and false, null, lists and mappings)"
        self._add("unknown-tag", f"the tag {shown} is not allowed", start, end, hint)

    def _checked_key(self, key: object, event: Any, container: dict[str, Any], documents: list[Any]) -> object:
        if self._dialect.any_key and isinstance(key, int | float):
            key = str(event.value)
        if type(key) is str:
            if key in container:
                path = tuple(frame[-1] for frame in self._stack[1:])
                where = event.start_mark.index, event.end_mark.index
                self._duplicates.append((len(documents) - 1, (*path, key), where))
                self._stop_if_too_many()
            return self._names.setdefault(key, key)
        if isinstance(key, (dict, list)):
            self._problem("key-not-a-string", "a key cannot be a list or a mapping", event)
        elif key is None and event.start_mark.index == event.end_mark.index:
            self._problem("key-not-a-string", "there is no key before this colon", event)
        else:
            what = "null" if key is None else "a boolean" if isinstance(key, bool) else "a number"
            written = self._text[event.start_mark.index : event.end_mark.index]
            summary = f"a key must be a text, and {written} is {what}"
            self._problem("key-not-a-string", summary, event, f"put it in quotes: {json.dumps(written)}")
        return _REFUSED

    def _refuse_collection_as_key(self, event: Any, next_event: Callable[[], Any]) -> None:
        start = event.start_mark.index
        if self._text[start - 1 : start + 1] == "{{":
            close = self._text.find("}}", start)
            line_end = self._lines.end_of_line(start)
            end = close + 2 if start < close < line_end else line_end
            hint = 'put the whole value in quotes: "{{ ... }}"'
            self._add("unquoted-expression", "a value that begins with {{ must be in quotes", start - 1, end, hint)
        else:
            self._problem("key-not-a-string", "a key cannot be a list or a mapping", event)
        if not skip_collection(next_event):
            raise SpecError(self._found)

    # Anchors, aliases and merges

    def _aliased(self, event: Any, anchors: dict[str, Any], weights: dict[str, int | None]) -> tuple[Any, int]:
        name = event.anchor
        if name not in anchors:
            hint = did_you_mean(name, anchors) or f"define &{name} earlier in this document"
            self._problem("unknown-alias", f"there is no anchor &{name} before this", event, hint)
            return {}, 1
        weight = weights[name]
        if weight is None:
            self._problem("recursive-alias", f"*{name} is inside the value that it refers to", event)
            return {}, 1
        return anchors[name], weight

    def _merge(self, into: dict[str, Any], merges: list[tuple[Any, Any]]) -> None:
        own = dict(into)
        into.clear()
        for value, event in merges:
            sources = value if isinstance(value, list) else [value]
            if all(isinstance(source, dict) for source in sources):
                for source in reversed(sources):  # the first one named wins
                    into.update(source)
            else:
                summary = "<< takes a mapping or a list of mappings"
                self._problem("bad-merge", summary, event, "for example <<: *defaults")
        into.update(own)

    # Findings

    def _refuse_control_characters(self) -> None:
        for match in _CONTROL.finditer(self._text):
            code = ord(match.group())
            summary = f"the character U+{code:04X}{' (NUL)' if code == 0 else ''} is not allowed"
            hint = "remove it, or write it as an escape in double quotes"
            self._add("control-character", summary, match.start(), match.end(), hint)
        self._found.raise_if_errors()

    def _problem(self, code: str, summary: str, event: Any, hint: str = "") -> None:
        self._add(code, summary, event.start_mark.index, event.end_mark.index, hint)

    def _add(self, code: str, summary: str, start: int, end: int, hint: str = "") -> None:
        self._found.error(code, summary, self._lines.span(self._name, start, end), hint=hint)
        self._stop_if_too_many()

    def _stop_if_too_many(self) -> None:
        if len(self._found) + len(self._duplicates) >= MAX_FINDINGS:
            self._report_duplicates()
            raise SpecError(self._found)

    def _report_duplicates(self) -> None:
        if not self._duplicates:
            return
        from kubexm_spec.yaml.positions import compose

        roots = compose(self._text)
        for document, path, where in self._duplicates:
            first = roots[document].locate(path)
            notes = []
            if first is not None:
                notes.append(Note("first defined here", self._lines.span(self._name, *first.key)))
            span = self._lines.span(self._name, *where)
            summary = f'the key "{path[-1]}" is already in this mapping'
            self._found.error("duplicate-key", summary, span, hint="remove one of the two", notes=notes)

    def _report_syntax(self, error: Exception) -> None:
        found = syntax_error(error, self._text, self._name, self._lines)
        line = found.span.line if found.span else 0
        known = {d.span.line for d in self._found if d.span and d.code == "unquoted-expression"}
        if line not in known:  # what follows from a finding that is there already would only confuse
            self._found.add(found)
