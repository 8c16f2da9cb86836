"""Files over SSH: the scripts that write and read them on the host, and their error messages."""

from __future__ import annotations

import errno
import os
import re
import secrets
from typing import Final

from kubexm_exec.connectors.filescripts import (
    AGAIN,
    BEGIN,
    BLOCK,
    CHANGED,
    CREATE,
    DROP,
    ENTER,
    FINISH,
    LOOK,
    MAKE,
    WRITE,
    mode_argument,
    owner_argument,
    reason_of,
    seen_argument,
)
from kubexm_exec.connectors.ssh.shell import Job
from kubexm_exec.safepaths import WAY, refusal

SMALL: Final = 64 << 10
"""Bytes up to which a file goes through the open shell, in one round trip."""
CANNOT_DECODE: Final = 97
"""The exit code of a host that has no base64."""
NOT_A_FILE: Final = "not a regular file"
_ENGLISH: Final = {"LC_ALL": "C"}

_BEGIN: Final = BEGIN + "seen=$6\n"
_NEW: Final = _BEGIN + CREATE + LOOK + MAKE
_WRITE: Final = _NEW + WRITE
_COUNT: Final = """
[ "$(stat -c %s -- "$file")" -eq "$size" ] || { echo "its end is missing" >&2; exit 1; }
"""
# The size tells whether there is a base64.
_DECODE: Final = (
    _NEW
    + f"""
said=$(base64 -d 2>/dev/null | dd bs={BLOCK} conv=fsync 2>&1 >&8) || {{ printf '%s\\n' "$said" >&2; exit 1; }}
[ "$(wc -c <"$file")" -eq "$size" ] || exit {CANNOT_DECODE}
"""
)
_KEEP: Final = "trap - EXIT\n"
_TAKE: Final = _BEGIN + AGAIN + LOOK + ENTER
# Where others may write too, the file that was checked is read, whatever has its name by then.
_READ: Final = f"""{WAY}
reach "$1"
if [ -d "./$name" ]; then echo "$1: Is a directory" >&2; exit 1; fi
if [ -e "./$name" ] && ! [ -f "./$name" ]; then echo "$1: {NOT_A_FILE}" >&2; exit 1; fi
[ -r "./$name" ] || {{ stat -- "./$name" >/dev/null && echo "$1: Permission denied" >&2; exit 1; }}
{{
  if shared && ! is_this 9 "$name"; then echo "kx: $1 was replaced while it was read" >&2; exit 1; fi
  if [ -n "$2" ]; then exec head -c "$2" <&9; else exec cat <&9; fi
}} 9<"./$name"
"""


class Writing:
    """A file that is written beside its place, and then renamed."""

    def __init__(
        self, path: str, mode: int | None, owner: str | None, group: str | None, seen: str | None = None
    ) -> None:
        self._new = f".kx-{secrets.token_hex(8)}"
        self._tmp = f"{self._new}.{secrets.token_hex(8)}.tmp"
        self._arguments = (path, self._tmp, mode_argument(mode), owner_argument(owner, group))
        self._seen = seen_argument(seen)

    def whole(self) -> Job:
        """Write lines of text and put them in place."""
        return self._job(_WRITE + FINISH)

    def sized(self, size: int) -> Job:
        """Write so many bytes, and put them in place if they are complete: the connection may end before."""
        return self._job(_WRITE + _COUNT + FINISH, str(size))

    def decoded(self, size: int) -> Job:
        """Write base64 input, and put it in place."""
        return self._job(_DECODE + FINISH, str(size))

    def fill(self) -> Job:
        """Only write the input: only the sender knows whether it is complete."""
        return self._job(_WRITE + _KEEP)

    def finish(self) -> Job:
        """Put in place what was written."""
        return self._job(_TAKE + FINISH)

    def remove(self) -> Job:
        """Remove all temporary files."""
        return _job(DROP, self._arguments[0], f"{self._new}.tmp", self._tmp)

    def _job(self, script: str, size: str = "") -> Job:
        return _job(script, *self._arguments, size, self._seen)


def reading(path: str, limit: int | None) -> Job:
    """The job that prints a file."""
    return _job(_READ, path, "" if limit is None else str(limit))


def _job(script: str, *arguments: str) -> Job:
    return Job(("/bin/sh", "-c", script, "kx", *arguments), env=dict(_ENGLISH), question=True)


def is_lines(data: bytes) -> bool:
    """Whether it can be in a script as it is."""
    return b"\0" not in data and (not data or data.endswith(b"\n"))


def check_path(path: str) -> None:
    """Refuse a path that no file can have."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "embedded null byte", path)


def file_error(exit_code: int, stderr: str, path: str) -> OSError:
    """The error that the tools of the host have reported."""
    if exit_code == CHANGED:
        return OSError(errno.ESTALE, "it is not what was seen", path)
    said, code = reason_of(stderr)
    if code is not None:
        return OSError(code, os.strerror(code), path)
    said = said or "the host gave no reason"
    if refusal(said):
        return OSError(errno.ELOOP, said, path)
    if NOT_A_FILE in said:
        return OSError(errno.EINVAL, NOT_A_FILE, path)
    nobody = re.search(r"(?:invalid|unknown) (user|group)(?:: | )['‘]?([^'’]*)['’]?$", said)
    if nobody:
        # GNU chown prints both, even if only one of them is wrong.
        user, _, group = nobody[2].partition(":")
        return OSError(errno.EINVAL, f"there is no {nobody[1]} {group or user if nobody[1] == 'group' else user}", path)
    return OSError(errno.EIO, said, path)
