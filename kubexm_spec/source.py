"""A spec file read once, and the places in it that findings point to."""

from __future__ import annotations

import hashlib
import os
import pathlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kubexm_spec.diagnostics import Span

Path = tuple[str | int, ...]


class SourceFile:
    """One file: its bytes, its text and its documents as plain Python data.

    `documents` has one entry per YAML document; an empty document is None and keeps its number.
    Data behind an anchor is shared between the places that use it: read it, do not change it.
    """

    def __init__(self, name: str, path: pathlib.Path, data: bytes, text: str, documents: list[Any]) -> None:
        self.name = name
        self.path = path
        self.data = data
        self.text = text
        self.documents = documents

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, name: str | None = None) -> SourceFile:
        """Read and parse a file; raises `SpecError` with every finding for anything that is wrong with it."""
        raise NotImplementedError

    @classmethod
    def from_text(cls, text: str, name: str = "<text>") -> SourceFile:
        """Parse text that is in memory already; raises `SpecError` as `load` does."""
        raise NotImplementedError

    @cached_property
    def sha256(self) -> str:
        """The hex digest of the file's bytes."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text without their ends."""
        raise NotImplementedError

    def place(self, document: int = 0, path: Path = (), *, key: bool = False) -> Place:
        """The place of a value (or of its key) by its path in a document."""
        return Place(self, document, path, key)

    def __repr__(self) -> str:
        return f"SourceFile({self.name!r})"


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a document of a file; where that is in the text is worked out only when asked."""

    source: SourceFile
    document: int
    path: Path
    on_key: bool = False

    def span(self) -> Span:
        """The span of the value, or of the key itself (`on_key`); a path that is not there falls back to the key of its nearest parent."""
        raise NotImplementedError

    def child(self, *parts: str | int) -> Place:
        """The place further down."""
        return Place(self.source, self.document, (*self.path, *parts))

    def key(self) -> Place:
        """The place of the key of this value."""
        return Place(self.source, self.document, self.path, True)

    @property
    def file_line(self) -> str:
        """The place as `file:line:column`."""
        return str(self.span())

    def find(self, fragment: str) -> Span:
        """The span of a piece of text inside this scalar (a reference in an expression), else `span()`."""
        raise NotImplementedError
