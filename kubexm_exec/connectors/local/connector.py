"""The connector for the control node: processes and files, without a connection."""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import hashlib
import io
import os
import pwd
import secrets as random
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from kubexm_exec.connectors.base import (
    OWN_SCRIPT,
    Command,
    Connector,
    ConnectorFactory,
    OnOutput,
    Sink,
    User,
    chunks,
)
from kubexm_exec.connectors.local.guard import Guard
from kubexm_exec.connectors.local.process import run_process
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.safepaths import at, others, user_name

if TYPE_CHECKING:
    from kubexm_exec.connectors.ssh.connector import SshConnector

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
"""Variables that commands get from our own environment. Others (secrets for ``env:NAME``, a virtual environment) would
make a run depend on the shell that it was started from."""


class LocalConnector:
    """Runs commands and writes files on the machine that kubexm runs on, as its user or as another one."""

    compares: Final = True

    def __init__(
        self, host: GraphHost, secrets: Callable[[str], str], guard: Guard | None = None, *, login: bool = False
    ) -> None:
        """``guard``: shared with other hosts. ``login``: as whoever runs the program, whatever the inventory says."""
        self._host = host
        self._secrets = secrets
        self._guard = guard or Guard()
        self._guard.enter()
        self.own_mark = ""
        self._folder, self._gone = "", False
        self._user = "" if login else _another(host.becomes)
        """The user that it works as, if it is another one."""
        self._left: list[tuple[str, User]] = []
        """Marks of earlier sessions in which other users worked."""
        self._users: SshConnector | None = None
        """The way to other users of this machine."""
        self._plain: LocalConnector | None = None
        """The same as whoever runs the program, if that is another user."""
        self._lock = threading.Lock()

    @classmethod
    def for_run(cls) -> ConnectorFactory:
        """Make connectors that share one guard."""
        return functools.partial(cls, guard=Guard())

    def mark(self, own: str, left: Sequence[tuple[str, User]]) -> None:
        """Mark temporary folders; remove those of earlier sessions, whose commands have ended with them.

        Those of other users are not ended with the program: that is done before anything else is.
        """
        self.own_mark = own
        self._left = [(mark, user) for mark, user in left if _another(self._host.becomes if user is None else user)]
        for mark, _ in left:
            for place in dict.fromkeys((base_environment().get("TMPDIR") or _TEMPORARY[0], *_TEMPORARY)):
                for folder in Path(place).glob(f"kx.{mark}.*"):
                    status = folder.lstat()
                    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                        shutil.rmtree(folder, ignore_errors=True)

    def start_in(self, folder: str) -> None:
        """Run commands and resolve relative paths in a folder; if it is gone, scripts of the runner can do without."""
        self._folder, self._gone = folder, not os.path.isdir(folder)  # noqa: PTH112

    def open(self, deadline: Deadline) -> None:
        """Nothing to connect; what earlier sessions have left running as other users is ended."""
        if self._left:
            # Whatever is run, it first ends what is left.
            self._other_users().run(Command(argv=("true",)), deadline=deadline, cancel=Cancel())
            self._left = []

    def as_user(self, user: bool | str) -> Connector:
        """This machine as another user; itself, if it works as that one."""
        name = _another(user)
        if name == self._user:
            return self
        if name:
            return self._other_users().as_user(name)
        with self._lock:
            if self._plain is None:
                self._plain = LocalConnector(self._host, self._secrets, self._guard, login=True)
                self._plain.own_mark = self.own_mark
                if self._folder:
                    self._plain.start_in(self._folder)
            return self._plain

    def _other_users(self) -> SshConnector:
        from kubexm_exec.connectors.local.users import other_users

        with self._lock:
            if self._users is None:
                folder = "/" if self._gone else self._folder
                self._users = other_users(self._host, self._secrets, folder, base_environment())
                if self.own_mark:
                    self._users.mark(self.own_mark, self._left)
            return self._users

    def _other(self) -> SshConnector | None:
        """The connector that does the work, if the inventory names another user."""
        return self._other_users().as_user(self._user) if self._user else None

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        """Run a command in a session of its own; timeout and cancel kill its whole process group.

        A background child is left running when the command has ended, and its output is not waited for.
        """
        if (other := self._other()) is not None:
            return other.run(command, deadline=deadline, cancel=cancel, on_output=on_output)
        argv = ("/bin/sh", "-c", command.shell) if command.shell else command.argv
        if not argv:
            raise ValueError("a command needs argv or shell")
        env = {**base_environment(), **command.env}
        with contextlib.ExitStack() as temporary:
            if self._gone and command.cwd is None and command.argv[3:4] == (OWN_SCRIPT,):
                command = replace(command, cwd=temporary.enter_context(tempfile.TemporaryDirectory()))
            elif self._folder:
                command = replace(command, cwd=self._here(command.cwd or ""))
            return run_process(
                command, argv, env, guard=self._guard, deadline=deadline, cancel=cancel, on_output=on_output
            )

    def put(
        self,
        source: bytes | BinaryIO,
        path: str,
        *,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
        seen: str | None = None,
        deadline: Deadline,
        cancel: Cancel,
    ) -> None:
        """Write a file atomically; a link is replaced by the file, not followed."""
        if (other := self._other()) is not None:
            other.put(
                source, path, mode=mode, owner=owner, group=group, seen=seen, deadline=deadline, cancel=cancel
            )  # fmt: skip
            return
        with _named(path):
            uid, gid = _id("user", owner), _id("group", group)
            with at(self._here(path)) as (folder, name):
                before = None
                with contextlib.suppress(FileNotFoundError):
                    before = os.lstat(name, dir_fd=folder)
                if before is not None and stat.S_ISREG(before.st_mode):
                    if uid == -1:
                        _check_owner(folder, before)
                    mode = stat.S_IMODE(before.st_mode) if mode is None else mode
                    uid = before.st_uid if uid == -1 else uid
                    gid = before.st_gid if gid == -1 else gid
                mode = _DEFAULT_MODE if mode is None else mode
                _replace(folder, name, source, mode, uid, gid, seen, deadline, cancel)

    def get(self, path: str, *, deadline: Deadline, cancel: Cancel, limit: int | None = None) -> bytes:
        """The bytes of a regular file, at most ``limit`` of them."""
        if (other := self._other()) is not None:
            return other.get(path, deadline=deadline, cancel=cancel, limit=limit)
        with _named(path), _regular(self._here(path)) as file:
            return b"".join(chunks(file, _CHUNK, deadline, cancel, limit))

    def stream(self, path: str, sink: Sink, *, deadline: Deadline, cancel: Cancel) -> None:
        """Pass the bytes of a regular file on, piece by piece."""
        if (other := self._other()) is not None:
            other.stream(path, sink, deadline=deadline, cancel=cancel)
            return
        with _named(path):
            file = _regular(self._here(path))
        with file:
            pieces = chunks(file, _CHUNK, deadline, cancel)
            while True:
                with _named(path):
                    piece = next(pieces, None)
                if piece is None:
                    return
                # Outside: errors of the sink are not those of the file.
                sink(piece)

    def _here(self, path: str) -> str:
        return os.path.join(self._folder, path)  # noqa: PTH118 - for every command and file

    def close(self) -> None:
        """Leave the guard, which ends with its last host, and with it commands that still run."""
        if self._users is not None:
            self._users.close()
        if self._plain is not None:
            self._plain.close()
            self._plain = None
        self._guard.leave()


