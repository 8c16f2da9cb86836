"""What is in an archive on the control node, with digests, so that a host can be compared without sending it."""

from __future__ import annotations

import hashlib
import lzma
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from kubexm_exec.step import StepFailed
from kubexm_exec.step.archives import Entry, EntryKind, Format, special_bits
from kubexm_steps.lib.files import local_failure


def local_entries(path: Path, fmt: Format) -> list[Entry]:
    """Everything in a local archive, under the names it has in there."""
    try:
        return _zip_entries(path) if fmt == "zip" else _tar_entries(path)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, lzma.LZMAError, zlib.error) as error:
        raise StepFailed(f"{path}: not a readable {fmt} archive: {error}", hint="is it whole? Set `sha256`") from error
    except OSError as error:
        raise local_failure("read", path, error) from error


def _tar_entries(path: Path) -> list[Entry]:
    entries = []
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile():
                file = tar.extractfile(member)
                assert file is not None
                entries.append(Entry(member.name, "file", _digest(file), special=special_bits(member.mode)))
            elif member.isdir():
                entries.append(Entry(member.name, "directory"))
            elif member.issym():
                entries.append(Entry(member.name, "link", "", member.linkname))
            else:
                special = "" if member.islnk() else "a device, a pipe or a socket"
                kind: EntryKind = "hardlink" if member.islnk() else "other"
                entries.append(Entry(member.name, kind, "", member.linkname, special))
    return entries


def _zip_entries(path: Path) -> list[Entry]:
    entries = []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                entries.append(Entry(info.filename, "directory"))
            elif stat.S_ISLNK(info.external_attr >> 16):
                entries.append(Entry(info.filename, "link", "", archive.read(info).decode("utf-8", "surrogateescape")))
            else:
                special = special_bits(info.external_attr >> 16)
                with archive.open(info) as file:
                    entries.append(Entry(info.filename, "file", _digest(file), special=special))
    return entries


def _digest(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
