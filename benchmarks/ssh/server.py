"""One real sshd, reached at as many loopback addresses as there are hosts."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
_UP_TIME = 20.0
_CALM_TIME = 20.0
_TICK = os.sysconf("SC_CLK_TCK")


class NoServer(Exception):
    """There is no sshd here, or it does not start."""


@dataclass(frozen=True, slots=True)
class Host:
    """A name and the loopback address it stands for."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Site:
    """What a tool has to know to log in."""

    folder: Path
    port: int
    user: str
    key: Path
    known_hosts: Path
    hosts: tuple[Host, ...]
    keeper: int
    """The process that keeps the server."""

    def server_cpu(self) -> float:
        """Seconds that the server, its connections and all they started have worked, as far as they have ended."""
        return sum(sum(_times(pid)[which]) for pid, which in self._workers()) / _TICK

    def _workers(self) -> list[tuple[int, slice]]:
        # What the keeper does itself is nobody's; what it has reaped was left behind by connections.
        [server, *_] = _children(self.keeper)
        return [(server, slice(0, 4)), (self.keeper, slice(2, 4))]

    def calm(self) -> None:
        """Wait until the last connection has gone, so that nobody pays for the one before."""
        until = time.monotonic() + _CALM_TIME
        while time.monotonic() < until:
            server, *left = _children(self.keeper)
            if not left and not _children(server):
                return
            time.sleep(0.01)


def _children(pid: int) -> list[int]:
    """The oldest one first."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _times(pid: int) -> list[int]:
    """Ticks of the process, by itself and in the system, and the same of all it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def _config(folder: Path, port: int, user: str) -> str:
    # A home of its own: what is in the user's .bashrc would be run with every command, and nothing else be measured.
    # sshd listens on at most 16 named addresses, so it listens on all of them and lets in only who comes over loopback.
    return f"""\
Port {port}
ListenAddress 0.0.0.0
AllowUsers {user}@127.0.0.0/8
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/id.pub
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
PrintMotd no
SetEnv HOME={folder}/home
MaxStartups 1000
MaxSessions 1000
LogLevel INFO
"""


@contextlib.contextmanager
def serve(folder: Path, count: int) -> Iterator[Site]:
    """A running server with so many hosts, all of them known; gone at the end."""
    if _SSHD is None:
        raise NoServer("no sshd here: install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "home").mkdir()
    user = pwd.getpwuid(os.geteuid()).pw_name
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    hosts = tuple(Host(f"h{n:03d}", f"127.0.{1 + n // 250}.{1 + n % 250}") for n in range(count))
    kind, data = (folder / "host.pub").read_text().split()[:2]
    known = folder / "known_hosts"
    known.write_text("".join(f"[{host.address}]:{port} {kind} {data}\n" for host in hosts))
    (folder / "sshd_config").write_text(_config(folder, port, user))
    log = folder / "sshd.log"
    argv = [_SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-S", str(Path(__file__).with_name("keeper.py")), *argv], stdout=out, stderr=out
        )
    try:
        until = time.monotonic() + _UP_TIME
        while b"Server listening" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                raise NoServer(f"sshd does not start: {log.read_text()}")
            time.sleep(0.01)
        yield Site(folder, port, user, folder / "id", known, hosts, process.pid)
    finally:
        process.terminate()
        process.wait()
