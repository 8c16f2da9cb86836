"""Extended attributes of files (ACLs, capabilities, labels): read and restored together with the content."""

from __future__ import annotations

import base64
import io
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import ask
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY

KINDS: Final = ("SCHILY.xattr.", "SCHILY.acl.", "RHT.security.selinux")
"""Their names in an archive."""
_HEADER: Final = 128 << 10
"""Bytes at the beginning of an archive that have all attributes of its first file."""
_OPTIONS: Final = "--xattrs '--xattrs-include=*' --acls --selinux"
# GNU tar supports all of them, whatever other tools the host has.
_ABLE: Final = "able() { tar --help 2>/dev/null | grep -q -e --xattrs-include; }\n"
TAR: Final = f"""{_ABLE}
archive() {{ if able; then tar {_OPTIONS} "$@"; else tar "$@"; fi; }}
"""
"""Begin a script with it: ``archive`` is ``tar``, with extended attributes if the host's can keep them."""
"""A piece of shell: `archive` is tar with extended attributes, if the tar of the host supports them."""
_READ: Final = f"""{WAY}{_ABLE}
go "$1"
if [ -f "./$name" ] && ! [ -L "./$name" ] && able; then
  echo tar
  tar -cf - --format=posix {_OPTIONS} -- "./$name" 2>/dev/null | if [ "$2" = all ]; then cat; else head -c "$2"; fi
else echo plain; fi
"""
# Only whether there are any; the content stays on the host. On a host with labels every file has one, which the host
# restores by its own rules.
_ANY: Final = f"""{WAY}{_ABLE}
reach "$1/."
able || {{ echo plain; exit 0; }}
tar -cf - --format=posix --no-recursion --xattrs '--xattrs-include=*' '--xattrs-exclude=security.selinux' --acls \\
  --null -T - 2>/dev/null | if grep -a -q -e 'SCHILY[.]xattr' -e 'SCHILY[.]acl'; then echo some; else echo none; fi
"""
# In a private folder beside the place, and renamed: nobody sees it before it is complete.
_WRITE: Final = f"""{WAY}
go "$1"
private "$2" || exit
tar -xpf - {_OPTIONS} && mv -fT -- "./$name" "../$name"
code=$?
leave "$2"
exit $code
"""


def read(session: Session, path: str, *, content: bool, limit: int) -> tuple[Mapping[str, str], bytes | None] | None:
    """The attributes of a file by name, with its content if that is wanted; None if the host cannot tell."""
    import tarfile

    most = "all" if content else str(_HEADER)
    result = ask(session, _READ, path, most, max_output=limit + _HEADER, question=True)
    how, _, packed = result.stdout.partition(b"\n")
    if result.exit_code != 0 or how != b"tar" or result.dropped:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r|") as tar:
            info = tar.next()
            file = tar.extractfile(info) if info is not None and content else None
            data = None if file is None else file.read()
    except (tarfile.TarError, EOFError):
        return None
    if info is None or (content and (data is None or len(data) != info.size)):
        return None
    raw = {name: value.encode("utf-8", "surrogateescape") for name, value in info.pax_headers.items()}
    return {name: base64.b64encode(raw[name]).decode() for name in sorted(raw) if name.startswith(KINDS)}, data


def have_any(session: Session, root: str, paths: Sequence[str]) -> bool | None:
    """Whether any of many files below a folder has extended attributes; None if the host cannot tell."""
    start = len(root.rstrip("/")) + 1
    names = b"".join(f"./{path[start:]}\0".encode("utf-8", "surrogateescape") for path in paths)
    result = ask(session, _ANY, root, stdin=names, question=True)
    return {"some": True, "none": False}.get(result.out.strip())


def write(session: Session, path: str, data: bytes, mode: int, uid: int, gid: int, wanted: Mapping[str, str]) -> None:
    """Write a file with its attributes; an attribute that cannot be restored is a failure."""
    import tarfile

    info = tarfile.TarInfo(f"./{posixpath.basename(path)}")
    info.size, info.mode, info.uid, info.gid = len(data), mode, uid, gid
    info.pax_headers = {
        name: base64.b64decode(value).decode("utf-8", "surrogateescape") for name, value in wanted.items()
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))
    stage = f".kx-{secrets.token_hex(8)}.tree"
    result = ask(session, _WRITE, path, stage, stdin=packed.getvalue())
    if result.exit_code != 0:
        raise file_failure(session, "write", path, result)
    now = read(session, path, content=False, limit=_HEADER)
    lost = [name for name, value in wanted.items() if now is None or now[0].get(name) != value]
    if lost:
        names = ", ".join(name.removeprefix("SCHILY.").removeprefix("RHT.") for name in lost)
        raise StepFailed(
            f"write {path}: it was restored, except for its extended attributes ({names})",
            hint="some of them only root may set, and the file system must support them",
        )
