"""Sends a file of the control node to a host: streamed, atomic, and for large ones resumed where it was cut."""

from __future__ import annotations

import hashlib
import os
import posixpath
import secrets
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from kubexm_exec.connectors.filescripts import BEGIN, BLOCK, DROP, FINISH, LOOK, mode_argument, owner_argument
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, StepFailed
from kubexm_exec.runner.commands import execute, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.transfers import Source
from kubexm_exec.safepaths import WAY

LARGE: Final = 8 << 20
"""Bytes from which on a file waits for its turn, shows its progress, and is resumed."""
SMALL: Final = 64 << 10
"""Bytes up to which a file is sent in one round trip."""
_CUT: Final = 95
_DAMAGED: Final = 96

# A part is bound to what it will be and to its place; where others may write too, it is a folder of our own with the
# file in it. It is taken by renaming it, so that nobody else goes on with it,
# and only if nobody else can have a hand on it. Whoever was cut off may still write to it: the same bytes at the same
# places. Parts that nobody came back for in a day, and what killed runs left, are removed.
_CLAIM: Final = f"""{WAY}
id=$2 mine=$3
go "$1"
find . -maxdepth 1 -name '.kx-*' \\( -name '*.part' -o -name '*.tmp' \\) -mtime +0 -user "$(id -u)" \\
  -exec rm -rf -- {{}} + 2>/dev/null
best= most=-1 inside=
if shared; then inside=/$name; fi
for p in ./.kx-"$id".*.part; do
  if ! [ -L "$p" ] && [ -O "$p" ] && [ -f "$p$inside" ] && n=$(stat -c %s -- "$p$inside") && [ "$n" -gt "$most" ]
  then best=$p most=$n; fi
done
[ -n "$best" ] && mv -fT -- "$best" "./$mine" 2>/dev/null || exit 0
file=./$mine
if [ -n "$inside" ]; then enter "$mine" || exit; file=./$name; fi
if [ -L "$file" ] || ! [ -O "$file" ] || [ "$(stat -c %h -- "$file")" != 1 ]; then rm -f -- "$file"; exit 0; fi
n=$((most / {BLOCK} * {BLOCK}))
[ "$n" -gt 0 ] || exit 0
sum=$(head -c "$n" -- "$file" | sha256sum) || exit 0
echo "$n ${{sum%% *}}"
"""
# No trap while it is written: what was cut is gone on with the next time.
_WRITE: Final = (
    BEGIN
    + LOOK
    + f"""
at=$6 sha=$7
if [ $up = . ]; then :; elif [ -d "./$tmp" ]; then enter "$tmp"; else private "$tmp"; fi || exit
if [ "$at" -eq 0 ]; then set -- conv=fsync; else set -- conv=notrunc,fsync seek=$((at / {BLOCK})); fi
said=$(dd of="$file" bs={BLOCK} "$@" 2>&1) || {{ clean; printf '%s\\n' "$said" >&2; exit 1; }}
n=$(stat -c %s -- "$file") || exit
if [ "$n" -lt "$size" ]; then case $tmp in *.part) ;; *) clean ;; esac; exit {_CUT}; fi
trap clean EXIT
[ "$n" -eq "$size" ] || exit {_DAMAGED}
if [ "$at" -gt 0 ]; then
  sum=$(sha256sum <"$file") || exit
  [ "${{sum%% *}}" = "$sha" ] || exit {_DAMAGED}
fi
"""
    + FINISH
)


class Target(Struct, frozen=True):
    """Where a file goes; mode and owner of one that is replaced are kept unless given, a new one is 0644."""

    path: str
    mode: int | None = None
    owner: str | None = None
    group: str | None = None


def source_of(session: Session, local: Path) -> Source:
    """A file on the control node with its digest, which is computed once a run."""
    try:
        return session.transfers.source(local, session.deadline, session.cancel)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StepFailed(
            f"read {local} on the control node: {reason}", hint="look whether it is there, and whether you may read it"
        ) from error


def put(session: Session, content: bytes | BinaryIO, target: Target) -> None:
    """Write a file as the connector does it best."""
    try:
        session.connector.put(
            content, target.path, mode=target.mode, owner=target.owner, group=target.group,
            deadline=session.deadline, cancel=session.cancel,
        )  # fmt: skip
    except OSError as error:
        raise file_failure(session, "write", target.path, error) from error


def send(session: Session, source: Source, target: Target) -> None:
    """Make a file of the host hold what the source holds. That it is not the same already, the caller knows."""
    if source.size <= SMALL:
        with _Outgoing(session, source) as data:
            content = data.read(source.size) + data.read(1)
        put(session, content, target)
    elif source.size < LARGE:
        _write(session, source, target, f".kx-{secrets.token_hex(8)}.tmp")
    else:
        _send_large(session, source, target)


