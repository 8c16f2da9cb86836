"""A tar archive that exists only while it is read: many small files as one stream."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.transfers import Source

_BLOCK: Final = 512
_CHUNK: Final = 1 << 18


class Member(Struct, frozen=True):
    """A file in the archive."""

    name: str
    content: bytes | Source
    mode: int = 0o600
    uid: int = 0
    gid: int = 0

    @property
    def size(self) -> int:
        """Bytes of content."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.size


class TarStream:
    """The members as GNU tar writes them, which busybox reads too; ``on_read`` is told how much content has gone."""

    def __init__(self, members: Iterable[Member], on_read: Callable[[int], object] | None = None) -> None:
        self._pieces = self._made(members)
        self._held = b""
        self._on_read = on_read
        self._now = int(time.time())
        self._done = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""
        parts, have = [self._held], len(self._held)
        while have < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
        self._held = data[size:]
        if self._on_read is not None:
            self._on_read(self._done)
        return data[:size]

    def _made(self, members: Iterable[Member]) -> Iterator[bytes]:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.mode, info.uid, info.gid, info.size, info.mtime = (
                member.mode,
                member.uid,
                member.gid,
                member.size,
                self._now,
            )
            yield info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            if isinstance(member.content, bytes):
                yield member.content
            else:
                yield from self._content(member.content)
            yield b"\0" * (-member.size % _BLOCK)
        yield b"\0" * (2 * _BLOCK)

    def _content(self, source: Source) -> Iterator[bytes]:
        left = source.size
        try:
            with source.path.open("rb", buffering=0) as file:
                while left and (data := file.read(min(left, _CHUNK))):
                    left -= len(data)
                    self._done += len(data)
                    yield data
                same = source.is_now(file.fileno())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StepFailed(f"read {source.path} on the control node: {reason}") from error
        if left or not same:
            raise StepFailed(
                f"{source.path} on the control node was written to while it was sent",
                hint="nothing was changed on the host; run it again when nobody writes to the folder",
            )
