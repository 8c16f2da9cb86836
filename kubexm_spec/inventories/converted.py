"""An inventory that was written in another form: the data as ours, with places in the text as it was written."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from kubexm_spec.positions import Range
from kubexm_spec.source import Path, SourceFile
from kubexm_spec.textlines import LineTable

Locate = Callable[[Path, Path, bool], Range]
"""Where something is in the text: by the origin of a value, the path below it, and whether its key is meant."""


class Body(Struct):
    """An inventory as plain data in our form, and where its parts were written (``origins``, by path in ``data``)."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, Path] = field(default_factory=dict)


class ConvertedSource(SourceFile):
    """A file whose one document is an inventory in our form, whatever the form of its text."""

    def __init__(
        self, name: str, path: pathlib.Path, text: str, body: Body | None, locate: Locate, *, file: bytes | None = None
    ) -> None:
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
        if file is not None:  # a program is known by its own bytes, not by what it printed
            self.__dict__["sha256"] = hashlib.sha256(file).hexdigest()

    def range_of(self, document: int, path: Path, on_key: bool) -> Range:
        """The offsets in the text of what a path of the converted document came from."""
        for length in range(len(path), -1, -1):
            origin = self._origins.get(path[:length])
            if origin is not None:
                return self._locate(origin, path[length:], on_key)
        return self._locate((), (), False)


class VirtualSource(ConvertedSource):
    """An inventory that is in no file."""

    virtual = True


def in_document(source: SourceFile) -> Locate:
    """Origins are paths in the first document of a file."""
    return lambda origin, rest, on_key: source.range_of(0, (*origin, *rest), on_key)


def in_text() -> Locate:
    """Origins are offsets: where it begins and where it ends."""
    return lambda origin, rest, on_key: (int(origin[0]), int(origin[1])) if len(origin) == 2 else (0, 0)
