"""A spec file read once, and the places in it that findings point to."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import stat
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from kubexm_spec.diagnostics import Diagnostic, Note, Span, SpecError, did_you_mean, shortened
from kubexm_spec.yaml.lines import LineTable, is_spec
from kubexm_spec.yaml.load import load_documents, unquoted
from kubexm_spec.yaml.positions import Entry, Node, Range, compose

Path = tuple[str | int, ...]

MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger files are refused unread."""


class SourceFile:
    """One file: its bytes, its text and its documents as plain Python data.

    `documents` has one entry per YAML document; an empty document is None and keeps its number.
    Data behind an anchor is shared between the places that use it: read it, do not change it.
    """

    virtual = False
    """Whether there is no such file: the text is from elsewhere and cannot be compared later."""

    printed_by = ""
    """The program that printed it, if it is no file."""
    of_ansible = False
    """Whether it is an inventory that was written for ansible, which may have hosts that are not for us."""

    _names: Mapping[int, Range] = MappingProxyType({})
    """Where mappings, by their `id()`, have their `name`. It is asked for of every step, and to find the places of all
    else takes twice as long as loading: that is done when there is something to say of them."""

    def __init__(self, name: str, path: pathlib.Path, data: bytes) -> None:
        self.name = name
        self.path = path
        self.data = data
        self.text = decode(data, name)
        self._table = LineTable(self.text)
        names: dict[int, Range] = {}
        self.documents: list[Any] = load_documents(self.text, name, names=names)
        self._names = names
        if all(document is None for document in self.documents):
            what = "is empty" if not self.text.strip() else "contains no document, only comments or markers"
            hint = "a spec begins with: apiVersion: kubexm.io/v1"
            raise _failure("empty-file", f"{name} {what}", self._table.span(name, 0, 0), hint)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, name: str | None = None) -> SourceFile:
        """Read and parse a file; raises `SpecError` with every finding for anything that is wrong with it."""
        shown = os.fspath(path) if name is None else name
        data = read_bytes(path, shown)
        try:
            return cls(shown, pathlib.Path(path).absolute(), data)
        except SpecError as error:
            if is_spec(data.decode("utf-8", "replace")):
                raise
            # From None: what the parser says holds pieces of the file.
            raise SpecError(map(unquoted, error.diagnostics)) from None

    @classmethod
    def from_text(cls, text: str, name: str = "<text>") -> SourceFile:
        """Parse text that is in memory already; raises `SpecError` as `load` does."""
        return cls(name, pathlib.Path(name).absolute(), text.encode("utf-8", "surrogatepass"))

    @cached_property
    def sha256(self) -> str:
        """The hex digest of the file's bytes."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def lines(self) -> list[str]:
        """The lines of the text without their ends."""
        return self._table.lines

    def place(self, document: int = 0, path: Path = (), *, key: bool = False) -> Place:
        """The place of a value (or of its key) by its path in a document."""
        return Place(self, document, path, key)

    def range_of(self, document: int, path: Path, on_key: bool) -> Range:
        """The offsets in the text of a value or of its key; see `Place.span` for what is not there."""
        if path and path[-1] == "name" and not on_key:
            known = self._name_of(document, path[:-1])
            if known is not None:
                return known
        root = self._roots[min(max(document, 0), len(self._roots) - 1)]  # there is one: an empty file is refused
        entry = Entry(root.head(), root)
        for part in path:
            found = entry.node.child(part)
            if found is None:
                return entry.key
            entry = found
        return entry.key if on_key else (entry.node.start, entry.node.end)

    def _name_of(self, document: int, path: Path) -> Range | None:
        """The offsets of the name of a mapping, if loading has noted them."""
        try:
            data = self.documents[document]
            for part in path:
                data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
        known = self._names.get(id(data))
        # Block scalars: without the line ends after it.
        return known and (known[0], known[0] + len(self.text[slice(*known)].rstrip()))

    def span_of(self, where: Range) -> Span:
        """The span of a range of offsets."""
        return self._table.span(self.name, *where)

    @cached_property
    def _roots(self) -> list[Node]:
        return compose(self.text)

    def __repr__(self) -> str:
        return f"SourceFile({self.name!r})"


class Place(Struct, frozen=True):
    """A path in a document of a file; where that is in the text is worked out only when asked."""

    source: SourceFile
    document: int
    path: Path
    on_key: bool = False
    notes: tuple[Note, ...] = ()
    """What findings here and further down say as well, such as who uses the document."""

    def span(self) -> Span:
        """The span of the value, or of its key (`on_key`); what is not there is shown by the key of its nearest parent.

        A value that is not written (`key:`) is shown by its key, and what has no key (an item of a list, a document)
        by its own first key.
        """
        return self.source.span_of(self.source.range_of(self.document, self.path, self.on_key))

    def child(self, *parts: str | int) -> Place:
        """The place further down."""
        return Place(self.source, self.document, (*self.path, *parts), False, self.notes)

    def key(self) -> Place:
        """The place of the key of this value."""
        return Place(self.source, self.document, self.path, True, self.notes)

    @property
    def file_line(self) -> str:
        """The place as `file:line:column`."""
        return str(self.span())

    @property
    def raw(self) -> str:
        """The text as it is written in the file, quotes and all."""
        start, end = self.source.range_of(self.document, self.path, self.on_key)
        return self.source.text[start:end]

    def find(self, fragment: str) -> Span:
        """The span of a piece of text inside this scalar (a reference in an expression), else `span()`."""
        start, end = self.source.range_of(self.document, self.path, self.on_key)
        found = _find(fragment, self.source.text[start:end])
        return self.source.span_of((start + found[0], start + found[1]) if found else (start, end))


def _find(fragment: str, raw: str) -> Range | None:
    """Where a fragment of a value is in the text it was read from: whole names first, and those inside {{ }} first."""
    words = fragment.split()
    if not words:
        return None
    before = r"(?<![\w.])" if re.match(r"\w", words[0]) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", words[-1]) else ""
    spellings = [words]
    if raw.startswith('"'):
        spellings.append([w.replace("\\", "\\\\").replace('"', '\\"') for w in words])
    elif raw.startswith("'"):
        spellings.append([w.replace("'", "''") for w in words])
    for spelling in spellings:
        middle = r"\s+".join(map(re.escape, spelling))  # line breaks in the file are spaces in the value
        for pattern in (f"{before}{middle}{after}", middle):
            found = [m.span() for m in re.finditer(pattern, raw)]
            if found:
                return next((f for f in found if _in_expression(raw, f[0])), found[0])
    return None


def _in_expression(raw: str, at: int) -> bool:
    opened = max(raw.rfind("{{", 0, at), raw.rfind("{%", 0, at))
    return opened >= 0 and opened > max(raw.rfind("}}", 0, at), raw.rfind("%}", 0, at))


def read_bytes(path: str | os.PathLike[str], name: str) -> bytes:
    """The bytes of a regular file; raises `SpecError` if it cannot be read."""
    try:
        # Not blocking: opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise _failure("not-a-file", f"{name} is {what}", None, "name a file")
            if status.st_size > MAX_BYTES:
                mib = 1024 * 1024
                summary = f"{name} is too large: {status.st_size / mib:.0f} MiB, the limit is {MAX_BYTES // mib} MiB"
                raise _failure("file-too-large", summary, None, "split it")
            return file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise _failure("file-not-found", f"there is no file {name}", None, _neighbour(path, name)) from None
    except IsADirectoryError:
        raise _failure("not-a-file", f"{name} is a folder", None, "name a file") from None
    except PermissionError:
        summary = f"{name} cannot be read: permission denied"
        raise _failure("permission", summary, None, "check its owner and mode, and those of its folder") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        raise _failure("unreadable-file", f"{shortened(name, 200)} cannot be read: {reason}", None) from None
    except ValueError:  # a NUL character in the name
        raise _failure("file-not-found", f"there is no file {name!r}", None) from None


def _neighbour(path: str | os.PathLike[str], name: str) -> str:
    wanted = pathlib.Path(name)
    try:
        names = sorted(entry.name for entry in pathlib.Path(path).absolute().parent.iterdir() if entry.is_file())
    except OSError:
        return f"there is no folder {wanted.parent} either"
    for other in (".yaml", ".yml"):
        if wanted.with_suffix(other).name in names:
            return f'did you mean "{wanted.with_suffix(other)}"?'
    return did_you_mean(wanted.name, names, "" if str(wanted.parent) == "." else str(wanted.parent))


def decode(data: bytes, name: str) -> str:
    """The text of a file; raises `SpecError` if it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        before = before.removeprefix("\ufeff")
        span = LineTable(before + "?").span(name, len(before), len(before) + 1)
        hint = "save the file as UTF-8"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            hint = "it looks like UTF-16: save the file as UTF-8"
        summary = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise _failure("not-utf8", summary, span, hint) from None


def _failure(code: str, summary: str, span: Span | None, hint: str = "") -> SpecError:
    return SpecError([Diagnostic(code, summary, span, hint=hint)])
