"""What is at a path of a host, and how that is found out for many paths with one command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kubexm_exec.connectors.base import CommandResult
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.errors import file_failure, reason_of
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.step import StepFailed

Kind = Literal["absent", "file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class FileState:
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
    """Of a file's content; empty if it was not asked for or may not be read."""
    target: str = ""
    """Of a link."""

    @property
    def exists(self) -> bool:
        """Whether there is anything."""
        return self.kind != "absent"

    def owned_by(self, owner: str | None, group: str | None) -> bool:
        """Whether it belongs to that user and that group (names or numbers); None stands for any."""
        return owner in (None, self.owner, str(self.uid)) and group in (None, self.group, str(self.gid))


# One letter a path, then a line of `stat` for each that is there, the links' targets, and the files' digests: few
# processes however many paths there are. What cannot be found is asked for once more, for the reason.
_SCRIPT: Final = r"""
kind() {
  if [ -L "$1" ]; then k=l
  elif [ -f "$1" ]; then if [ -r "$1" ]; then k=f; else k=u; fi
  elif [ -d "$1" ]; then k=d
  elif [ -e "$1" ]; then k=o
  else k=a; fi
}
digest=$1; shift
for p do kind "$p"; printf %s "$k"; done
echo
( for p do shift; kind "$p"; [ $k = a ] || set -- "$@" "$p"; done
  [ $# -eq 0 ] || stat -c '%a/%u/%g/%s/%U/%G' -- "$@" ) || exit
for p do if [ -L "$p" ]; then readlink -- "$p"; printf '\0'; fi; done
if [ "$digest" = yes ]; then
  ( for p do shift; kind "$p"; [ $k != f ] || set -- "$@" "$p"; done
    [ $# -eq 0 ] || sha256sum -- "$@" ) || exit
fi
( for p do shift; kind "$p"; [ $k != a ] || set -- "$@" "$p"; done
  [ $# -eq 0 ] || stat -c %a -- "$@" 2>&1 >/dev/null | cat >&2 )
"""
_KINDS: Final[dict[str, Kind]] = {
    "a": "absent",
    "f": "file",
    "u": "file",
    "d": "directory",
    "l": "link",
    "o": "other",
}
_STAT: Final = re.compile(r"([0-7]+)/(\d+)/(\d+)/(\d+)/([^/]*)/(.*)")
_DIGEST: Final = re.compile(r"\\?([0-9a-f]{64})  ?\*?")
_NOT_THERE: Final = {"no such file or directory", "not a directory"}
_MOST_PATHS: Final = 200
_MOST_BYTES: Final = 24 << 10
_TRIES: Final = 3


def inspect(session: Session, paths: Sequence[str], *, digest: bool = True) -> list[FileState]:
    """The state of each path; one command for up to some hundred of them."""
    states: list[FileState] = []
    for some in _portions(paths):
        states.extend(_inspect(session, some, digest))
    return states


def _portions(paths: Sequence[str]) -> Iterator[list[str]]:
    """The paths in lots that fit into one command line everywhere."""
    some: list[str] = []
    size = 0
    for path in paths:
        length = len(path.encode("utf-8", "surrogateescape")) + 1
        if some and (len(some) >= _MOST_PATHS or size + length > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(path)
        size += length
    if some:
        yield some


def _inspect(session: Session, paths: Sequence[str], digest: bool) -> list[FileState]:
    command = script(_SCRIPT, "yes" if digest else "no", *paths, max_output=8 << 20)
    for _ in range(_TRIES):
        result = execute(session, command, check=False, live=False)
        if result.exit_code == 0:
            _raise_if_hidden(session, paths, result)
            try:
                return _parse(paths, result, digest)
            except _ChangedMeanwhile:
                continue
        elif result.exit_code in (126, 127):
            break
    raise file_failure(
        session, "look at", paths[0], result, hint="the host needs sh, stat, readlink and sha256sum (GNU or busybox)"
    )


class _ChangedMeanwhile(Exception):
    """The parts of an answer do not fit together: something came or went between them."""


def _raise_if_hidden(session: Session, paths: Sequence[str], result: CommandResult) -> None:
    """A path below a folder that may not be entered looks absent, and is not."""
    for line in result.err.splitlines():
        reason, _ = reason_of(line)
        if reason and reason not in _NOT_THERE:
            path = next((path for path in paths if path in line), paths[0])
            raise file_failure(session, "look at", path, CommandResult(command="", exit_code=1, stderr=line.encode()))


def _parse(paths: Sequence[str], result: CommandResult, digest: bool) -> list[FileState]:
    kinds, _, rest = result.stdout.decode("utf-8", "surrogateescape").partition("\n")
    if len(kinds) != len(paths) or not set(kinds) <= _KINDS.keys():
        raise StepFailed(
            "the host's answer to a question about files makes no sense",
            stdout=result.out,
            stderr=result.err,
            hint="does its shell print something at every start? It must not do so without a terminal.",
        )
    rows: list[re.Match[str]] = []
    for _kind in range(len(kinds) - kinds.count("a")):
        line, _, rest = rest.partition("\n")
        row = _STAT.fullmatch(line)
        if row is None:
            raise _ChangedMeanwhile
        rows.append(row)
    targets: list[str] = []
    for _link in range(kinds.count("l")):
        target, end, rest = rest.partition("\n\0")
        if not end:
            raise _ChangedMeanwhile
        targets.append(target)
    digests = [found[1] for line in rest.split("\n") if (found := _DIGEST.match(line))]
    if digest and len(digests) != kinds.count("f"):
        raise _ChangedMeanwhile
    stats, links, sums = iter(rows), iter(targets), iter(digests)
    states = []
    for path, letter in zip(paths, kinds, strict=True):
        if letter == "a":
            states.append(FileState(path))
            continue
        mode, uid, gid, size, owner, group = next(stats).groups()
        states.append(
            FileState(
                path,
                kind=_KINDS[letter],
                mode=int(mode, 8),
                # A number without a name in the host's user table belongs to itself.
                owner=owner if owner != "UNKNOWN" else uid,
                group=group if group != "UNKNOWN" else gid,
                uid=int(uid),
                gid=int(gid),
                size=int(size),
                sha256=next(sums) if digest and letter == "f" else "",
                target=next(links) if letter == "l" else "",
            )
        )
    return states
