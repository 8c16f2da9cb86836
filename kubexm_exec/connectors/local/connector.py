"""The connector for this very machine: processes and files without any transport."""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import io
import os
import pwd
import secrets as random
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from kubexm_exec.connectors.base import Command, ConnectorFactory, OnOutput, Sink, User
from kubexm_exec.connectors.local.guard import Guard
from kubexm_exec.connectors.local.process import run_process
from kubexm_exec.control import Cancel, Deadline, raise_if_over
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.safepaths import at, others, user_name

_NAMELESS: Final[int | None] = getattr(os, "O_TMPFILE", None)
_TEMPORARY: Final = ("/tmp", "/var/tmp")
_CHUNK: Final = 1 << 20
_DEFAULT_MODE: Final = 0o644
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_PASSED_ON: Final = frozenset(
    {
        "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR",
        "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    }
)  # fmt: skip
"""Variables of our own environment that commands see: who and where one is. The rest (secrets for ``env:NAME``,
settings of a virtual environment) would make a run depend on the shell it was started from."""


class SupportsRead(Protocol):
    """Anything that gives bytes."""

    def read(self, size: int, /) -> bytes | None:
        """At most that many bytes; none at the end."""


class LocalConnector:
    """Runs commands and writes files on the machine that kubexm itself runs on, as its own user."""

    def __init__(self, host: GraphHost, secrets: Callable[[str], str], guard: Guard | None = None) -> None:
        """``guard``: the one that it shares with other hosts."""
        self._host = host
        self._guard = guard or Guard()
        self._guard.enter()
        self.own_mark = ""
        self._folder = ""

    @classmethod
    def for_run(cls) -> ConnectorFactory:
        """Makes connectors whose commands have one guard."""
        return functools.partial(cls, guard=Guard())

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Name temporary folders by a mark; remove those that sessions with one of the others have left.

        What they had started has ended with them.
        """
        self.own_mark = own
        for mark, _ in left:
            for place in dict.fromkeys((base_environment().get("TMPDIR") or _TEMPORARY[0], *_TEMPORARY)):
                for folder in Path(place).glob(f"kx.{mark}.*"):
                    status = folder.lstat()
                    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                        shutil.rmtree(folder, ignore_errors=True)

    def start_in(self, folder: str) -> None:
        """Let commands and relative paths begin in a folder."""
        self._folder = folder

    def open(self, deadline: Deadline) -> None:
        """Nothing to connect; refuses what only a real login could do."""
        try:
            self.as_user(self._host.becomes)
        except ValueError as error:
            raise ConnectorError(f"host {self._host.name}: {error}") from None

    def as_user(self, user: bool | str) -> LocalConnector:
        """Itself, if that is the user already; it can become nobody else."""
        name = "root" if user is True else user
        if name and name != pwd.getpwuid(os.geteuid()).pw_name:
            raise ValueError(
                f"the local connector cannot become {name}: start kubexm as that user, or take `become` off"
            )
        return self

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command in a session of its own; timeout and cancel kill its whole process group.

        A child that stays in the background is left alone once the command has ended, and its output is not waited for.
        """
        argv = ("/bin/sh", "-c", command.shell) if command.shell else command.argv
        if not argv:
            raise ValueError("a command needs argv or shell")
        env = {**base_environment(), **command.env}
        if self._folder:
            command = replace(command, cwd=self._here(command.cwd or ""))
        return run_process(command, argv, env, guard=self._guard, deadline=deadline, cancel=cancel, on_output=on_output)

    def put(
        self,
        source: bytes | BinaryIO,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        deadline: Deadline,
        cancel: Cancel,
    ) -> None:
        """Write a file atomically; a link is replaced by the file, not followed."""
        with _named(path):
            uid = -1 if owner is None else _user_id(owner)
            gid = -1 if group is None else _group_id(group)
            with at(self._here(path)) as (folder, name):
                before = _lstat(name, folder)
                if before is not None and stat.S_ISREG(before.st_mode):
                    if uid == -1:
                        _check_owner(folder, before)
                    mode = stat.S_IMODE(before.st_mode) if mode is None else mode
                    uid = before.st_uid if uid == -1 else uid
                    gid = before.st_gid if gid == -1 else gid
                _replace(folder, name, source, _DEFAULT_MODE if mode is None else mode, uid, gid, deadline, cancel)

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """The bytes of a regular file, at most ``limit`` of them."""
        with _named(path), _regular(self._here(path)) as file:
            return b"".join(_chunks(file, limit, deadline, cancel))

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Hand the bytes of a regular file on piece by piece."""
        with _named(path):
            file = _regular(self._here(path))
        with file:
            pieces = _chunks(file, None, deadline, cancel)
            while True:
                with _named(path):
                    piece = next(pieces, None)
                if piece is None:
                    return
                # Outside: its errors are not those of the file.
                sink(piece)

    def _here(self, path: str) -> str:
        return os.path.join(self._folder, path)  # noqa: PTH118 - for every command and file

    def close(self) -> None:
        """Nothing is held between two calls but the guard; what was left behind ends with it."""
        self._guard.leave()


def base_environment() -> dict[str, str]:
    """What every command sees before its own ``env``: who and where one is, with the system's folders in PATH."""
    env = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    path = env.get("PATH") or _DEFAULT_PATH
    known = path.split(os.pathsep)
    env["PATH"] = os.pathsep.join([path, *(folder for folder in _SYSTEM_FOLDERS if folder not in known)])
    return env


def _regular(path: str) -> io.FileIO:
    with at(path, last=True) as (folder, name):
        # Without O_NONBLOCK a pipe without a writer would be waited for, for ever.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
        fd = os.open(name, flags, dir_fd=folder)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return io.FileIO(fd)
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "not a regular file")


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Let every error name the file that was asked for, not a temporary one; also that of a name that cannot be."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error


