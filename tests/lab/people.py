"""An SSH host with users, passwords and sudoers of its own, for root: they exist only inside its mount namespace."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.lab.sshd import SSHD, SshHost

PASSWORD = "it's a $ pass"
_HASH = (
    "$6$rounds=1000$8htqzpYWkw2MkDJ3$"
    "UDkJbAilwOLqxoO8KfcUr1O7K6QyytrJGO7SklErOQKyR55erQazA2/lwQcqPbnyP8tXFT3jTaRfu6jjS8/4n1"
)
USERS = ("asked", "trusted", "nobodys", "ttyonly", "other")
NAMES = ("passwd", "shadow", "group", "sudoers")
_FIRST_UID = 47000
_SUDOERS = """
Defaults passwd_tries=3
Defaults:ttyonly requiretty
root ALL=(ALL:ALL) ALL
asked ALL=(ALL:ALL) ALL
trusted ALL=(ALL:ALL) NOPASSWD: ALL
ttyonly ALL=(ALL:ALL) NOPASSWD: ALL
"""


def missing() -> str:
    """Why such a host cannot be had here, or nothing."""
    if SSHD is None or shutil.which("sudo") is None:
        return "no sshd or no sudo here: install openssh-server and sudo (as root `make test` does it)"
    if os.geteuid() != 0:
        return "users of their own need root"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "no mount namespaces here"


class PeopledHost(SshHost):
    """Its users log in with the lab's key or with PASSWORD, which is also root's."""

    def command(self) -> list[str]:
        """The server, with other files in place of those that name users."""
        etc = self.folder / "etc"
        binds = "; ".join(f"mount --bind '{etc / name}' /etc/{name}" for name in NAMES)
        return ["unshare", "-m", "sh", "-c", f'set -e; {binds}; exec "$@"', "sh", *super().command()]

    def populate(self) -> None:
        """Write the files."""
        people_files(self.folder, self.prefix)


def people_files(folder: Path, home: Path = Path("/")) -> list[Path]:
    """The files that name the people, each under its name in /etc, for a mount namespace."""
    etc = folder / "etc"
    etc.mkdir()
    people = list(enumerate(USERS, _FIRST_UID))
    entries = [f"{name}:x:{uid}:{uid}::{home}:/bin/sh" for uid, name in people]
    (etc / "passwd").write_text("\n".join(["root:x:0:0:root:/root:/bin/sh", *_system("passwd"), *entries, ""]))
    groups = [f"{name}:x:{uid}:" for uid, name in people]
    (etc / "group").write_text("\n".join(["root:x:0:", *_system("group"), *groups, ""]))
    shadow = etc / "shadow"
    shadow.write_text("".join(f"{name}:{_HASH}:20000:0:99999:7:::\n" for name in ("root", *USERS)))
    shadow.chmod(0o600)
    sudoers = etc / "sudoers"
    sudoers.write_text(_SUDOERS)
    sudoers.chmod(0o440)
    return [etc / name for name in NAMES]


def _system(name: str) -> list[str]:
    """What the machine's own file says of everybody but root: sshd has a user of its own."""
    lines = Path("/etc", name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("root:", *(f"{user}:" for user in USERS)))]


@contextlib.contextmanager
def peopled_host(*settings: str) -> Iterator[PeopledHost]:
    """A running host, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="kx-lab."))
    # Its users have to get to their keys.
    folder.chmod(0o755)
    host = PeopledHost(folder / "host", settings=("PasswordAuthentication yes", *settings))
    host.prefix.chmod(0o777)
    try:
        host.populate()
        host.start()
        yield host
    finally:
        host.stop()
        shutil.rmtree(folder, ignore_errors=True)
