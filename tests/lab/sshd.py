"""Real SSH servers on loopback addresses, run as the current user, each with keys, settings and a folder of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubexm_exec.model.graph import GraphHost

SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
MISSING = "no sshd here: install openssh-server (as root `make test` does it)"
_UP_TIME = 20.0


@functools.cache
def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A key pair in new files."""
    for old in (path, path.with_name(path.name + ".pub")):
        old.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


class SshHost:
    """One sshd; ``settings`` are further lines of its configuration."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", *, settings: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.prefix = folder / "root"
        self.prefix.mkdir()
        self.address = address
        self.port = 0
        self.user = _user()
        self.settings = settings
        self.known_hosts = folder / "known_hosts"
        self.key = make_key(folder / "id")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_text((folder / "id.pub").read_text())
        self._process: subprocess.Popen[bytes] | None = None
        self.new_host_key()

    def new_host_key(self, kind: str = "ed25519") -> None:
        """Give it another identity, from its next start on."""
        make_key(self.folder / "host", kind=kind)

    def start(self) -> SshHost:
        """Start it and wait until it answers, on the port it had before if there was one."""
        assert SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        until = time.monotonic() + _UP_TIME
        fresh = self.port == 0
        while True:
            if fresh:
                self.port = _free_port(self.address)
            self._launch()
            if self._answers(until):
                return self
            assert time.monotonic() < until, (self.folder / "log").read_text()

    def command(self) -> list[str]:
        """What is started; it stays in the foreground."""
        assert SSHD is not None
        return [SSHD, "-D", "-e", "-f", str(self.folder / "config")]

    def _launch(self) -> None:
        lines = [
            *self.settings,
            f"Port {self.port}",
            f"ListenAddress {self.address}",
            f"HostKey {self.folder / 'host'}",
            "PidFile none",
            f"AuthorizedKeysFile {self.authorized}",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "Subsystem sftp internal-sftp",
            "MaxStartups 200",
            "UseDNS no",
            # bash takes itself for a shell within another one, and does not read the .bashrc of whoever runs the tests.
            "SetEnv SHLVL=1",
        ]
        (self.folder / "config").write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _answers(self, until: float) -> bool:
        """Whether it listens; asked of its log, since somebody else might have got the port."""
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < until:
            if b"Server listening on" in (self.folder / "log").read_bytes():
                return True
            time.sleep(0.01)
        return False

    def sessions(self) -> list[int]:
        """The processes that serve its connections."""
        assert self._process is not None
        return _children(self._process.pid)

    def drop_connections(self) -> None:
        """Cut all connections, as a crash would; it goes on to take new ones."""
        for pid in self.sessions():
            for each in [*_children(pid, of="sshd"), pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)

    def freeze(self) -> None:
        """Let its connections hang, as an overloaded host would."""
        for pid in self.sessions():
            for each in [pid, *_children(pid, of="sshd")]:
                os.kill(each, signal.SIGSTOP)

    def stop(self) -> None:
        """End it and its connections."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)
        self.drop_connections()
        self._process.kill()
        self._process.wait()
        self._process = None

    def host(self, name: str = "box", *, limit: int = 4, **options: Any) -> GraphHost:
        """How an inventory would name it."""
        given = {"privateKeyPath": str(self.key), "knownHosts": str(self.known_hosts), **options}
        return GraphHost(
            name,
            address=self.address,
            port=self.port,
            user=self.user,
            per_host_limit=limit,
            options={key: value for key, value in given.items() if value is not None},
        )


@contextlib.contextmanager
def ssh_host(folder: Path, address: str = "127.0.0.1", *, settings: tuple[str, ...] = ()) -> Iterator[SshHost]:
    """A running host, gone at the end."""
    host = SshHost(folder, address, settings=settings)
    try:
        yield host.start()
    finally:
        host.stop()


def _free_port(address: str) -> int:
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])


def _children(parent: int, of: str = "") -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = stat.read_text().rpartition(")")
            if int(rest.split()[1]) == parent and of in head:
                found.append(int(stat.parent.name))
    return found
