"""Which process works on a run: enough to show it, and to find out whether it is still alive."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict


class Owner(Struct, frozen=True):
    """A process on a machine. Its id alone does not identify it: ids are reused, and machines reboot."""

    user: str
    host: str
    pid: int
    boot: str = ""
    started: str = ""
    """When the process started, in the kernel's ticks."""
    space: str = ""
    """The namespaces in which id and start are valid; older versions did not record them."""

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(_user(), socket.gethostname(), pid, boot_id(), _started(pid), _space())

    def alive(self) -> bool | None:
        """Whether it still runs; None if that cannot be determined from here.

        That is so on another machine (or on this one before its last boot), in another namespace, and for a stopped
        process, which may never continue.
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
        """The owner in the text of ``to_json``."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (process {self.pid})"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())


def boot_id() -> str:
    """Identifies this boot of this machine; empty if the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _is_there(pid: int) -> bool:
    """Whether there is such a process, also where /proc shows only one's own."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _space() -> str:
    try:
        # In another time namespace the kernel reports other start times of the same processes.
        return f"{Path('/proc/self/ns/pid').readlink()} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    found = _stat(pid)
    return found[19] if found else ""


def _stat(pid: int) -> list[str]:
    """The kernel's fields for a process, from its state on; empty if there is none."""
    try:
        # The name in parentheses may itself contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