def _check_owner(folder: int, before: os.stat_result) -> None:
    """Where others may put files, one of theirs may wait for what is written into it; not if all the folder is his."""
    if before.st_uid not in (0, os.geteuid(), os.fstat(folder).st_uid) and (who := others(folder)):
        raise OSError(
            errno.EEXIST,
            f"it is a file of user {user_name(before.st_uid)}, and {who} may put files there: "
            "give it an owner, or remove it first",
        )


def _replace(
    folder: int,
    name: str,
    source: bytes | BinaryIO,
    mode: int,
    uid: int,
    gid: int,
    deadline: Deadline,
    cancel: Cancel,
) -> None:
    temporary = f".kx-{random.token_hex(8)}.tmp"
    fd, nameless = _temporary(folder, temporary)
    try:
        with os.fdopen(fd, "wb", buffering=0):
            for chunk in _chunks(source, None, deadline, cancel):
                _write_all(fd, chunk)
            # The owner first: changing it takes the set-user-id bits off.
            _give(fd, uid, gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
            if nameless:
                # With a file descriptor Python follows the link that this name is.
                os.link(f"/proc/self/fd/{fd}", temporary, src_dir_fd=fd, dst_dir_fd=folder, follow_symlinks=True)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    _sync_folder(folder)


def _temporary(folder: int, name: str) -> tuple[int, bool]:
    """A new file in a folder; without a name where the file system can, so that whoever is killed leaves nothing."""
    if _NAMELESS is not None and Path("/proc/self/fd").is_dir():
        with contextlib.suppress(OSError):
            return os.open(".", os.O_WRONLY | _NAMELESS | os.O_CLOEXEC, 0o600, dir_fd=folder), True
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder), False


def _sync_folder(folder: int) -> None:
    """Make the new name durable; a folder that may be written to but not read cannot be synced by us."""
    with contextlib.suppress(PermissionError):
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _give(fd: int, uid: int, gid: int) -> None:
    now = os.fstat(fd)
    if uid in (-1, now.st_uid) and gid in (-1, now.st_gid):
        return
    try:
        os.fchown(fd, uid, gid)
    except PermissionError as error:
        wanted = f"user {uid} and group {gid}".replace("user -1 and ", "").replace(" and group -1", "")
        raise PermissionError(error.errno, f"{error.strerror} (it would have to belong to {wanted})") from error


def _chunks(source: bytes | SupportsRead, limit: int | None, deadline: Deadline, cancel: Cancel) -> Iterator[bytes]:
    """What is in the source, up to the limit; looks at the deadline and the cancel flag between two pieces."""
    if isinstance(source, bytes):
        raise_if_over(deadline, cancel)
        yield source if limit is None else source[:limit]
        return
    left = limit
    while left is None or left > 0:
        raise_if_over(deadline, cancel)
        chunk = source.read(_CHUNK if left is None else min(_CHUNK, left))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


def _user_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise OSError(errno.EINVAL, f"there is no user {name}") from None


def _group_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise OSError(errno.EINVAL, f"there is no group {name}") from None
