"""Snapshots of etcd on this machine: whether a file is one, whole and unchanged."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from msgspec import Struct

from kubexm_exec.service.errors import Invalid

_PAGE: Final = 512
_DIGEST: Final = 32
"""etcd ends a snapshot with the sha256 of what is before; the database itself has whole pages."""
_BLOCK: Final = 1 << 20


class Snapshot(Struct, frozen=True):
    """A snapshot that can be restored."""

    path: str
    sha256: str


def read_snapshot(file: str, folder: str) -> Snapshot:
    """The snapshot in a file; raises Invalid if it is none, cut short or changed."""
    path = Path(folder) / file
    another = "use another snapshot, or copy this one again"
    try:
        size = path.stat().st_size
        whole, body = hashlib.sha256(), hashlib.sha256()
        with path.open("rb") as source:
            left = size - _DIGEST
            while left > 0 and (block := source.read(min(_BLOCK, left))):
                left -= len(block)
                whole.update(block)
                body.update(block)
            end = source.read()
            whole.update(end)
    except OSError as error:
        raise Invalid(f"cannot read the snapshot {file}: {(error.strerror or str(error)).lower()}") from error
    if size <= _DIGEST or size % _PAGE != _DIGEST:
        raise Invalid(f"{file} is no snapshot of etcd, or cut short: it has {size} bytes", another)
    if body.digest() != end:
        raise Invalid(
            f"the digest of the snapshot {file} is wrong: its content has changed since it was taken", another
        )
    beside = path.with_name(path.name + ".sha256")
    if beside.exists() and beside.read_text("utf-8", "replace").partition(" ")[0] != whole.hexdigest():
        raise Invalid(f"{file} is another snapshot than {beside.name} beside it says", another)
    return Snapshot(str(path), whole.hexdigest())
