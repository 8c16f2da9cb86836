"""Shows findings to people: the sentence, the lines of the file and a caret under the very place."""

from __future__ import annotations

import stat
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubexm_spec.diagnostics import Diagnostic, Diagnostics, Severity, Span, plural
from kubexm_spec.yaml.lines import LineTable, is_spec

if TYPE_CHECKING:  # only for its type: rendering loads no YAML
    from kubexm_spec.yaml.source import SourceFile

_TAB: Final = 4
_LARGEST: Final = 64 * 1024 * 1024
_LEAST: Final = 20  # columns of source text that are shown however narrow the terminal is
_SECRET = frozenset({"plain-password"})
"""Findings about a secret that is written out: a message must not repeat it, nor the lines beside it."""
_BOLD, _RED, _YELLOW, _BLUE = "1", "1;31", "1;33", "1;34"


def render(
    diagnostics: Diagnostics,
    *,
    color: bool = False,
    width: int = 100,
    sources: Mapping[str, SourceFile] | None = None,
    folder: str = "",
) -> str:
    """All findings by file and line, each with its excerpt, an empty line between them.

    The text of a file is taken from `sources` (by its name), else read again, from `folder` on; a file that is gone,
    or is no spec of ours, shows no excerpt.
    """
    hidden = [d.span for d in diagnostics if d.code in _SECRET and d.span is not None]
    secret = {(span.file, line) for span in hidden for line in range(span.line, span.end_line + 1)}
    painter = _Painter(color, width, _Texts(sources or {}, folder), secret)
    return "\n".join("".join(f"{line}\n" for line in painter.lines(d)) for d in diagnostics.sorted())


def nothing_was_run(sources: Mapping[str, SourceFile]) -> str:
    """That only files were read; programs that print an inventory had to be run for that."""
    programs = [source.printed_by for source in sources.values() if source.printed_by]
    noun = "program" if len(programs) == 1 else "programs"
    return f"Nothing was run but the inventory {noun} {', '.join(programs)}." if programs else "Nothing was run."


def summary_line(diagnostics: Diagnostics, ran: bool = False, sources: Mapping[str, SourceFile] | None = None) -> str:
    """How many there are: "2 errors, 1 warning in 3 files. Nothing was run."."""
    counts = [
        plural(number, word)
        for number, word in ((len(diagnostics.errors), "error"), (len(diagnostics.warnings), "warning"))
        if number
    ]
    files = len({d.span.file for d in diagnostics if d.span})
    where = f" in {plural(files, 'file')}" if files else ""
    end = f" {nothing_was_run(sources or {})}" if diagnostics.has_errors and not ran else ""
    return f"{', '.join(counts) or 'No errors'}{where}.{end}"


class _Texts:
    """The lines of files by their names; none of a file that is no spec of ours."""

    def __init__(self, sources: Mapping[str, SourceFile], folder: str) -> None:
        self._sources = sources
        self._folder = folder
        self._read: dict[str, list[str]] = {}

    def lines(self, name: str) -> list[str]:
        if name not in self._read:
            text = self._sources[name].text if name in self._sources else self._from_disk(name)
            self._read[name] = LineTable(text).lines if is_spec(text) else []
        return self._read[name]

    def _from_disk(self, name: str) -> str:
        try:
            path = Path(self._folder, name)
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                return ""
            return path.read_bytes().decode("utf-8-sig", "replace")
        except (OSError, ValueError):  # gone, or a name that is no path ("<text>"): the message stands without it
            return ""


