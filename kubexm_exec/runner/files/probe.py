"""Reads files of a host, and the output of a piece of shell, in one round trip."""

from __future__ import annotations

import errno
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import TOOLS, execute, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY, other_names, refusal

_MOST: Final = 32 << 20

# A file is answered as `file`, the path that was asked for, its real path, its kind, its `stat` and its bytes; all else
# is a named part. Each begins with a mark that nobody can guess, since the bytes of a file are those of its writers.
# The mark is the first line of the input, because all users of the host can see arguments. What is read here is changed
# and written again, perhaps for another owner: where others may make names, it has only one.
_PRELUDE: Final = (
    TOOLS
    + WAY
    + r"""
IFS= read -r mark || exit
home=$PWD
part() { printf '%s %s\n' "$mark" "$1"; }
have() { command -v "$1" >/dev/null 2>&1; }
file() {
  part file
  printf '%s\0' "$1"
  if ! to "$1"; then
    [ -z "$why" ] || stop
    printf '%s\0nofolder\n' "$1"
  elif printf '%s\0' "${PWD%/}/$name"; [ -f "./$name" ]; then tell "$name"
  elif [ -d "./$name" ]; then echo directory
  elif [ -e "./$name" ]; then echo other
  else echo absent; fi
  code=$?
  cd -- "$home"
  return $code
}
tell() {
  if [ -r "./$1" ]; then echo file; else echo unreadable; return; fi
  both=$(stat -c %a/%u/%g/%U/%G -- . "./$1") || return
  {
    if judge "${both%%
*}"; then
      if ! is_this 9 "$1"; then echo "kx: ${PWD%/}/$1 was replaced while it was read" >&2; return 1; fi
      is=${is%/*}
      only_name "${is##*/}" "$1" || return
    fi
    printf '%s\n' "${both#*
}"
    cat <&9
  } 9<"./$1"
}
# The real path of something that need not exist, nor its folder.
place() {
  if to "$1"; then if [ "$name" = . ]; then real=$PWD; else real=${PWD%/}/$name; fi
  else
    [ -z "$why" ] || stop
    real=$1
  fi
  cd -- "$home"
}
n=$1; shift
while [ "$n" -gt 0 ]; do file "$1" || exit; shift; n=$((n - 1)); done
"""
)


class Held(Struct, frozen=True):
    """A file with its bytes; links were followed."""

    state: FileState
    data: bytes = b""

    @property
    def folder(self) -> bool:
        """Whether its folder exists."""
        return self.state.folder

    @property
    def path(self) -> str:
        """The real path of the file, whether it exists or not."""
        return self.state.path

    @property
    def exists(self) -> bool:
        """Whether the file exists."""
        return self.state.kind == "file"

    @property
    def text(self) -> str:
        """Its text; bytes that are not UTF-8 survive encoding it again."""
        return self.data.decode("utf-8", "surrogateescape")


class Look(Struct, frozen=True):
    """The answer of a host."""

    files: Mapping[str, Held]
    """By the path that was asked for."""
    parts: Mapping[str, bytes]
    """What the shell printed after each ``part NAME``; a name occurs once."""

    def text(self, name: str) -> str:
        """A part as text; empty if there is none."""
        return self.parts.get(name, b"").decode("utf-8", "surrogateescape")

    def lines(self, name: str) -> list[str]:
        """The lines of a part that are not empty."""
        return [line for line in self.text(name).split("\n") if line]


def look(
    session: Session,
    files: Sequence[str] = (),
    body: str = ":",
    *arguments: str,
    stdin: bytes | None = None,
    what: str = "look at the host",
    more: bool = False,
) -> Look:
    """Read files and run a fixed piece of shell, which prints named parts: ``part NAME``, then the content.

    It has the helpers ``part NAME``, ``have PROGRAM`` and ``place PATH`` (which sets ``real`` to the real path, and
    refuses one that leads through links of others), and the system's folders in PATH. With ``more`` it may also answer
    with files that it has found itself, by ``file PATH``.
    """
    wanted = list(dict.fromkeys(files))
    mark = secrets.token_hex(16).encode()
    read = mark + b"\n" + (stdin or b"")
    command = script(_PRELUDE + body, str(len(wanted)), *wanted, *arguments, stdin=read, max_output=_MOST)
    result = execute(session, command, check=False, live=False)
    reason = reason_of(result.err)[0]
    if result.exit_code != 0 and (refusal(reason) or other_names(reason)):
        raise file_failure(session, what, "", result)
    if result.exit_code != 0:
        raise failure(session, command, result, message=f"{what}: exit code {result.exit_code}")
    if result.dropped:
        raise StepFailed(f"{what}: the host's answer is larger than {_MOST >> 20} MiB")
    _, *chunks = result.stdout.split(mark + b" ")
    held: dict[str, Held] = {}
    parts: dict[str, bytes] = {}
    again = False
    for chunk in chunks:
        raw, _, rest = chunk.partition(b"\n")
        name = raw.decode("utf-8", "surrogateescape")
        if name == "file":
            asked, _, rest = rest.partition(b"\0")
            name = asked.decode("utf-8", "surrogateescape")
            again |= name in held
            held[name] = _held(session, rest)
        else:
            again |= name in parts
            parts[name] = rest
    found = list(held)[len(wanted) :]
    if again or list(held)[: len(wanted)] != wanted or (found and not more):
        raise StepFailed(
            f"{what}: the host's answer makes no sense",
            stdout=result.out,
            stderr=result.err,
            hint="does its shell print something when it starts? It must not do so without a terminal.",
        )
    for path in found:
        if not path.startswith("/") or ".." in path.split("/"):
            raise StepFailed(f"{what}: it leads to {path!r}", hint="only an absolute path without `..` is accepted")
    return Look(held, parts)


def _held(session: Session, said: bytes) -> Held:
    raw, _, rest = said.partition(b"\0")
    path = raw.decode("utf-8", "surrogateescape")
    kind, _, rest = rest.partition(b"\n")
    match kind:
        case b"file":
            row, _, data = rest.partition(b"\n")
            mode, uid, gid, owner, group = row.decode("utf-8", "replace").split("/")
            digest = hashlib.sha256(data).hexdigest()
            return Held(
                FileState(path, "file", int(mode, 8), owner, group, int(uid), int(gid), len(data), digest), data
            )
        case b"absent" | b"nofolder":
            return Held(FileState(path, above=0 if kind == b"absent" else None))
        case b"unreadable":
            denied = PermissionError(errno.EACCES, "permission denied")
            raise file_failure(session, "read", path, denied)
        case b"directory":
            raise StepFailed(f"read {path}: it is a folder", hint="a file is expected there: remove the folder first")
        case _:
            raise StepFailed(f"read {path}: it is a device, pipe or socket", hint="a file is expected there")
