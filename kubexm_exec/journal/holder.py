"""Who works on a run: enough to say it to people, and to know whether that process still lives."""

from __future__ import annotations

import getpass
import json
import os
import socket
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict


class Holder(Struct, frozen=True):
    """A process on a machine. Its number alone does not tell: numbers are used again, machines start anew."""

    user: str
    host: str
    pid: int
    boot: str = ""
    started: str = ""
    """When the process started, in the kernel's count."""

    @classmethod
    def me(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(_user(), socket.gethostname(), pid, _boot(), _started(pid))

    def alive(self) -> bool | None:
        """Whether it still runs; None if it is on another machine, where nobody can look."""
        if self.host != socket.gethostname():
            return None
        if not self.boot or self.boot != _boot():
            return False if self.boot else None
        return _started(self.pid) == self.started

    def to_json(self) -> str:
        """Text for the database."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Holder:
        """What ``to_json`` wrote."""
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return f"{self.user}@{self.host} (process {self.pid})"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Empty if there is no such process, or if it has ended and only its parent has not looked."""
    try:
        # The name in parentheses may hold anything, also spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