class _Painter:
    def __init__(self, color: bool, width: int, texts: _Texts, secret: set[tuple[str, int]]) -> None:
        self._secret = secret
        self._color = color
        self._width = width
        self._texts = texts

    def lines(self, diagnostic: Diagnostic) -> list[str]:
        tint = _RED if diagnostic.severity is Severity.ERROR else _YELLOW
        head = self._paint(f"{diagnostic.severity}[{diagnostic.code}]", tint)
        out = [f"{head}: {self._paint(_one_line(diagnostic.summary), _BOLD)}"]
        span, hint = diagnostic.span, _one_line(diagnostic.hint)
        gutter = 2
        if span is not None:
            gutter = max(2, len(str(span.line)))
            out.append(f"{' ' * gutter}{self._paint('-->', _BLUE)} {_one_line(str(span))}")
            excerpt, hint = self._excerpt(span, gutter, hint, tint)
            out += excerpt
        for line in diagnostic.detail.splitlines():
            out.append(self._side(gutter, "=", _visible(line)))
        if hint:
            out.append(self._side(gutter, "=", f"hint: {hint}"))
        for note in diagnostic.notes:
            out.append(self._side(gutter, "=", _one_line(f"{note.message} {note.span or ''}")))
        return out

    def _excerpt(self, span: Span, gutter: int, hint: str, tint: str) -> tuple[list[str], str]:
        """The lines of the excerpt, and the hint if it found no room beside the caret."""
        lines = self._texts.lines(span.file)
        if not 1 <= span.line <= len(lines) or (span.file, span.line) in self._secret:
            return [], hint
        line = lines[span.line - 1]
        shown, start, length = self._cut(line, span, gutter)
        out = [self._side(gutter, "|", "")]
        if span.line >= 2 and (span.file, span.line - 1) not in self._secret:
            before = _fit(_expand_parts(lines[span.line - 2])[0], self._room(gutter))
            out.append(self._numbered(gutter, span.line - 1, before))
        out.append(self._numbered(gutter, span.line, shown))
        carets = "^" * length
        beside = bool(hint) and start + length + 1 + _columns(hint) <= max(self._room(gutter), 60)
        marks = f"{carets} {hint}" if beside else carets
        out.append(self._side(gutter, "|", " " * start + self._paint(marks, tint)))
        return out, "" if beside else hint

    def _cut(self, line: str, span: Span, gutter: int) -> tuple[str, int, int]:
        """The line as it is shown, the column the carets start at, and how many there are."""
        begin = min(span.column - 1, len(line))
        end = span.end_column - 1 if span.end_line == span.line else len(line.rstrip())
        end = max(begin, min(end, len(line)))
        before, marked, after = _expand_parts(line[:begin], line[begin:end], line[end:])
        room = self._room(gutter)
        start, length = _columns(before), max(1, _columns(marked))
        if start + length + _columns(after) <= room:
            return (before + marked + after).rstrip(), start, length
        length = min(length, max(1, room // 2))
        if start + length > room - 1:  # the beginning goes, a third of the room stays for what is before the caret
            before = "…" + _tail(before, room // 3)
            start = _columns(before)
        return _fit(before + marked + after, room), start, length

    def _room(self, gutter: int) -> int:
        return max(_LEAST, self._width - gutter - 3)

    def _numbered(self, gutter: int, number: int, text: str) -> str:
        return f"{self._paint(f'{number:>{gutter}} |', _BLUE)} {text}".rstrip()

    def _side(self, gutter: int, sign: str, text: str) -> str:
        return f"{' ' * gutter} {self._paint(sign, _BLUE)} {text}".rstrip()

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color and text else text


def _one_line(text: str) -> str:
    return _visible(" ".join(text.split()))


def _visible(text: str) -> str:
    """Without characters that would move the cursor, colour the terminal or turn the direction of writing."""
    return (
        "".join("\ufffd" if _is_control(c) else c for c in text)
        if not text.isascii() or not text.isprintable()
        else text
    )


def _is_control(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
        or "\u202a" <= char <= "\u202e"
        or "\u2066" <= char <= "\u2069"
    )


def _expand_parts(*parts: str) -> list[str]:
    """The parts of a line with tabs as spaces; a tab's width depends on where in the line it is."""
    out, column = list[str](), 0
    for part in parts:
        done = list[str]()
        for char in part:
            shown = " " * (_TAB - column % _TAB) if char == "\t" else _visible(char)
            done.append(shown)
            column += _columns(shown)
        out.append("".join(done))
    return out


def _columns(text: str) -> int:
    return len(text) if text.isascii() else sum(_char_columns(c) for c in text)


def _char_columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _fit(text: str, room: int) -> str:
    """The beginning of a text, in so many columns, with an ellipsis if something is left out."""
    if _columns(text) <= room:
        return text.rstrip()
    used, kept = 1, list[str]()
    for char in text:
        used += _char_columns(char)
        if used > room:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _tail(text: str, room: int) -> str:
    used, at = 0, len(text)
    while at and used + _char_columns(text[at - 1]) <= room:
        at -= 1
        used += _char_columns(text[at])
    return text[at:]
