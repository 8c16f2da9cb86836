"""What all transfers of a run share: digests of files on the control node, and the slots for large uploads."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from kubexm_exec.control import Cancel, Deadline, Semaphore, raise_if_over
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut

UPLOADS: Final = 10
"""Large uploads at once: more would only slow down all of them."""
_CHUNK: Final = 1 << 20

Signature = tuple[int, int, int, int]
"""Device, inode, size and time of a file, which change when somebody writes to it."""


class Source(Struct, frozen=True):
    """A file on the control node with its digest."""

    path: Path
    size: int
    sha256: str
    signature: Signature

    def is_now(self, fd: int) -> bool:
        """Whether an open file is still the one that was read."""
        return signature_of(os.fstat(fd)) == self.signature


def signature_of(info: os.stat_result) -> Signature:
    """The signature of a file."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


class Transfers:
    """Shared by all actions of a run, and their threads."""

    def __init__(self, uploads: int = UPLOADS) -> None:
        self.uploads = max(1, uploads)
        self._sources: dict[str, Source] = {}
        self._reading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._places = Semaphore(self.uploads)

    def source(self, path: Path, deadline: Deadline, cancel: Cancel) -> Source:
        """A local file with its digest; read once per run unless it changes. Raises OSError."""
        key = str(path)
        with self._lock:
            lock = self._reading.setdefault(key, threading.Lock())
        with lock:
            known = self._sources.get(key)
            if known is None or signature_of(path.stat()) != known.signature:
                known = self._sources[key] = _read(path, deadline, cancel)
            return known

    @contextlib.contextmanager
    def upload(self, deadline: Deadline, cancel: Cancel, waiting: Callable[[], object]) -> Iterator[None]:
        """A slot for a large upload; ``waiting`` is called if it has to wait for one."""
        try:
            took = self._places.take(deadline, cancel, waiting)
        except CommandCancelled:
            raise CommandCancelled("it was cancelled while it waited for its turn to upload") from None
        if not took:
            raise CommandTimedOut("while it waited for its turn to upload")
        try:
            yield
        finally:
            self._places.give_back()


def _read(path: Path, deadline: Deadline, cancel: Cancel) -> Source:
    digest = hashlib.sha256()
    # Without O_NONBLOCK, a pipe without a writer would block for ever.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise OSError(22, "not a regular file", str(path))
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            raise_if_over(deadline, cancel, f"while reading {path}")
        # As before it was read: if it was changed meanwhile, it does not match and is read again, or refused.
        return Source(path, before.st_size, digest.hexdigest(), signature_of(before))
