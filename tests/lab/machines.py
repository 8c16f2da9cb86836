"""Full Debian hosts for tests: systemd as the first process, a real sshd, their own network, and faults to order."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kubexm_exec.model.graph import GraphHost
from tests.lab.machines_ground import Ground, kill_all, members
from tests.lab.sshd import make_key

_UP_TIME = 60.0
_TOOLS = ("systemd-nspawn", "nft", "ip", "nsenter", "ssh-keygen", "mount")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FAULTS = "kubexm_lab"
Kind = TypeVar("Kind", bound="Machine")

# Enters the control groups named before "--"; a reboot inside ends nspawn with 133, and the machine starts again.
_LOOP = """
echo $$ >"$1"; shift
while :; do
  sh -c 'while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@"' sh "$@"
  rc=$?
  [ "$rc" = 133 ] || exit "$rc"
done
"""
_NSPAWN_ENVIRONMENT = {
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    # Only the network's settings of the kernel are the machine's own: the others are this computer's.
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    "SYSTEMD_NSPAWN_TMPFS_TMP": "0",
    "SYSTEMD_NSPAWN_LOCK": "0",
    "SYSTEMD_SECCOMP": "0",
}


@functools.cache
def image() -> Path:
    """Where the base image is, or would be."""
    tool = Path(__file__).parents[2] / "tools" / "machines.sh"
    shown = subprocess.run([tool, "--where"], capture_output=True, text=True, check=True, timeout=60)
    return Path(shown.stdout.strip())


@functools.cache
def missing() -> str:
    """Why such machines cannot be had here, or nothing."""
    if os.environ.get("KUBEXM_NO_MACHINES"):
        return "KUBEXM_NO_MACHINES is set"
    if os.geteuid() != 0:
        return "full hosts need root"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"no {', '.join(absent)} here: `make machines` installs it"
    if not image().is_dir():
        return f"no base image at {image()}: `make machines` builds it"
    tried = subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, check=False, timeout=60)
    return "" if tried.returncode == 0 else "no namespaces here, although we are root"


class Machine:
    """One of them. `root` is its disk, an overlay in memory; /run and what else is mounted inside is not seen there."""

    _controllers = False
    """Whether its systemd may limit what runs on it."""
    _environment = _NSPAWN_ENVIRONMENT

    def __init__(self, ground: Ground, number: int, key: Path) -> None:
        self._ground = ground
        self._number = number
        self.name = f"m{number}"
        self.address = ground.address(10 + number)
        self.key = key
        self.folder = ground.folder / self.name
        self.root = self.folder / "root"
        self.known_hosts = self.folder / "known_hosts"
        self._space = ground.namespace(number)
        self._groups = ground.groups(self.name, controllers=self._controllers)
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Its disk, with its own name, identity and keys."""
        upper, work = self.folder / "upper", self.folder / "work"
        for each in (upper, work, self.root):
            each.mkdir(parents=True)
        layers = f"lowerdir={image()},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(self.root)], check=True, timeout=60)
        etc = self.root / "etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n")
        (etc / "fstab").write_text("")
        (etc / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
        # Tests end it more often than systemd would start it again.
        more = etc / "systemd" / "system" / "ssh.service.d"
        more.mkdir(parents=True)
        (more / "lab.conf").write_text("[Unit]\nStartLimitIntervalSec=0\n")
        make_key(etc / "ssh" / "ssh_host_ed25519_key")
        ssh = self.root / "root" / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.key.with_suffix(".pub"), ssh / "authorized_keys")

    def start(self) -> None:
        """Switch it on; `wait` says when it is up."""
        command = [
            "systemd-nspawn", "--boot", "--quiet", f"--directory={self.root}", f"--machine={self.name}",
            "--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
            "--capability=all", f"--network-namespace-path=/run/netns/{self._space}", "--console=pipe",
            *self._options(),
        ]  # fmt: skip
        loop = self._ground.groups("loop")[0] / "cgroup.procs"
        groups = [str(group / "cgroup.procs") for group in self._groups]
        with (self.folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                ["sh", "-c", _LOOP, "sh", str(loop), *groups, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it takes connections and all its services are up."""
        until = time.monotonic() + _UP_TIME
        self._await(self.answers, until)
        state = self.sh("systemctl is-system-running --wait || :").strip()
        assert state == "running", f"{self.name} is {state}:\n{self.sh('systemctl --failed --no-legend || :')}"

    def stop(self) -> None:
        """Pull the plug; `start` switches it on again, with the disk as it was."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for group in self._groups:
            kill_all(group)

    def is_on(self) -> bool:
        """Whether anything runs on it."""
        return self._first(or_none=True) != 0

    def answers(self) -> bool:
        """Whether its sshd greets."""
        try:
            with socket.create_connection((self.address, 22), 1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def sh(self, script: str, *args: str, check: bool = True, timeout: float = 120) -> str:
        """What a script prints that root runs on it, not over SSH."""
        enter = ["nsenter", "-t", str(self._first()), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]
        done = subprocess.run(
            [*enter, "/bin/sh", "-c", script, "sh", *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            env={"PATH": _PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0 or not check, f"exit code {done.returncode}:\n{script}\n{done.stderr}"
        return done.stdout

    def host(self, name: str = "", *, user: str = "root", limit: int = 4, **options: Any) -> GraphHost:
        """How an inventory would name it: root with the lab's key, and known hosts of its own."""
        given = {"privateKeyPath": str(self.key), "knownHosts": str(self.known_hosts), **options}
        return GraphHost(
            name or self.name,
            address=self.address,
            port=22,
            user=user,
            per_host_limit=limit,
            options={key: value for key, value in given.items() if value is not None},
        )

    def boot_id(self) -> str:
        """Another one after each start."""
        return self.sh("cat /proc/sys/kernel/random/boot_id").strip()

    def reboot(self) -> None:
        """Restart it as its administrator would, and wait until it is up again."""
        before = self._first()
        self.sh("systemctl reboot", check=False)
        self._await(lambda: self._first(or_none=True) not in (0, before), time.monotonic() + _UP_TIME)
        self.wait()

    def more_addresses(self, count: int) -> list[str]:
        """Let it answer at that many addresses beside its own, as that many hosts would."""
        more = [self._ground.address(100 + number) for number in range(count)]
        commands = "\n".join(f"addr replace {address}/24 dev eth0" for address in more)
        subprocess.run(["ip", "-n", self._space, "-batch", "-"], input=commands, text=True, check=True, timeout=60)
        return more

    def cut(self, address: str = "") -> None:
        """Let no packet in or out, as a broken cable would; with an address only those to that one."""
        self._drop(f"ip daddr {address} drop" if address else "drop")

    def loss(self, percent: int) -> None:
        """Lose that share of the packets, in each direction."""
        self._drop(f"numgen random mod 100 < {percent} drop")

    def heal(self) -> None:
        """The network is as it was."""
        self._nft(f"table inet {_FAULTS}\ndelete table inet {_FAULTS}\n")

    def kill_sshd(self) -> None:
        """kill -9 of sshd and all its connections; its systemd starts it again."""
        self.sh("pkill -KILL -x sshd || :")

    def drop_connections(self) -> None:
        """kill -9 of what serves its connections; it goes on to take new ones."""
        self.sh('pkill -KILL -x sshd -P "$(systemctl show ssh -p MainPID --value)" || :')

    def hang(self) -> None:
        """SIGSTOP of sshd and all its connections: the kernel still takes connections, and nobody answers."""
        self.sh("pkill -STOP -x sshd || :")

    def resume(self) -> None:
        """It goes on where it was stopped."""
        self.sh("pkill -CONT -x sshd || :")

    def small_disk(self, place: str, kilobytes: int) -> None:
        """Mount an empty disk of that size."""
        self.sh('mkdir -p "$1" && mount -t tmpfs -o "size=$2k,mode=0755" small "$1"', place, str(kilobytes))

    def _options(self) -> list[str]:
        """More options of nspawn, and arguments of the first process."""
        return []

    def _drop(self, rule: str) -> None:
        self.heal()
        chains = (("input", "iif"), ("output", "oif"))
        inside = "".join(
            f" chain {hook} {{ type filter hook {hook} priority -300; {way} != lo {rule}\n }}\n" for hook, way in chains
        )
        self._nft(f"table inet {_FAULTS} {{\n{inside}}}\n")

    def _nft(self, commands: str) -> None:
        inside = ["nsenter", f"--net=/run/netns/{self._space}", "nft", "-f", "-"]
        subprocess.run(inside, input=commands, text=True, check=True, timeout=60)

    def _first(self, *, or_none: bool = False) -> int:
        """The process that is number 1 inside."""
        for pid in members(self._groups[0]):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                spaces = status.partition("NSpid:")[2].partition("\n")[0].split()
                # Containers on it have first processes of their own, one space further in.
                if len(spaces) == 2 and spaces[-1] == "1":
                    return pid
        assert or_none, f"{self.name} is off:\n{(self.folder / 'console').read_text(errors='replace')[-2000:]}"
        return 0

    def _await(self, condition: Callable[[], bool], until: float) -> None:
        assert self._process is not None, f"{self.name} was not started"
        while not condition():
            console = (self.folder / "console").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"{self.name} has ended:\n{console}"
            assert time.monotonic() < until, f"{self.name} does not come up:\n{console}"
            time.sleep(0.02)


@contextlib.contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    """That many machines that are up, on one network; gone at the end."""
    with running(Machine, count) as made:
        yield made


@contextlib.contextmanager
def running(kind: type[Kind], count: int) -> Iterator[list[Kind]]:
    """That many machines of a kind, as ``machines``."""
    why = missing()
    assert not why, why
    ground = Ground.claim()
    made: list[Kind] = []
    try:
        ground.prepare(count)
        key = make_key(ground.folder / "id")
        made = [kind(ground, number, key) for number in range(1, count + 1)]
        for machine in made:
            machine.make()
            machine.start()
        for machine in made:
            machine.wait()
        yield made
    finally:
        for machine in made:
            machine.stop()
        ground.release()
