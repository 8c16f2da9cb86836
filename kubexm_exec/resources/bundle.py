"""Bundles: a folder with everything that specs need from elsewhere, for places without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.http.messages import shown_url
from kubexm_exec.model.data import builtins
from kubexm_exec.resources.cache import digest_of, read_json, write_json
from kubexm_exec.resources.source import LocalResource, ResourceError, Source

INDEX: Final = "index.json"
FORMAT: Final = 1
_FILES: Final = "files"
_MAKE: Final = "create it again: kubexm resources bundle SPEC -o DIR"


class Entry(Struct, frozen=True):
    """One file of a bundle, as its index names it."""

    name: str
    variant: str
    source: str
    sha256: str
    size: int
    file: str
    """Path in the bundle."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = builtins(self)
        return data


class Bundle:
    """A folder of files: one that we made, with an index, or files that somebody put there by digest or by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise ResourceError(
                f"there is no bundle {folder}",
                "create one where there is a network: kubexm resources bundle SPEC -o DIR",
            )
        self.entries = list(_entries(folder))

    def find(self, source: Source, *, by_name: bool = False) -> LocalResource | None:
        """The file of a source, verified; by the name of the resource only if that is all that is known of it.

        One that is not what the index says of it raises ResourceError: the bundle is damaged, and whoever takes it for
        whole should know.
        """
        for path, listed in self._candidates(source, by_name):
            if not path.is_file():
                continue
            digest, size = digest_of(path)
            if listed and digest != listed:
                raise ResourceError(
                    f"resource {source.label}: {path} of the bundle is damaged: expected sha256 {listed}, got {digest}",
                    _MAKE,
                )
            if not source.sha256 or digest == source.sha256:
                return LocalResource(path, digest, size, "bundle")
        return None

    def _candidates(self, source: Source, by_name: bool) -> Iterator[tuple[Path, str]]:
        """Where it may be, with the digest that the index gives; empty for files that somebody put there by hand."""
        for entry in self.entries:
            same_source = entry.source == shown_url(source.location) and "?" not in source.location
            named = by_name and (entry.name, entry.variant) == (source.name, source.variant)
            if (entry.sha256 == source.sha256) if source.sha256 else (same_source or named):
                yield self.folder / entry.file, entry.sha256
        if source.sha256:
            yield self.folder / source.sha256, ""
        yield self.folder / source.filename, ""
        if by_name:
            yield self.folder / source.name, ""


def _entries(folder: Path) -> Iterator[Entry]:
    index = folder / INDEX
    if not index.exists():
        return
    data = read_json(index)
    if data.get("format") != FORMAT or not isinstance(data.get("resources"), list):
        raise ResourceError(f"{index} is not the index of a bundle", _MAKE)
    for raw in data["resources"]:
        try:
            entry = Entry(**{key: raw[key] for key in Entry.__struct_fields__})
        except (KeyError, TypeError) as error:
            raise ResourceError(f"{index} is damaged: an entry lacks {error}", _MAKE) from error
        # An index is data from elsewhere: it must not lead out of its folder.
        inside = os.path.normpath(str(entry.file))
        if inside.startswith(("/", "..")):
            raise ResourceError(f"{index} names {entry.file}, which is not in the bundle", "do not use this bundle")
        yield entry


def check_bundle(folder: Path) -> None:
    """Raise ResourceError if a bundle cannot be put into a folder without replacing what is none of its own."""
    if folder.exists() and not folder.is_dir():
        raise ResourceError(f"{folder} exists and is not a folder", "choose another folder with -o")
    for _ in _entries(folder):
        pass


def write_bundle(folder: Path, files: Iterable[tuple[Source, LocalResource]]) -> list[Entry]:
    """Put files into a bundle, and write its index; what was in it before stays in it."""
    try:
        (folder / _FILES).mkdir(parents=True, exist_ok=True)
        known: dict[tuple[str, str, str], Entry] = {
            (entry.name, entry.variant, entry.source): entry for entry in Bundle(folder).entries
        }
        added: list[Entry] = []
        for source, local in files:
            target = folder / _FILES / local.sha256 / source.filename
            if not target.exists() or digest_of(target)[0] != local.sha256:
                target.parent.mkdir(exist_ok=True)
                _copy(local.path, target)
            entry = Entry(
                source.name,
                source.variant,
                source.shown,
                local.sha256,
                local.size,
                str(target.relative_to(folder)),
            )
            known[entry.name, entry.variant, entry.source] = entry
            added.append(entry)
        write_json(folder / INDEX, {"format": FORMAT, "resources": [entry.to_json() for entry in known.values()]})
    except OSError as error:
        raise ResourceError(
            f"the bundle {folder} cannot be written: {(error.strerror or str(error)).lower()}",
            "choose another folder with -o",
        ) from error
    (folder / INDEX).chmod(0o644)
    return added


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        shutil.copyfile(source, temporary)
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