def _another(user: bool | str) -> str:
    """The name of a user, if it is another one than ours: True is root, False and an empty name are ourselves."""
    name = "root" if user is True else user or ""
    return "" if name == user_name(os.geteuid()) else name


def base_environment() -> dict[str, str]:
    """The environment of every command before its own ``env``, with the system's folders in PATH."""
    env = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    path = env.get("PATH") or _DEFAULT_PATH
    known = path.split(os.pathsep)
    env["PATH"] = os.pathsep.join([path, *(folder for folder in _SYSTEM_FOLDERS if folder not in known)])
    return env


def _regular(path: str) -> io.FileIO:
    with at(path, last=True) as (folder, name):
        # Without O_NONBLOCK, a pipe without a writer would block for ever.
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
    """Have every error name the file that was asked for, not a temporary one; an invalid name is an OSError too."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), path) from error


def _check_owner(folder: int, before: os.stat_result) -> None:
    """Refuse a file of another user in a folder that others may write, unless the folder is that user's."""
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
    seen: str | None,
    deadline: Deadline,
    cancel: Cancel,
) -> None:
    temporary = f".kx-{random.token_hex(8)}.tmp"
    fd, nameless = _temporary(folder, temporary)
    try:
        with os.fdopen(fd, "wb", buffering=0):
            for chunk in chunks(source, _CHUNK, deadline, cancel):
                _write_all(fd, chunk)
            # The owner first: a change of owner clears the set-user-id bits.
            _give(fd, uid, gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
            if nameless:
                # Only with a file descriptor, Python follows this link.
                os.link(f"/proc/self/fd/{fd}", temporary, src_dir_fd=fd, dst_dir_fd=folder, follow_symlinks=True)
        if seen is not None and _digest(folder, name) != seen:
            raise OSError(errno.ESTALE, "it is not what was seen")
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise
    _sync_folder(folder)


def _digest(folder: int, name: str) -> str | None:
    """The sha256 of a file; empty if there is none, None if it cannot be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)
        with os.fdopen(fd, "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _temporary(folder: int, name: str) -> tuple[int, bool]:
    """A new file in a folder; without a name where possible, so that nothing is left if we are killed."""
    if _NAMELESS is not None and Path("/proc/self/fd").is_dir():
        with contextlib.suppress(OSError):
            return os.open(".", os.O_WRONLY | _NAMELESS | os.O_CLOEXEC, 0o600, dir_fd=folder), True
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder), False


def _sync_folder(folder: int) -> None:
    """Make the new name durable; a folder that we may not read cannot be synced."""
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


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _id(kind: str, name: str | None) -> int:
    """The number of a user or a group; -1 for none."""
    if name is None or name.isdecimal():
        return -1 if name is None else int(name)
    try:
        return pwd.getpwnam(name).pw_uid if kind == "user" else grp.getgrnam(name).gr_gid
    except KeyError:
        raise OSError(errno.EINVAL, f"there is no {kind} {name}") from None
