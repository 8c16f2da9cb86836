"""An inventory that was written in another form: the data as ours, with places in the text as it was written."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from kubexm_spec.diagnostics import Span
from kubexm_spec.yaml.lines import LineTable
from kubexm_spec.yaml.positions import Range
from kubexm_spec.yaml.source import Path, SourceFile, decode

Locate = Callable[[Path, Path, bool], Range]
"""Where something is in the text: by the origin of a value, the path below it, and whether its key is meant."""


class Unfinished(Struct, frozen=True):
    """How a host of ansible's is reached, if expressions say so; they are evaluated when its variables are known."""

    expressions: Mapping[str, str]
    known: Mapping[str, Any]
    """What says so without an expression."""
    origins: Mapping[str, Path]
    """Where the expressions were written."""


class Body(Struct):
    """An inventory as plain data in our form, and where its parts were written (``origins``, by path in ``data``)."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, Path] = field(default_factory=dict)
    unfinished: dict[int, Unfinished] = field(default_factory=dict)
    """By the number of the host."""


class TextSource(SourceFile):
    """A file that is no YAML of ours: its text, for places and digests."""

    def __init__(self, name: str, path: pathlib.Path, data: bytes) -> None:
        self.name = name
        self.path = path.absolute()
        self.data = data
        self.text = decode(data, name)
        self._table = LineTable(self.text)
        self.documents = []


class PrintedSource(SourceFile):
    """What a program printed; it is known by its own bytes, since it may print something else the next time."""

    def __init__(self, program_name: str, path: pathlib.Path, text: str, program: bytes) -> None:
        super().__init__(f"{program_name} --list", path.absolute(), text.encode("utf-8", "surrogatepass"))
        self.printed_by = program_name
        self.__dict__["sha256"] = hashlib.sha256(program).hexdigest()


class FolderSource(TextSource):
    """A folder: what is said about it as a whole has no line."""

    virtual = True

    def __init__(self, name: str, path: pathlib.Path) -> None:
        super().__init__(name, path, b"")


class ConvertedSource(SourceFile):
    """A file whose one document is an inventory in our form, whatever the form of its text."""

    def __init__(self, name: str, path: pathlib.Path, text: str, body: Body | None, locate: Locate) -> None:
        self.name = name
        self.path = path
        self.data = text.encode("utf-8", "surrogatepass")
        self.text = text
        self.broken = body is None
        """It could not be read; there are findings, and this only shows what they point to."""
        body = body or Body()
        self.documents = [body.data]
        self._table = LineTable(text)
        self._origins: Mapping[Path, Path] = body.origins
        self._locate = locate
        self.parts: Sequence[SourceFile] = [self]
        """The files that it was made of."""

    def range_of(self, document: int, path: Path, on_key: bool) -> Range:
        """The offsets in the text of what a path of the converted document came from."""
        for length in range(len(path), -1, -1):
            origin = self._origins.get(path[:length])
            if origin is not None:
                return self._locate(origin, path[length:], on_key)
        return self._locate((), (), False)


class Part(Struct, frozen=True):
    """One file of several, and where things are in it."""

    source: SourceFile
    locate: Locate


class MergedSource(ConvertedSource):
    """An inventory of several files as one text; an origin begins with the number of its file."""

    of_ansible = True

    def __init__(self, name: str, path: pathlib.Path, parts: Sequence[Part], body: Body | None) -> None:
        super().__init__(name, path, "\n".join(part.source.text for part in parts), body, self._find)
        self.parts = [part.source for part in parts]
        self._locates = [part.locate for part in parts]
        self.unfinished: Mapping[int, Unfinished] = body.unfinished if body is not None else {}
        self._starts = [0, *itertools.accumulate(len(part.source.text) + 1 for part in parts[:-1])]

    def span(self, origin: Path) -> Span:
        """Where something was written."""
        return self.span_of(self._find(origin, (), False))

    def _find(self, origin: Path, rest: Path, on_key: bool) -> Range:
        number = int(origin[0]) if origin else 0
        start, end = self._locates[number](origin[1:], rest, on_key)
        return self._starts[number] + start, self._starts[number] + end

    def span_of(self, where: Range) -> Span:
        """The span of a range of offsets, in the file that it is in."""
        number = bisect.bisect_right(self._starts, where[0]) - 1
        start = self._starts[number]
        return self.parts[number].span_of((where[0] - start, where[1] - start))


class VirtualSource(ConvertedSource):
    """An inventory that is in no file."""

    virtual = True


def in_document(source: SourceFile) -> Locate:
    """Origins are paths in the first document of a file."""
    return lambda origin, rest, on_key: source.range_of(0, (*origin, *rest), on_key) if source.text else (0, 0)


def in_text() -> Locate:
    """Origins are offsets: where it begins and where it ends."""
    return lambda origin, rest, on_key: (int(origin[0]), int(origin[1])) if len(origin) == 2 else (0, 0)
