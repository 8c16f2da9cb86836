"""Bundles: a folder or one file with everything that specs need from elsewhere, for places without a network."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, cast

from msgspec import Struct

from kubexm_exec.http.messages import shown_url
from kubexm_exec.model.data import builtins
from kubexm_exec.ownership import own_folder
from kubexm_exec.resources.cache import digest_of, read_json, write_json
from kubexm_exec.resources.source import LocalResource, ResourceError, Source

INDEX: Final = "index.json"
FORMAT: Final = 1
_FILES: Final = "files"
_ARCHIVES: Final = (".tar", ".tar.gz", ".tar.zst")
_LARGEST_INDEX: Final = 64 << 20
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
            same_source = same_source and (source.kind != "image" or entry.variant == source.variant)
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


def is_archive(target: Path) -> bool:
    """Whether a bundle of that name is one file, not a folder."""
    return target.name.endswith(_ARCHIVES)


def check_bundle(target: Path) -> None:
    """Raise ResourceError if a bundle cannot be put there without replacing what is none of its own."""
    if is_archive(target):
        if target.is_dir():
            raise ResourceError(f"{target} is a folder", "name a file, or a folder without .tar in its name")
        if target.name.endswith(".zst"):
            _zstd()
        if target.exists():
            with tempfile.TemporaryDirectory() as folder:
                _read_index(target, Path(folder))
        return
    if target.exists() and not target.is_dir():
        raise ResourceError(f"{target} exists and is not a folder", "choose another folder with -o")
    for _ in _entries(target):
        pass


def write_bundle(target: Path, files: Iterable[tuple[Source, LocalResource]]) -> list[Entry]:
    """Put files into a bundle, and write its index; what was in a folder before stays in it.

    The same files give the same bytes. An archive is written beside its name first, and takes its place when it is
    whole.
    """
    items = sorted(files, key=lambda item: (item[0].name, item[0].variant, item[0].shown))
    try:
        added = _write_archive(target, items) if is_archive(target) else _write_folder(target, items)
    except OSError as error:
        raise ResourceError(
            f"the bundle {target} cannot be written: {(error.strerror or str(error)).lower()}",
            "choose another place with -o",
        ) from error
    return added


def _entry(source: Source, local: LocalResource) -> Entry:
    file = f"{_FILES}/{local.sha256}/{source.filename}"
    return Entry(source.name, source.variant, source.shown, local.sha256, local.size, file)


def _index(entries: Iterable[Entry]) -> dict[str, Any]:
    return {"format": FORMAT, "resources": [entry.to_json() for entry in entries]}


def _write_folder(folder: Path, items: Sequence[tuple[Source, LocalResource]]) -> list[Entry]:
    (folder / _FILES).mkdir(parents=True, exist_ok=True)
    known = {(entry.name, entry.variant, entry.source): entry for entry in Bundle(folder).entries}
    added: list[Entry] = []
    for source, local in items:
        entry = _entry(source, local)
        target = folder / entry.file
        if not target.exists() or digest_of(target)[0] != local.sha256:
            target.parent.mkdir(exist_ok=True)
            _copy(local.path, target)
        known[entry.name, entry.variant, entry.source] = entry
        added.append(entry)
    write_json(folder / INDEX, _index(known[key] for key in sorted(known)))
    (folder / INDEX).chmod(0o644)
    return added


def _write_archive(target: Path, items: Sequence[tuple[Source, LocalResource]]) -> list[Entry]:
    added = [_entry(source, local) for source, local in items]
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with _compressed(temporary, target.name) as file, tarfile.open(fileobj=file, mode="w|") as tar:
            content = json.dumps(_index(added), ensure_ascii=False, indent=1).encode() + b"\n"
            _add(tar, INDEX, len(content), io.BytesIO(content))
            paths = {entry.file: local for entry, (_, local) in zip(added, items, strict=True)}
            for name, local in sorted(paths.items()):
                with local.path.open("rb") as source:
                    _add(tar, name, local.size, source)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return added


def _add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o644, size
    tar.addfile(entry, content)


@contextlib.contextmanager
def _compressed(path: Path, name: str) -> Iterator[IO[bytes]]:
    """A file to write to, compressed as its final name says; nothing in it depends on the time."""
    with path.open("wb") as file:
        if name.endswith(".gz"):
            with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
                yield cast("IO[bytes]", packed)
        elif name.endswith(".zst"):
            with _piped([_zstd(), "-q", "-c"], stdin=subprocess.PIPE, stdout=file) as process:
                if process.stdin is None:
                    raise RuntimeError("a pipe was asked for")
                yield process.stdin
        else:
            yield file
        os.fsync(file.fileno())


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[IO[bytes]]:
    """What is in a file that may be compressed."""
    if path.name.endswith(".gz"):
        with gzip.open(path) as unpacked:
            yield cast("IO[bytes]", unpacked)
    elif path.name.endswith(".zst"):
        command = [_zstd(), "-q", "-d", "-c", "--", str(path.absolute())]
        with _piped(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, early=True) as process:
            if process.stdout is None:
                raise RuntimeError("a pipe was asked for")
            yield process.stdout
    else:
        with path.open("rb") as file:
            yield file


@contextlib.contextmanager
def _piped(command: list[str], *, early: bool = False, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is written to or read from; ``early``: what it says need not be read to its end."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, **streams) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        said = process.stderr.read().decode("utf-8", "replace").strip() if process.stderr is not None else ""
        if process.wait() != 0 and not early:
            raise OSError(f"zstd: {said}")


def _zstd() -> str:
    program = shutil.which("zstd")
    if program is None:
        raise ResourceError("the program zstd is not installed", "install it, or use .tar.gz or .tar")
    return program


def _read_index(archive: Path, folder: Path) -> None:
    """Put the index of an archive, which is the first thing in it, into a folder; raises ResourceError."""
    try:
        with _plain(archive) as file, tarfile.open(fileobj=file, mode="r|") as tar:
            first = tar.next()
            index = tar.extractfile(first) if first is not None and first.name == INDEX else None
            if index is None:
                raise ResourceError(f"{archive} is not a bundle: it does not begin with {INDEX}", _MAKE)
            (folder / INDEX).write_bytes(index.read(_LARGEST_INDEX))
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise ResourceError(f"the bundle {archive} cannot be read: {error}", _MAKE) from error
    for _ in _entries(folder):
        pass


def unpacked(archive: Path, cache: Path) -> Path:
    """The folder with the files of an archive, unpacked once below ``cache``; raises ResourceError.

    It is named by its index, which holds the digests of all files; these are verified where they are used.
    """
    own_folder(cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".bundle-") as scratch:
        work = Path(scratch)
        _read_index(archive, work)
        folder = cache / digest_of(work / INDEX)[0]
        if folder.is_dir():
            os.utime(folder)
            return folder
        wanted = {entry.file for entry in _entries(work)}
        try:
            with _plain(archive) as file, tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.name in wanted and member.isfile() else None
                    if content is not None:
                        target = work / member.name
                        target.parent.mkdir(parents=True, exist_ok=True)
                        with target.open("wb") as copy:
                            shutil.copyfileobj(content, copy, 1 << 20)
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            raise ResourceError(f"the bundle {archive} cannot be read: {error}", _MAKE) from error
        # Another process may have been quicker.
        with contextlib.suppress(OSError):
            work.rename(folder)
            work.mkdir()
    return folder


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        shutil.copyfile(source, temporary)
        temporary.chmod(0o644)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
