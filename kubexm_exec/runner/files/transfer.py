"""Files between the control node and a host: streamed, put in place atomically, and large uploads resumed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from kubexm_exec.connectors.base import Compares
from kubexm_exec.connectors.filescripts import (
    BEGIN,
    BLOCK,
    CHANGED,
    DROP,
    FINISH,
    LOOK,
    mode_argument,
    owner_argument,
    seen_argument,
)
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, FileChanged, StepFailed
from kubexm_exec.runner.commands import ask, failure
from kubexm_exec.runner.errors import file_failure
from kubexm_exec.runner.files.filestate import FileState
from kubexm_exec.runner.files.inspect import inspect
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.transfers import Source
from kubexm_exec.safepaths import WAY
from kubexm_exec.safepaths import at as folder_of

LARGE: Final = 8 << 20
"""Bytes from which on a file waits for a free slot, shows its progress, and is resumed."""
SMALL: Final = 64 << 10
"""Bytes up to which a file is sent in one round trip."""
_CUT, _DAMAGED = 95, 96
_TRIES: Final = 3

# The name of a part is bound to its content and its place; where others may write too, it is a private folder with the
# file in it. It is claimed by renaming it, so that only one upload resumes it, and only if nobody else can change it.
# An upload that was cut off may still write to it: the same bytes at the same offsets. Parts that are older than a day,
# and temporary files of killed runs, are removed.
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
# No trap while it is written: the next upload resumes an interrupted one.
_WRITE: Final = (
    BEGIN
    + LOOK
    + f"""
at=$6 sha=$7 seen=$8
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
    """Where a file goes; an existing file keeps its mode and owner unless given, a new one is 0644."""

    path: str
    mode: int | None = None
    owner: str | None = None
    group: str | None = None
    seen: str | None = None
    """What it replaces, as ``FileState.seen`` says; None: whatever is there."""


def source_of(session: Session, local: Path) -> Source:
    """A file on the control node with its digest, which is computed once per run."""
    try:
        return session.transfers.source(local, session.deadline, session.cancel)
    except OSError as error:
        raise local_failure("read", local, error, "check that it exists, and that you may read it") from error


def put(session: Session, content: bytes | BinaryIO, target: Target) -> None:
    """Write a file by the connector."""
    session.changes("write", target.path)
    connector, compared = session.connector, {}
    if target.seen is not None and isinstance(connector, Compares):
        compared = {"seen": target.seen}
    elif target.seen is not None and inspect(session, [target.path])[0].seen != target.seen:
        raise FileChanged(target.path)
    try:
        connector.put(
            content, target.path, mode=target.mode, owner=target.owner, group=target.group, **compared,
            deadline=session.deadline, cancel=session.cancel,
        )  # fmt: skip
    except OSError as error:
        if compared and error.errno == errno.ESTALE:
            raise FileChanged(target.path) from error
        raise file_failure(session, "write", target.path, error) from error


def send(session: Session, source: Source, target: Target) -> None:
    """Make a file of the host equal to the source; the caller knows that it is not so already."""
    session.changes("write", target.path)
    if source.size <= SMALL:
        with Outgoing(session, source) as data:
            content = data.read(source.size) + data.read(1)
        put(session, content, target)
    elif source.size < LARGE:
        _write(session, source, target, f".kx-{secrets.token_hex(8)}.tmp")
    else:
        _send_large(session, source, target)


def _send_large(session: Session, source: Source, target: Target) -> None:
    name = posixpath.basename(target.path)
    with upload_slot(session, name):
        # There may be a part of the same content for another place too, perhaps being written right now.
        bound = hashlib.sha256(f"{source.sha256} {name}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        part = f".kx-{bound}.{secrets.token_hex(8)}.part"
        at = _claim(session, source, target, bound, part)
        try:
            _write(session, source, target, part, at)
        except _Damaged:
            # Somebody else wrote to the part: start again.
            _write(session, source, target, part)


def _claim(session: Session, source: Source, target: Target, bound: str, part: str) -> int:
    """Claim the part that an earlier upload has left; returns how many of its bytes are right."""
    answer = ask(session, _CLAIM, target.path, bound, part).out.split()
    if len(answer) != 2 or not answer[0].isdecimal():
        return 0
    at, digest = int(answer[0]), answer[1]
    if not 0 < at <= source.size:
        return 0
    with Outgoing(session, source) as data:
        return at if data.digest_of_first(at) == digest else 0


class _Damaged(Exception):
    """The host has not received what was sent."""


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
        seen_argument(target.seen),
    )
    with Outgoing(session, source, posixpath.basename(target.path), at) as data:
        try:
            result = ask(session, _WRITE, *arguments, stdin=data)
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
    if result.exit_code == CHANGED:
        raise FileChanged(path)
    if result.exit_code == _CUT:
        raise StepFailed(f"write {path}: its end did not arrive", hint="run it again: the upload is resumed")
    if result.exit_code in (126, 127):
        raise failure(session, script("dd"), result)
    if result.exit_code != 0:
        raise file_failure(session, "write", path, result)