def _send_large(session: Session, source: Source, target: Target) -> None:
    name = posixpath.basename(target.path)

    def waiting() -> None:
        session.progress(f"{name}: waits, {session.transfers.uploads} uploads are going on", None, None)

    with session.transfers.upload(session.deadline, session.cancel, waiting):
        # Of the same content for another place there may be a part too, perhaps being written right now.
        bound = hashlib.sha256(f"{source.sha256} {name}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        part = f".kx-{bound}.{secrets.token_hex(8)}.part"
        at = _claim(session, source, target, bound, part)
        try:
            _write(session, source, target, part, at)
        except _Damaged:
            # Somebody wrote to the part; from the start there is nothing that could be wrong with it.
            _write(session, source, target, part)


def _claim(session: Session, source: Source, target: Target, bound: str, part: str) -> int:
    """Take over what an earlier try has sent; how much of it is right."""
    answer = execute(session, script(_CLAIM, target.path, bound, part), check=False, live=False).out.split()
    if len(answer) != 2 or not answer[0].isdecimal():
        return 0
    at, digest = int(answer[0]), answer[1]
    if not 0 < at <= source.size:
        return 0
    with _Outgoing(session, source) as data:
        return at if data.digest_of_first(at) == digest else 0


class _Damaged(Exception):
    """What arrived is not what was sent."""


def _write(session: Session, source: Source, target: Target, temporary: str, at: int = 0) -> None:
    resumable = temporary.endswith(".part")
    arguments = (
        target.path,
        temporary,
        mode_argument(target.mode),
        owner_argument(target.owner, target.group),
        str(source.size),
        str(at),
        source.sha256,
    )
    with _Outgoing(session, source, posixpath.basename(target.path), at) as data:
        command = script(_WRITE, *arguments, stdin=data)
        try:
            result = execute(session, command, check=False, live=False)
        except (CommandTimedOut, CommandCancelled) as error:
            if not resumable:
                _remove(session, target.path, temporary)
            raise type(error)(f"while sending {target.path} ({data.done} of {source.size} bytes)") from error
        except StepFailed:
            _remove(session, target.path, temporary)
            raise
    _check(session, target.path, result)


def _check(session: Session, path: str, result: CommandResult) -> None:
    if result.exit_code == _DAMAGED:
        raise _Damaged
    if result.exit_code == _CUT:
        raise StepFailed(f"write {path}: its end did not arrive", hint="run it again: what arrived is not sent again")
    if result.exit_code in (126, 127):
        raise failure(session, script("dd"), result)
    if result.exit_code != 0:
        raise file_failure(session, "write", path, result)


def _remove(session: Session, path: str, temporary: str) -> None:
    execute(session.for_cleanup(), script(DROP, path, temporary), check=False, live=False)


class _Outgoing:
    """What is read of a source while it is sent; it is refused if it is not what it was when its digest was made."""

    def __init__(self, session: Session, source: Source, name: str = "", at: int = 0) -> None:
        self._session = session
        self._source = source
        self._name = name
        self.done = at

    def __enter__(self) -> _Outgoing:
        try:
            self._file = self._source.path.open("rb", buffering=0)
        except OSError as error:
            raise self._unreadable(error) from error
        self._file.seek(self.done)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int, /) -> bytes:
        try:
            data = self._file.read(size) or b""
        except OSError as error:
            raise self._unreadable(error) from error
        self.done += len(data)
        # Before the end is told: a host that never hears of it puts nothing in place.
        if not data and not (self._source.is_now(self._file.fileno()) and self.done == self._source.size):
            raise StepFailed(
                f"{self._source.path} on the control node was written to while it was sent",
                hint="nothing was changed on the host; run it again when nobody writes to the file",
            )
        if self._name and self._source.size >= LARGE:
            self._session.progress(f"upload {self._name}", self.done, self._source.size)
        return data

    def digest_of_first(self, size: int) -> str:
        """The digest of so many of its first bytes."""
        digest = hashlib.sha256()
        left = size
        while left and (data := self._file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
        return digest.hexdigest()

    def _unreadable(self, error: OSError) -> StepFailed:
        reason = (error.strerror or str(error)).lower()
        return StepFailed(f"read {self._source.path} on the control node: {reason}")


def path_of(file: object) -> Path | None:
    """The path of an open local file that is to be sent from its start; None if it is something else."""
    name = getattr(file, "name", None)
    if not isinstance(name, str | os.PathLike) or not hasattr(file, "fileno"):
        return None
    path = Path(name)
    try:
        same = os.path.samestat(path.stat(), os.fstat(file.fileno()))
        return path if same and path.is_file() and file.tell() == 0 else None  # type: ignore[attr-defined]
    except OSError:
        return None
