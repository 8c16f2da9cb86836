"""Who works on a run: enough to say it to people, and to know whether that process still lives."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict


class Owner(Struct, frozen=True):
    """A process on a machine. Its number alone does not tell: numbers are used again, machines start anew."""

    user: str
    host: str
    pid: int
    boot: str = ""
    started: str = ""
    """When the process started, in the kernel's count."""
    space: str = ""
    """The namespaces in which the process has that number and start; older versions did not write them down."""

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(_user(), socket.gethostname(), pid, boot_id(), _started(pid), _space())

    def alive(self) -> bool | None:
        """Whether it still runs; None if nobody can tell from here.

        That is so on another machine (or on this one before it was started anew), in another namespace, where its
        number or start is another process's, and of a process that is stopped, which may never go on.
        """
        if not self.boot or self.boot != boot_id() or self.space not in ("", _space()):
            return None
        found = _stat(self.pid)
        if not found and _is_there(self.pid):
            return None
        if not found or found[0] in "ZX" or found[19] != self.started:
            return False
        return None if found[0] in "Tt" else True

    def to_json(self) -> str:
        """Text for the database."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Owner:
        """What ``to_json`` wrote."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (process {self.pid})"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())


def boot_id() -> str:
    """Tells this start of this machine's kernel from all others; empty if the kernel does not say it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _is_there(pid: int) -> bool:
    """Whether there is such a process, also where /proc shows only one's own."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _space() -> str:
    try:
        # In another time namespace the kernel tells other starts of the same processes.
        return f"{Path('/proc/self/ns/pid').readlink()} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    found = _stat(pid)
    return found[19] if found else ""


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing if there is none."""
    try:
        # The name in parentheses may hold anything, also spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
