"""The states of many paths on a host, with one command."""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.filestate import FileState, Kind
from kubexm_exec.runner.quote import EACH, script
from kubexm_exec.runner.session import Session
from kubexm_exec.safepaths import WAY, refusal

MOST_PATHS: Final = 200
"""Paths per command."""
LARGE: Final = 256 << 10
"""Bytes beyond which no digest of a file is computed unless a step needs it now."""


# One letter per path, then a line of `stat` for each that exists, how many folders are missing above each whose folder
# does, the targets of links, and the digests of files: few processes for any number of paths (a function has arguments
# of its own without one), and none for an absent path in a folder that can be entered. Paths in other folders are asked
# for once more, for the reason. The way to each must be trusted. The arguments are whether digests are wanted, for how
# many of the paths (for the others, digests of small files are), and the paths.
SCRIPT: Final = (
    WAY
    + r"""
kind() {
  if [ -L "$1" ]; then if [ -d "$1" ]; then k=m; else k=l; fi
  elif [ -f "$1" ]; then if [ -r "$1" ]; then k=f; else k=u; fi
  elif [ -d "$1" ]; then k=d
  elif [ -e "$1" ]; then k=o
  else k=a; fi
}
there() {
  for p do shift; kind "$p"; [ $k = a ] || set -- "$@" "$p"; done
  exec stat -c '%a/%u/%g/%s/%d/%U/%G' -- "$@"
}
sums() {
  i=0
  for p do
    shift; kind "$p"
    if [ $k = f ]; then
      if [ $i -lt "$own" ]; then [ "$digest" = no ] || set -- "$@" "$p"
      else
        s=${rows#*/*/*/}
        [ "${s%%/*}" -gt LARGE ] || set -- "$@" "$p"
      fi
    fi
    [ $k = a ] || rows=${rows#*"
"}
    i=$((i + 1))
  done
  [ $# -eq 0 ] || exec sha256sum -- "$@"
}
absent() {
  for p do shift; kind "$p"; [ $k != a ] || set -- "$@" "$p"; done
  [ $# -eq 0 ] || stat -c %a -- "$@" >/dev/null || :
}
above() {
  above=0 d=${1%/*}
  while [ -n "$d" ] && ! [ -e "$d" ] && ! [ -L "$d" ]; do d=${d%/*} above=$((above + 1)); done
  [ -d "$d/" ] || above=-
}
digest=$1 own=$2 kinds= counts= rows= sums= was=$PWD folder= near=y far=; shift 2
for p do
  if [ "${p%/*}" != "$folder" ]; then
    folder=${p%/*} near=y
    at "$p" || { [ -z "$why" ] || stop; near=n; }
  fi
  kind "$p"
  # In a short path no name is too long.
  if [ $k = a ] && { [ $near = n ] || [ ${#p} -gt 255 ]; }; then
    far=y
    if [ $near = n ]; then k=n; above "$p"; counts="$counts$above
"; fi
  fi
  kinds=$kinds$k
done
cd -- "$was"
case $kinds in *[!an]*) rows=$(there "$@") || exit ;; esac
if [ $digest = yes ] || [ $own -lt $# ]; then
  case $kinds in *f*) sums=$(sums "$@") || exit ;; esac
fi
told="$kinds${rows:+
$rows}
$counts"
case $kinds in *[lm]*)
  printf %s "$told"
  told=
  for p do if [ -L "$p" ]; then readlink -- "$p"; printf '\0'; fi; done ;;
esac
printf '%s%s\0\n' "$told" "$sums"
[ -z "$far" ] || absent "$@"
""".replace("LARGE", str(LARGE))
)
# The same for any number of paths, which are its input.
MANY: Final = f'{EACH}each {MOST_PATHS} sh -c "$1" kx "$2" {MOST_PATHS}'
_KINDS: Final[dict[str, Kind]] = {
    "a": "absent",
    "n": "absent",
    "f": "file",
    "u": "file",
    "d": "directory",
    "l": "link",
    "m": "link",
    "o": "other",
}
_STAT: Final = re.compile(r"([0-7]+)/(\d+)/(\d+)/(\d+)/(\d+)/([^/]*)/(.*)")
_DIGEST: Final = re.compile(r"\\?([0-9a-f]{64})  ?\*?")
_NOT_THERE: Final = frozenset({"no such file or directory", "not a directory"})
_LOOP: Final = os.strerror(errno.ELOOP).lower()
_MOST_BYTES: Final = 24 << 10
_LONGEST_ANSWER: Final = 256 << 20
_TRIES: Final = 3


def inspect(
    session: Session, paths: Sequence[str], *, digest: bool = True, more: Sequence[str] = ()
) -> list[FileState]:
    """The state of each path, then of ``more``, which are few and have no digest if large; in one round trip."""
    if not paths:
        return []
    wanted = "yes" if digest else "no"
    every = [*paths, *more]
    if more and not _is_short(every):
        every = list(paths)
    if _is_short(every):
        command = script(SCRIPT, wanted, str(len(paths)), *every, max_output=8 << 20, question=True)
    else:
        command = script(MANY, SCRIPT, wanted, stdin=path_list(every), max_output=_LONGEST_ANSWER)
    return asked(
        session,
        command,
        paths[0],
        lambda result: parse(session, every, Answer.of(result), result, digest=digest, own=len(paths)),
    )


