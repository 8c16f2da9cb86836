"""The state of a path on a host."""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct

Kind = Literal["absent", "file", "directory", "link", "other"]


class FileState(Struct, frozen=True):
    """What is at a path; the link itself if it is one."""

    path: str
    kind: Kind = "absent"
    mode: int = 0
    owner: str = ""
    group: str = ""
    uid: int = -1
    gid: int = -1
    size: int = 0
    sha256: str = ""
    """Of the content of a file; empty if it was not asked for or may not be read."""
    target: str = ""
    """Of a link."""
    to_folder: bool = False
    """Of a link: whether it leads to a folder."""
    device: int = -1
    """The number of its file system."""
    above: int | None = 0
    """How many of the folders above it are absent too; None if something else is in their place."""

    @property
    def exists(self) -> bool:
        """Whether the path exists."""
        return self.kind != "absent"

    @property
    def folder(self) -> bool:
        """Whether its folder exists."""
        return self.above == 0

    @property
    def seen(self) -> str | None:
        """What tells later whether it has changed: the digest of a file, empty if there is none; None: unknown."""
        return "" if self.kind == "absent" else self.sha256 or None

    def holds(self, data: bytes) -> bool:
        """Whether a file has this content, as far as is known."""
        if not self.sha256:
            return len(data) == self.size
        return hashlib.sha256(data).hexdigest() == self.sha256

    def owned_by(self, owner: str | None, group: str | None) -> bool:
        """Whether it has this owner and group (names or numbers); None matches any."""
        return owner in (None, self.owner, str(self.uid)) and group in (None, self.group, str(self.gid))
