"""Says in a reader's words what the YAML parser could not read."""

from __future__ import annotations

import re
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostic, Note
from kubexm_spec.yaml.lines import LineTable

_EXPRESSION: Final = re.compile(r"""[^\r\n#"']*?(?:[:\-,\[]\s+|[\[{,]|^\s*)(\{\{|\{%)""", re.MULTILINE)
_QUOTE_EXPRESSION: Final = 'put the whole value in quotes: "{{ ... }}"'
_TAB: Final = "indent with spaces; most editors can convert tabs"

# The parser's words -> ours, and what to do.
_WORDS: Final[dict[str, tuple[str, str]]] = {
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
    summary, hint = _WORDS.get(problem, (problem, ""))
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
        return begun, line.end() if line else begun + 1, "yaml-syntax", *_WORDS[problem]
    return None


def _context(context: str) -> str:
    what = re.sub(r"^while (?:parsing|scanning) an? ", "", context)
    kind = "mapping" if "mapping" in what else "list" if "sequence" in what or "collection" in what else "text"
    return f"the {kind} it belongs to begins here"


def _index(mark: Any) -> int | None:
    index = getattr(mark, "index", None)
    return int(index) if index is not None else None