def _is_short(paths: Sequence[str]) -> bool:
    """Whether they are few enough for the arguments of one command."""
    size = sum(len(path.encode("utf-8", "surrogateescape")) + 1 for path in paths)
    return len(paths) <= MOST_PATHS and size <= _MOST_BYTES


def path_list(paths: Iterable[str]) -> bytes:
    """The paths as `each` reads them."""
    return b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)


def by_folder(paths: Iterable[str]) -> list[str]:
    """The paths sorted by folder: each change to another folder costs the host a process."""
    return sorted(paths, key=posixpath.split)


T = TypeVar("T")


def asked(session: Session, command: Command, path: str, read: Callable[[CommandResult], T]) -> T:
    """The answer to a question about files, which is asked again if something changed meanwhile."""
    for _ in range(_TRIES):
        result = execute(session, command, check=False, live=False)
        if result.exit_code == 0:
            try:
                return read(result)
            except ChangedMeanwhile:
                continue
        elif result.exit_code in (126, 127) or refusal(reason_of(result.err)[0]):
            break
    raise file_failure(
        session, "look at", path, result, hint="the host needs sh, stat, readlink and sha256sum (GNU or busybox)"
    )


class ChangedMeanwhile(Exception):
    """The parts of an answer do not match: something changed between them."""


def _raise_if_hidden(session: Session, paths: Sequence[str], result: CommandResult, fine: Collection[str]) -> None:
    """Raise a failure for a path that only looks absent, because a folder above may not be entered."""
    # A message may have line breaks, as names do.
    for line in re.split(r"\n(?=stat: )", result.err):
        reason, _ = reason_of(" ".join(line.split("\n")))
        if reason and reason not in fine:
            path = next((path for path in paths if path in line), paths[0])
            raise file_failure(session, "look at", path, CommandResult(command="", exit_code=1, stderr=line.encode()))


def parse(
    session: Session,
    paths: Sequence[str],
    answer: Answer,
    result: CommandResult,
    *,
    digest: bool,
    own: int,
    loops: bool = False,
) -> list[FileState]:
    """The states in the rest of an answer, which may have several parts.

    ``own``: for how many of the paths ``digest`` tells whether digests are wanted; of the others, small files have one.
    A path behind a loop of links is a failure; with ``loops`` it is absent.
    """
    _raise_if_hidden(session, paths, result, {*_NOT_THERE, _LOOP} if loops else _NOT_THERE)
    states: list[FileState] = []
    while len(states) < len(paths):
        kinds = answer.until("\n")
        some = paths[len(states) : len(states) + len(kinds)]
        if not kinds or len(some) != len(kinds) or not set(kinds) <= _KINDS.keys():
            raise StepFailed(
                "the host's answer to a question about files makes no sense",
                stdout=result.out[:2000],
                stderr=result.err,
                hint="does its shell print something when it starts? It must not do so without a terminal.",
            )
        states += _states(some, kinds, answer, digest, own - len(states))
    return states


class Answer:
    """A text that is read piece by piece."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @classmethod
    def of(cls, result: CommandResult) -> Answer:
        """The output of a command."""
        return cls(result.stdout.decode("utf-8", "surrogateescape"))

    def until(self, mark: str) -> str:
        """The text before the mark; raises ChangedMeanwhile if there is none."""
        end = self._text.find(mark, self._at)
        if end < 0:
            raise ChangedMeanwhile
        piece = self._text[self._at : end]
        self._at = end + len(mark)
        return piece


def _states(paths: Sequence[str], kinds: str, answer: Answer, digest: bool, own: int) -> Iterator[FileState]:
    rows = [_STAT.fullmatch(answer.until("\n")) for kind in kinds if kind not in "an"]
    counts = iter([answer.until("\n") for _ in range(kinds.count("n"))])
    targets = [answer.until("\n\0") for kind in kinds if kind in "lm"]
    # No name has a NUL, so this is the end of the digests, whatever the names are.
    lines = answer.until("\0\n").split("\n")
    digests = [found[1] for line in lines if (found := _DIGEST.match(line))]
    stats, links, sums = iter(rows), iter(targets), iter(digests)
    for number, (path, letter) in enumerate(zip(paths, kinds, strict=True)):
        if letter in "an":
            count = next(counts) if letter == "n" else "0"
            yield FileState(path, above=int(count) if count.isdigit() else None)
            continue
        row = next(stats)
        if row is None:
            raise ChangedMeanwhile
        mode, uid, gid, size, device, owner, group = row.groups()
        summed = letter == "f" and (digest if number < own else int(size) <= LARGE)
        sha256 = next(sums, "") if summed else ""
        if summed and not sha256:
            raise ChangedMeanwhile
        yield FileState(
            path,
            kind=_KINDS[letter],
            mode=int(mode, 8),
            # A number without a name is its own name.
            owner=owner if owner != "UNKNOWN" else uid,
            group=group if group != "UNKNOWN" else gid,
            uid=int(uid),
            gid=int(gid),
            size=int(size),
            sha256=sha256,
            target=next(links) if letter in "lm" else "",
            to_folder=letter == "m",
            device=int(device),
        )
    if next(sums, ""):
        raise ChangedMeanwhile
