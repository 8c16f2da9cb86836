"""The cache of the control node: verified files by digest, parts of downloads, and what did not fit set aside."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from msgspec import Struct

from kubexm_exec.control import Cancel
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.ownership import NotOursError, own_folder
from kubexm_exec.resources.source import LocalResource, ResourceError, Source, safe_name

_FOLDERS: Final = ("files", "parts", "records", "rejected", "locks")
_LOCK_LOOK: Final = 0.1
"""Seconds between two looks at a lock of another process: the system's own wait for one cannot be cancelled."""


def default_folder() -> Path:
    """Where the cache of this user is."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "kubexm" / "resources"


def digest_of(path: Path) -> tuple[str, int]:
    """sha256 and size of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


class Record(Struct, frozen=True):
    """The result of the last download of a source without a digest."""

    sha256: str
    size: int
    validator: str = ""
    """What the server calls this version: an ETag, or a date."""


class Pruned(Struct, frozen=True):
    """What was removed."""

    files: int = 0
    size: int = 0


class Cache:
    """One folder (0700), shared by all processes of a user; everything in it may be removed at any time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()
        self._verified: dict[str, tuple[int, int]] = {}
        """Digests that were checked, with size and time of the file then."""
        self._lock = threading.Lock()

    # finding

    def find(self, digest: str, filename: str = "") -> LocalResource | None:
        """The file with that digest, checked once by each process; under that name, if one is given."""
        home = self.folder / "files" / digest
        if not home.exists():
            return None
        self.make()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for path in sorted(home.iterdir()):
                status = path.stat()
                if not self._is_intact(digest, path, status):
                    continue
                os.utime(path)
                with self._lock:
                    self._verified[digest] = (status.st_size, status.st_ino)
                return LocalResource(self._named(path, filename), digest, status.st_size)
        return None

    @property
    def bundles(self) -> Path:
        """Where bundles that are one file are unpacked."""
        return self.folder / "bundles"

    def size(self, digest: str) -> int | None:
        """The size of the file with that digest, if it is here; it is not checked."""
        with contextlib.suppress(OSError):
            for path in sorted((self.folder / "files" / digest).iterdir()):
                return path.stat().st_size
        return None

    def _is_intact(self, digest: str, path: Path, status: os.stat_result) -> bool:
        with self._lock:
            if self._verified.get(digest) == (status.st_size, status.st_ino):
                return True
        got, _ = digest_of(path)
        if got != digest:
            # It was damaged after it was put here. It is not used, and not thrown away either.
            path.replace(self._rejected(got, path.name))
        return got == digest

    def _named(self, path: Path, filename: str) -> Path:
        """The same file under the name that was asked for: names tell programs what a file is."""
        if not filename or path.name == filename:
            return path
        other = path.with_name(safe_name(filename))
        with contextlib.suppress(FileExistsError):
            os.link(path, other)
        return other

    # keeping

    @contextlib.contextmanager
    def locked(self, key: str, cancel: Cancel) -> Iterator[None]:
        """Alone among all processes with what has this key; raises CommandCancelled."""
        self.make()
        with (self.folder / "locks" / key).open("ab") as file:
            while not _try_lock(file):
                if cancel.wait(_LOCK_LOOK):
                    raise CommandCancelled("while waiting for another process that fetches the same resource")
            yield

    def part(self, source: Source) -> Part:
        """What there is of a download."""
        self.make()
        return Part(self.folder / "parts" / source.key)

    def accept(self, part: Part, source: Source, validator: str = "") -> LocalResource:
        """Take a finished download in under its digest; one that has another than it must is set aside and refused."""
        digest, size = digest_of(part.path)
        if source.sha256 and digest != source.sha256:
            aside = self._rejected(digest, source.filename)
            part.path.replace(aside)
            part.forget()
            raise MismatchError(source, digest, aside)
        home = self.folder / "files" / digest
        home.mkdir(mode=0o700, exist_ok=True)
        target = home / source.filename
        part.path.replace(target)
        part.forget()
        _sync_folder(home)
        status = target.stat()
        with self._lock:
            self._verified[digest] = (status.st_size, status.st_ino)
        if not source.sha256:
            self.remember(source, Record(digest, size, validator))
        return LocalResource(target, digest, size, "fetched")

    def _rejected(self, digest: str, filename: str) -> Path:
        self.make()
        return self.folder / "rejected" / f"{digest[:16]}-{filename}"

    # what sources without a digest gave

    def remember(self, source: Source, record: Record) -> None:
        """Keep what a source gave; its address itself is not written down, since it may hold a token."""
        self.make()
        write_json(self._record(source), {"sha256": record.sha256, "size": record.size, "validator": record.validator})

    def record(self, source: Source) -> Record | None:
        """What a source gave the last time."""
        data = read_json(self._record(source))
        try:
            return Record(str(data["sha256"]), int(data["size"]), str(data["validator"]))
        except (KeyError, TypeError, ValueError):
            return None

    def _record(self, source: Source) -> Path:
        return self.folder / "records" / hashlib.sha256(f"{source.kind}\0{source.identity}".encode()).hexdigest()

    # housekeeping

    def make(self) -> None:
        """Make the folder, for its owner alone."""
        try:
            for folder in (self.folder, *(self.folder / name for name in _FOLDERS)):
                own_folder(folder)
        except NotOursError as error:
            raise ResourceError(f"the cache {self.folder} is not used: {error.strerror}", error.hint) from error
        except OSError as error:
            raise ResourceError(
                f"the cache {self.folder} cannot be created: {(error.strerror or str(error)).lower()}",
                "set XDG_CACHE_HOME to a writable folder",
            ) from error

    def prune(self, older_than: float) -> Pruned:
        """Remove what nobody has used for that many seconds: files, parts, and what was set aside."""
        before = time.time() - older_than
        count = size = 0
        for path in self._old(before):
            count += 1
            size += path.stat().st_size
            path.unlink()
        for bundle in self.bundles.glob("*"):
            if bundle.stat().st_mtime <= before:
                sizes = [path.stat().st_size for path in bundle.rglob("*") if path.is_file()]
                count, size = count + len(sizes), size + sum(sizes)
                shutil.rmtree(bundle)
        for home in (self.folder / "files").glob("*"):
            with contextlib.suppress(OSError):  # not empty: there are newer ones in it
                home.rmdir()
        return Pruned(count, size)

    def _old(self, before: float) -> Iterator[Path]:
        for pattern in ("files/*/*", "parts/*", "records/*", "rejected/*"):
            for path in sorted(self.folder.glob(pattern)):
                if path.stat().st_mtime > before:
                    continue
                if path.parent.name == "parts" and self._is_busy(path.name.partition(".")[0]):
                    continue
                yield path

    def _is_busy(self, key: str) -> bool:
        """Whether another process is at work on a part."""
        with contextlib.suppress(FileNotFoundError), (self.folder / "locks" / key).open("rb") as file:
            return not _try_lock(file)
        return False


class Part:
    """A download on its way: what has arrived, and what the server calls the version it is of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._notes = path.with_name(f"{path.name}.json")
        self._file: BinaryIO | None = None
        self.size = path.stat().st_size if path.exists() else 0
        notes = read_json(self._notes) if self.size else {}
        self.validator = str(notes.get("validator", ""))
        total = notes.get("total")
        self.total: int | None = total if isinstance(total, int) else None

    def begin(self, start: int, validator: str, total: int | None = None) -> None:
        """Go on behind the first ``start`` bytes, of that version, of so many."""
        if not start:
            # First of all: what is noted about a version must never stand beside bytes of another.
            self._notes.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        if (validator, total) != (self.validator, self.total) or not self._notes.exists():
            write_json(self._notes, {"validator": validator, "total": total})
        self.validator, self.total = validator, total
        self.close()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._file.truncate(start)
        self._file.seek(start)
        self.size = start

    def append(self, data: bytes) -> None:
        """Add what has arrived."""
        if self._file is None:
            raise ValueError("a part is begun before it grows")
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self.size += len(data)

    def write(self, data: bytes) -> None:
        """Add to it, as a file does."""
        self.append(data)

    def close(self, *, sync: bool = False) -> None:
        """Let go of the file; what is in it stays."""
        if self._file is not None:
            if sync:
                os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def forget(self) -> None:
        """Remove what was noted about it, once it has gone elsewhere."""
        self._notes.unlink(missing_ok=True)


class MismatchError(ResourceError):
    """What arrived is not what it must be. It is set aside, and nothing uses it."""

    def __init__(self, source: Source, digest: str, aside: Path | None = None) -> None:
        kept = f"; it is kept as {aside}" if aside is not None else ""
        super().__init__(
            f"resource {source.label}: {source.shown} has the wrong sha256: "
            f"expected {source.sha256}, got {digest}{kept}",
            "the source was changed or is damaged, or `sha256` is of another version: compare it with what its "
            "makers publish",
        )
        self.digest = digest


def _try_lock(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """What a file of ours says; nothing if it is not there, or damaged: then it is found out anew."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: Path, data: Any) -> None:
    """Write a small file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, indent=1)
        file.write("\n")
    temporary.replace(path)
