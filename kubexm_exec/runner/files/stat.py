"""What is at one path of a host, in full: for specs that ask for it."""

from __future__ import annotations

import os
import re
import stat as numbers
from typing import Final, Literal

from msgspec import Struct

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import ask, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY

PathKind = Literal["absent", "file", "directory", "link", "pipe", "socket", "block-device", "char-device"]

# The answer is the path, what `stat` says, the target of a link and the digest, each ended by NUL; only the path if
# nothing is there.
_STAT: Final = f"""{WAY}
digest=$2
if [ "$3" = yes ]; then to "$1"; else at "$1"; fi || {{
  if [ -z "$why" ] && [ -L "$lost" ]; then echo "$1: Too many levels of symbolic links" >&2; exit 1; fi
  [ -z "$why" ] && ! [ -d "$lost" ] || stop
  printf '%s\\0' "$1"; exit 0
}}
if [ "$name" = . ]; then real=$PWD; else real=${{PWD%/}}/$name; fi
printf '%s\\0' "$real"
[ -e "./$name" ] || [ -L "./$name" ] || exit 0
said=$(stat -c %f/%u/%g/%s/%Y/%U/%G -- "./$name") || exit
target= sum=
if [ -L "./$name" ]; then target=$(readlink -- "./$name" && echo x) || exit; target=${{target%??}}
elif [ -f "./$name" ] && [ "$digest" = yes ]; then
  [ -r "./$name" ] || {{ echo "$1: Permission denied" >&2; exit 1; }}
  sum=$(
    if shared && ! is_this 9 "$name"; then echo "kx: $1 was replaced while it was read" >&2; exit 1; fi
    sha256sum <&9
  ) 9<"./$name" || exit
fi
printf '%s\\0%s\\0%s\\0' "$said" "$target" "${{sum%% *}}"
"""
_SAID: Final = re.compile(r"([0-9a-f]+)/(\d+)/(\d+)/(\d+)/(-?\d+)/([^/]*)/(.*)", re.DOTALL)
_KINDS: Final[dict[int, PathKind]] = {
    numbers.S_IFREG: "file",
    numbers.S_IFDIR: "directory",
    numbers.S_IFLNK: "link",
    numbers.S_IFIFO: "pipe",
    numbers.S_IFSOCK: "socket",
    numbers.S_IFBLK: "block-device",
    numbers.S_IFCHR: "char-device",
}


class PathFacts(Struct, frozen=True):
    """What is at a path; the link itself if it is one, unless it was followed."""

    path: str
    kind: PathKind = "absent"
    mode: int = 0
    owner: str = ""
    group: str = ""
    uid: int = -1
    gid: int = -1
    size: int = 0
    mtime: int = 0
    """Seconds since 1970."""
    target: str = ""
    """Of a link."""
    sha256: str = ""
    """Of the content of a file, if it was asked for."""


def stat(session: Session, path: str, *, digest: bool, follow: bool) -> PathFacts:
    """The facts of a path, in one round trip; links that another user may have made are a failure."""
    yes = {True: "yes", False: "no"}
    result = ask(session, _STAT, path, yes[digest], yes[follow], question=True)
    if result.exit_code in (126, 127):
        raise failure(session, script("stat"), result)
    if result.exit_code != 0:
        raise file_failure(session, "look at", path, result)
    real, *rest = [os.fsdecode(part) for part in result.stdout.split(b"\0")[:-1]]
    if not rest:
        return PathFacts(real)
    said = _SAID.fullmatch(rest[0])
    if said is None:
        raise StepFailed(f"look at {path}: the host's `stat` gives no answer that makes sense", stdout=result.out)
    raw, uid, gid, size, mtime, owner, group = said.groups()
    return PathFacts(
        real,
        kind=_KINDS.get(numbers.S_IFMT(int(raw, 16)), "file"),
        mode=numbers.S_IMODE(int(raw, 16)),
        # A number without a name is its own name.
        owner=owner if owner != "UNKNOWN" else uid,
        group=group if group != "UNKNOWN" else gid,
        uid=int(uid),
        gid=int(gid),
        size=int(size),
        mtime=int(mtime),
        target=rest[1],
        sha256=rest[2],
    )
