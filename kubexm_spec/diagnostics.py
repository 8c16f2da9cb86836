"""What is wrong with a document, as data: a code, a sentence, a place and a hint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace


class Place(Protocol):
    """Something with a position in a text."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a finding there says as well, such as who uses the document."""

    def span(self) -> Span:
        """Its first and last character."""


class Severity(StrEnum):
    """How bad it is: an error stops the work, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Span(Struct, frozen=True):
    """A piece of text in a file; lines and columns count characters from 1, the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def as_dict(self) -> dict[str, object]:
        """The span as JSON data."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "endLine": self.end_line,
            "endColumn": self.end_column,
        }


class Note(Struct, frozen=True):
    """One more thing to know, often with a place of its own ("used by", an edge of a cycle)."""

    message: str
    span: Span | None = None


class Diagnostic(Struct, frozen=True):
    """One finding: what is wrong, where, and what to do next."""

    code: str
    summary: str
    span: Span | None = None
    severity: Severity = Severity.ERROR
    detail: str = ""
    hint: str = ""
    notes: tuple[Note, ...] = ()

    def __str__(self) -> str:
        where = f"{self.span}: " if self.span else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.severity}[{self.code}]: {self.summary}{hint}"

    def as_dict(self) -> dict[str, object]:
        """The finding as JSON data with camelCase keys; `span` is null when there is no place."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "summary": self.summary,
            "detail": self.detail,
            "hint": self.hint,
            "span": self.span.as_dict() if self.span else None,
            "notes": [{"message": n.message, "span": n.span.as_dict() if n.span else None} for n in self.notes],
        }


class Diagnostics:
    """A collector: findings in the order they were made, each exactly once."""

    def __init__(self, items: Iterable[Diagnostic] = ()) -> None:
        self._items: dict[Diagnostic, None] = {}
        self.error_count = 0
        """How many of them are errors."""
        for one in items:
            self.add(one)

    def error(
        self,
        code: str,
        summary: str,
        place: Place | Span | None = None,
        *,
        detail: str = "",
        hint: str = "",
        notes: Iterable[Note] | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Record an error; its notes are those of the place unless others are given."""
        if place is not None and not isinstance(place, Span):
            notes = place.notes if notes is None else notes
            place = place.span()
        self.add(Diagnostic(code, summary, place, severity, detail, hint, tuple(notes or ())))

    def warning(
        self,
        code: str,
        summary: str,
        place: Place | Span | None = None,
        *,
        detail: str = "",
        hint: str = "",
        notes: Iterable[Note] | None = None,
    ) -> None:
        """Record a warning, as `error` does an error."""
        self.error(code, summary, place, detail=detail, hint=hint, notes=notes, severity=Severity.WARNING)

    def add(self, diagnostic: Diagnostic) -> None:
        """Record a finding made elsewhere, unless the very same one is here already."""
        if diagnostic not in self._items:
            self._items[diagnostic] = None
            self.error_count += diagnostic.severity is Severity.ERROR

    def extend(self, findings: Iterable[Diagnostic], place: Place | None = None) -> None:
        """Record findings made elsewhere; those without a place of their own get this one."""
        for one in list(findings):
            if place is not None and one.span is None:
                one = replace(one, span=place.span(), notes=one.notes or place.notes)
            self.add(one)

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors, in insertion order."""
        return [d for d in self._items if d.severity is Severity.ERROR]

    @property
    def warnings(self) -> list[Diagnostic]:
        """The warnings, in insertion order."""
        return [d for d in self._items if d.severity is Severity.WARNING]

    @property
    def has_errors(self) -> bool:
        """Whether any finding is an error."""
        return self.error_count > 0

    def sorted(self) -> list[Diagnostic]:
        """All findings by file, line and column; those without a place come first."""
        return sorted(self._items, key=_sort_key)

    def as_list(self) -> list[dict[str, object]]:
        """All findings as JSON data, sorted."""
        return [d.as_dict() for d in self.sorted()]

    def raise_if_errors(self) -> None:
        """Raise `SpecError` with everything collected if there is an error in it."""
        if self.has_errors:
            raise SpecError(self)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Diagnostics({list(self._items)!r})"


class SpecError(Exception):
    """A document cannot be used; `diagnostics` says why."""

    def __init__(self, diagnostics: Diagnostics | Iterable[Diagnostic]) -> None:
        self.diagnostics = diagnostics if isinstance(diagnostics, Diagnostics) else Diagnostics(diagnostics)
        super().__init__("\n".join(str(d) for d in self.diagnostics.sorted()))


def _sort_key(diagnostic: Diagnostic) -> tuple[str, int, int]:
    span = diagnostic.span
    return (span.file, span.line, span.column) if span else ("", 0, 0)


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate the writer most likely meant, or None when nothing is close."""
    names = [c for c in dict.fromkeys(candidates) if c and c != word]
    if not word or not names:
        return None
    plain = _plain(word)
    for name in names:  # the same words in another case or style: runon, run_on, run-on, runOns
        if plain and _plain(name) == plain:
            return name
    for name in names:  # the end of a path
        if name.endswith(f"/{word}"):
            return name
    singular = _singular(plain)
    for name in names:
        if singular and _singular(_plain(name)) == singular:
            return name
    limit = _allowed_edits(len(plain))
    best: str | None = None
    for name in names:
        edits = _distance(plain, _plain(name), limit)
        if edits <= limit:  # from now on only a closer one is of interest
            best, limit = name, edits - 1
        if limit < 1:
            break
    if best is not None:
        return best
    longer = [name for name in names if len(plain) >= 3 and _plain(name).startswith(plain)]
    return longer[0] if len(longer) == 1 else None


def did_you_mean(word: str, candidates: Iterable[str], folder: str = "") -> str:
    """The suggestion as a question, or an empty string; for names of files, below the folder they are in."""
    found = suggest(word, candidates)
    shown = f"{folder}/{found}" if folder else found
    return f"did you mean {json.dumps(shown, ensure_ascii=False)}?" if found else ""


def some(names: Iterable[str], most: int = 8) -> str:
    """The first of many names, and how many more there are."""
    known = list(names)
    return ", ".join(known[:most]) + (f" and {len(known) - most} more" if len(known) > most else "")


def plural(number: int, noun: str) -> str:
    """``1 host``, ``2 entries``, ``1,200 addresses``."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun}"


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a text, with dots in place of the rest."""
    return text if len(text) <= most else text[: most - 3] + "..."


@lru_cache(maxsize=65536)  # the same few thousand names are candidates again and again
def _plain(word: str) -> str:
    return re.sub(r"[\s_\-.]+", "", word).casefold()


def _singular(word: str) -> str:
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if len(word) > len(ending) and word.endswith(ending):
            return word[: -len(ending)] + instead
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word


def _allowed_edits(length: int) -> int:
    if length <= 2:
        return 0 if length < 2 else 1
    return 1 if length <= 4 else 2 if length <= 8 else 3


def _distance(a: str, b: str, limit: int) -> int:
    """Edits (insert, delete, replace, swap neighbours) from a to b; anything over the limit is limit + 1."""
    if abs(len(a) - len(b)) > limit or len(a) > 200:
        return limit + 1
    far = limit + 1
    last: list[int] = []
    before: list[int] = []
    row = [min(j, far) for j in range(len(b) + 1)]
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [min(i, far), *[far] * len(b)]
        for j in range(max(1, i - limit), min(len(b), i + limit) + 1):  # further from the diagonal it is too far anyway
            y = b[j - 1]
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row[j] = min(cost, far)
        if min(row) > limit:
            return far
    return row[-1]
