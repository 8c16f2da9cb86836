"""Keeps bytes for the length of a run: small ones in memory, large ones in a private folder."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

_SMALL: Final = 64 << 10
_MOST_IN_MEMORY: Final = 32 << 20


class BlobStore:
    """Bytes by the digest of their content: the same content of a thousand hosts is kept once."""

    def __init__(self) -> None:
        self._memory: dict[str, bytes] = {}
        self._held = 0
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def put(self, data: bytes) -> str:
        """Keep bytes; the token gets them back."""
        token = hashlib.sha256(data).hexdigest()
        with self._lock:
            if token in self._memory:
                return token
            if len(data) <= _SMALL and self._held + len(data) <= _MOST_IN_MEMORY:
                self._memory[token] = bytes(data)
                self._held += len(data)
                return token
            if self._folder is None:
                # mkdtemp makes it 0700: the content may be secret.
                self._folder = Path(tempfile.mkdtemp(prefix="kubexm-undo-"))
            path = self._folder / token
            if not path.exists():
                path.write_bytes(data)
        return token

    def get(self, token: str) -> bytes:
        """The bytes behind a token; raises KeyError for one that was never given out."""
        with self._lock:
            if token in self._memory:
                return self._memory[token]
            path = self._folder / token if self._folder is not None and token.isalnum() else None
            if path is None or not path.is_file():
                raise KeyError(f"nothing is kept under the token {token!r}")
        return path.read_bytes()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._memory.clear()
            self._held = 0
            folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
