"""Digests as projects publish them: a digest alone, a table of sha256sum, or the form of the BSDs."""

from __future__ import annotations

import re
from typing import Final

_ALONE: Final = re.compile(r"\s*([0-9a-fA-F]{64})\s*")
_TABLE: Final = re.compile(r"^([0-9a-fA-F]{64})\s+\*?(\S+)\s*$", re.MULTILINE)
_BSD: Final = re.compile(r"^SHA256 \(([^)]+)\) = ([0-9a-fA-F]{64})\s*$", re.MULTILINE)


def digest_in(text: str, name: str) -> str | None:
    """The sha256 of a file in a published text, or None if it is not there."""
    if alone := _ALONE.fullmatch(text):
        return alone[1].lower()
    listed = {path.rpartition("/")[2]: digest for digest, path in _TABLE.findall(text)}
    listed.update({path.rpartition("/")[2]: digest for path, digest in _BSD.findall(text)})
    found = listed.get(name)
    return found.lower() if found else None
