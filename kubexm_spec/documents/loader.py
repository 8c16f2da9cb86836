"""Reads documents: each file once, each document checked once against the model of its kind."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from kubexm_spec.diagnostics import Diagnostics, Note, SpecError, did_you_mean, shortened
from kubexm_spec.documents.checking import check
from kubexm_spec.models import API_VERSION, KINDS, Document, model_of
from kubexm_spec.paths import is_file, is_folder, why_missing
from kubexm_spec.shipped import shipped_root
from kubexm_spec.yaml.source import Path, Place, SourceFile

if TYPE_CHECKING:
    from kubexm_spec.inventories import Provider

D = TypeVar("D")

SHIPPED_PREFIX = "kubexm:"


class Loaded(Struct, Generic[D], frozen=True):
    """A document and where it is from."""

    document: D
    source: SourceFile
    index: int
    prefix: Path = ()
    notes: tuple[Note, ...] = ()
    """What findings in it say as well, such as who uses it."""

    def place(self, *path: str | int) -> Place:
        """The place of something in it."""
        return Place(self.source, self.index, (*self.prefix, *path), False, self.notes)

    @property
    def folder(self) -> pathlib.Path:
        """The folder that relative paths in it start from."""
        return self.source.path.parent


class Loader:
    """Reads files once and checks documents once."""

    def __init__(
        self, diagnostics: Diagnostics, *, provider: Provider | None = None, folder: str | os.PathLike[str] = ""
    ) -> None:
        self.diagnostics = diagnostics
        self.folder = pathlib.Path(folder)
        """Where names from outside start; the working directory if it is empty."""
        self.provider = provider
        """Asks third parties' sources of inventories."""
        self.sources: dict[pathlib.Path, SourceFile | None] = {}
        self.broken: list[Place] = []
        """Documents of a known kind that do not fit their model."""
        self._documents: dict[tuple[pathlib.Path, int], Loaded[Document] | None] = {}

    def source(self, path: pathlib.Path, name: str, used_by: Place | None = None) -> SourceFile | None:
        """The file, or None with findings (which say who uses it)."""
        key = pathlib.Path(os.path.normpath(path.absolute()))
        if key not in self.sources:
            try:
                self.sources[key] = SourceFile.load(path, name=name)
            except SpecError as error:
                self.sources[key] = None
                self.diagnostics.extend(error.diagnostics, used_by)
        return self.sources[key]

    def document(self, source: SourceFile, index: int, notes: tuple[Note, ...] = ()) -> Loaded[Document] | None:
        """A document of a file as its model, or None with findings."""
        key = (source.path, index)
        if key not in self._documents:
            self._documents[key] = self._check(source, index, Place(source, index, (), notes=notes))
        return self._documents[key]

    def _check(self, source: SourceFile, index: int, place: Place) -> Loaded[Document] | None:
        data = source.documents[index]
        error = self.diagnostics.error
        if data is None:
            return None
        if not isinstance(data, dict):
            what = "list" if isinstance(data, list) else "single value"
            summary = f"a document is a mapping with apiVersion and kind; this is a {what}"
            error("not-a-document", summary, place, hint=f"start with: apiVersion: {API_VERSION}")
            return None
        version = data.get("apiVersion")
        if version is None:
            summary, hint = "the document has no apiVersion", f"add apiVersion: {API_VERSION}"
            error("missing-api-version", summary, place, hint=hint)
            return None
        if version != API_VERSION:
            code, summary = "unknown-api-version", "the apiVersion is not kubexm's"
            hint = f"write apiVersion: {API_VERSION}"
            if isinstance(version, str) and version.startswith("kubexm.io/"):
                code, hint = "newer-api-version", f"update kubexm, or write the document for {API_VERSION}"
                summary = f'apiVersion "{version}" is unknown to this version of kubexm, which supports {API_VERSION}'
            error(code, summary, place.child("apiVersion"), hint=hint)
            return None
        kind = data.get("kind")
        if kind is None:
            error("missing-kind", "the document has no kind", place, hint=f"add kind: one of {', '.join(KINDS)}")
            return None
        if kind not in KINDS:
            summary = f'there is no kind "{kind}"; there are {", ".join(KINDS)}'
            error("unknown-kind", summary, place.child("kind"), hint=did_you_mean(str(kind), KINDS))
            return None
        name = _name(data)
        what = f'{kind.lower()} "{name}"' if name else f"the {kind.lower()}"
        document = check(model_of(kind), data, place, self.diagnostics, what=what)
        if document is None:
            self.broken.append(place)
            return None
        return Loaded(document, source, index)

    def documents(self, source: SourceFile, notes: tuple[Note, ...] = ()) -> list[Loaded[Document]]:
        """All documents of a file that are well-formed."""
        loaded = (self.document(source, index, notes) for index in range(len(source.documents)))
        return [document for document in loaded if document is not None]

    def resolve(self, reference: str, base: SourceFile, kind: str, used_by: Place) -> Loaded[Document] | None:
        """The document that ``uses`` or ``inventory`` names: ``path``, ``path#name``, ``#name`` or ``kubexm:name``."""
        file_part, _, wanted = reference.partition("#")
        if file_part.startswith(SHIPPED_PREFIX):
            path = self.shipped(file_part.removeprefix(SHIPPED_PREFIX), kind, used_by)
            if path is None:
                return None
            source = self.source(path, file_part, used_by)
        elif not file_part:
            source = base
        else:
            path = base.path.parent / file_part
            shown = os.path.normpath(pathlib.Path(base.name).parent / file_part)
            if not is_file(path):
                self.not_found(path, file_part, kind, used_by)
                return None
            source = self.source(path, shown, used_by)
        if source is None:
            return None
        return self.choose(source, wanted, kind, used_by)

    def not_found(self, path: pathlib.Path, reference: str, kind: str, used_by: Place) -> None:
        """Say that there is no such file, and which one may be meant."""
        neighbours = sorted(p.name for p in path.parent.glob("*.y*ml")) if is_folder(path.parent) else []
        hint = did_you_mean(path.name, neighbours, reference.rpartition("/")[0])
        hint = hint or "paths are relative to the file that contains them"
        summary = f'the {kind.lower()} file "{shortened(reference, 200)}" {why_missing(path)}'
        self.diagnostics.error("file-not-found", summary, used_by, hint=hint)

    def shipped(self, name: str, kind: str, used_by: Place | None) -> pathlib.Path | None:
        """The file of a shipped document, or None with a finding."""
        root = shipped_root("specs")
        known = {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}
        found = known.get(name) or known.get(f"{kind.lower()}s/{name}")
        if found is None:
            candidates = [*known, *(key.partition("/")[2] for key in known if "/" in key)]
            hint = did_you_mean(name, candidates) or "shipped: " + ", ".join(sorted(known))
            self.diagnostics.error("unknown-shipped", f'kubexm ships no {kind.lower()} "{name}"', used_by, hint=hint)
        return found

    def choose(self, source: SourceFile, wanted: str, kind: str, used_by: Place) -> Loaded[Document] | None:
        """The document of a kind in a file, by its name if there are several."""
        notes = (Note("used by", used_by.span()),) if source.name != used_by.source.name else ()
        # Others are not looked into: nothing of them may be named.
        raw = [(i, d) for i, d in enumerate(source.documents) if isinstance(d, dict)]
        raw = [(i, d) for i, d in raw if str(d.get("apiVersion")).startswith("kubexm")]
        of_kind = [(i, d) for i, d in raw if d.get("kind") == kind]
        names = [_name(d) for _, d in of_kind]
        if wanted:
            chosen = [i for (i, _), name in zip(of_kind, names, strict=True) if name == wanted]
            if not chosen:
                summary = f'{source.name} has no {kind} named "{wanted}"'
                hint = did_you_mean(wanted, names) or f"it has {', '.join(names) or f'no {kind} at all'}"
                self.diagnostics.error("unknown-document", summary, used_by, hint=hint)
                return None
        else:
            chosen = [i for i, _ in of_kind]
        if not chosen:
            there = sorted({str(d.get("kind")) for _, d in raw})
            if not raw or not any(d.get("kind") in list(KINDS) for _, d in raw):
                # Nothing usable in it at all: its own findings say more than "no such kind".
                before = len(self.diagnostics)
                self.documents(source, notes)
                if len(self.diagnostics) > before:
                    return None
            summary = f"{source.name} contains no {kind}, but {', '.join(there) or 'nothing'}"
            hint = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind} is needed here"
            self.diagnostics.error("wrong-kind", summary, used_by, hint=hint)
            return None
        if len(chosen) > 1:
            summary = f"{source.name} contains {len(chosen)} documents of kind {kind}: {', '.join(names)}"
            hint = f'name one, such as "{source.path.name}#{names[0]}"'
            self.diagnostics.error("ambiguous-document", summary, used_by, hint=hint)
            return None
        return self.document(source, chosen[0], notes)


def _name(data: dict[str, object]) -> str:
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