def _remove(session: Session, path: str, temporary: str) -> None:
    ask(session.for_cleanup(), DROP, path, temporary)


@contextlib.contextmanager
def upload_slot(session: Session, name: str) -> Iterator[None]:
    """One of the slots for large uploads, for which it may have to wait."""

    def waiting() -> None:
        session.progress(f"{name}: waits, {session.transfers.uploads} uploads are going on", None, None)

    with session.transfers.upload(session.deadline, session.cancel, waiting):
        yield


class Outgoing:
    """A source that is read while it is sent; refused if it has changed since its digest was computed."""

    def __init__(self, session: Session, source: Source, name: str = "", at: int = 0) -> None:
        self._session = session
        self._source = source
        self._name = name
        self.done = at

    def __enter__(self) -> Outgoing:
        try:
            self._file = self._source.path.open("rb", buffering=0)
        except OSError as error:
            raise local_failure("read", self._source.path, error) from error
        self._file.seek(self.done)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end, of which a host only hears if the source is still what it was."""
        try:
            data = self._file.read(size) or b""
        except OSError as error:
            raise local_failure("read", self._source.path, error) from error
        self.done += len(data)
        size = self._source.size
        if self.done > size or (not data and not (self.done == size and self._source.is_now(self._file.fileno()))):
            raise StepFailed(
                f"{self._source.path} on the control node was changed while it was sent",
                hint="nothing was changed on the host; run it again when nobody writes to it",
            )
        if self._name and size >= LARGE:
            self._session.progress(f"upload {self._name}", self.done, size)
        return data

    def digest_of_first(self, size: int) -> str:
        """The digest of its first bytes."""
        digest = hashlib.sha256()
        left = size
        while left and (data := self._file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
        return digest.hexdigest()


def path_of(file: object) -> Path | None:
    """The path of an open local file that is to be sent from its start; None for anything else."""
    name = getattr(file, "name", None)
    if not isinstance(name, str | os.PathLike) or not hasattr(file, "fileno"):
        return None
    path = Path(name)
    try:
        same = os.path.samestat(path.stat(), os.fstat(file.fileno()))
        return path if same and path.is_file() and file.tell() == 0 else None  # type: ignore[attr-defined]
    except OSError:
        return None


def fetch(session: Session, state: FileState, local: Path, *, mode: int) -> FileState:
    """Copy a file of the host into a local folder; returns its state. One that changes meanwhile is read again."""
    for _ in range(_TRIES):
        digest = _fetch(session, state, local, mode)
        if digest == state.sha256:
            return state
        state = inspect(session, [state.path])[0]
        if state.kind == "file" and state.sha256 == digest:
            # It changed before it was read, but not meanwhile.
            return state
        if state.kind != "file":
            raise StepFailed(f"fetch {state.path}: it was removed while it was read")
    raise StepFailed(
        f"fetch {state.path}: it keeps changing",
        hint="stop what writes to it, or make a copy first and fetch that",
    )


def _fetch(session: Session, state: FileState, local: Path, mode: int) -> str:
    name = posixpath.basename(state.path)
    temporary = f".kx-{secrets.token_hex(8)}.tmp"
    digest = hashlib.sha256()
    done = 0
    with contextlib.ExitStack() as stack:
        try:
            folder, last = stack.enter_context(folder_of(str(local)))
            # Closed to others until it is complete.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o600, dir_fd=folder)
        except OSError as error:
            raise local_failure("write", local, error, "check the folder to fetch to") from error

        def take(data: bytes) -> None:
            nonlocal done
            digest.update(data)
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(fd, view) :]
            except OSError as error:
                raise local_failure("write", local, error, "check the folder to fetch to") from error
            done += len(data)
            if state.size >= LARGE:
                session.progress(f"fetch {name}", min(done, state.size), state.size)

        try:
            try:
                session.connector.stream(state.path, take, deadline=session.deadline, cancel=session.cancel)
                os.fchmod(fd, mode)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.filename == state.path:
                raise file_failure(session, "fetch", state.path, error) from error
            raise local_failure("write", local, error, "check the folder to fetch to") from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
    return digest.hexdigest()


def local_failure(what: str, local: Path, error: OSError, hint: str = "") -> StepFailed:
    """The failure to read or write a file of the control node."""
    reason = error.strerror or str(error)
    return StepFailed(f"{what} {local} on the control node: {reason[:1].lower()}{reason[1:]}", hint=hint)
