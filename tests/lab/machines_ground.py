"""The ground that test machines stand on: a number of its own, with a bridge, a folder and control groups to match."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

_HOME = Path("/run/kubexm-lab")
_NUMBERS = range(1, 255)
_GONE_TIME = 20.0


def ip(commands: Iterable[str], *, force: bool = False) -> None:
    """Carry out commands of ip, all in one call; with ``force`` those that cannot be are left out."""
    subprocess.run(
        ["ip", *(["-force"] if force else []), "-batch", "-"],
        input="\n".join(commands),
        text=True,
        check=not force,
        capture_output=force,
        timeout=60,
    )


def control_groups(*, controllers: bool = False) -> list[Path]:
    """Where groups of our own can be made: version 2, and systemd's own tree where both versions are mounted.

    With ``controllers`` the trees of version 1 that limit something as well, which only hosts with a kubelet need.
    """
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        words = kind.split()
        if words[0] == "cgroup2" or (words[0] == "cgroup" and (controllers or "name=systemd" in words[2].split(","))):
            found.append(Path(place.split()[4]))
    return found


class Ground:
    """Claimed by a lock that ends with its owner, so that what a killed owner left can be told from what is in use."""

    def __init__(self, number: int, claim: IO[str]) -> None:
        self.number = number
        self._claim = claim
        self.folder = _HOME / str(number)
        self.bridge = f"kxl{number}"
        self.gateway = self.address(1)

    @classmethod
    def claim(cls) -> Ground:
        """The first free number; everything that owners who are gone have left is removed on the way."""
        _HOME.mkdir(mode=0o755, exist_ok=True)
        mine: Ground | None = None
        for number in _NUMBERS:
            path = _HOME / f"{number}.lock"
            if mine is not None and not path.exists():
                continue
            claim = path.open("a")
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                claim.close()
                continue
            ground = cls(number, claim)
            ground.clear()
            if mine is None:
                mine = ground
            else:
                claim.close()
        assert mine is not None, f"{len(_NUMBERS)} labs are running already"
        return mine

    def address(self, host: int) -> str:
        """The address of its host of that number."""
        return f"10.213.{self.number}.{host}"

    def namespace(self, host: int) -> str:
        """The name of a host's network namespace, and of its end of the cable."""
        return f"kxl{self.number}-{host}"

    def groups(self, leaf: str, *, controllers: bool = False) -> list[Path]:
        """Control groups for some processes, made here."""
        found = []
        for root in control_groups(controllers=controllers):
            for each in (root / f"kxl{self.number}", root / f"kxl{self.number}" / leaf):
                if not each.exists():
                    each.mkdir()
                    _allow_processors(root, each)
            found.append(each)
        return found

    def prepare(self, count: int) -> None:
        """Make the folder, in memory, and the network of that many hosts."""
        self.folder.mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "mode=0755,size=75%", self.bridge, str(self.folder)], check=True, timeout=60
        )
        ip([f"link add {self.bridge} type bridge", f"addr add {self.gateway}/24 dev {self.bridge}"])
        ip([f"link set {self.bridge} up"])
        for host in range(1, count + 1):
            name = self.namespace(host)
            cable = f"link add {name} type veth peer name eth0 netns {name}"
            ip([f"netns add {name}", cable, f"link set {name} master {self.bridge} up"])
            inside = ["link set lo up", f"addr add {self.address(10 + host)}/24 dev eth0", "link set eth0 up"]
            subprocess.run(
                ["ip", "-n", name, "-batch", "-"],
                input="\n".join([*inside, f"route add default via {self.gateway}"]),
                text=True,
                check=True,
                timeout=60,
            )

    def clear(self) -> None:
        """Remove everything of this number, whoever made it; nothing there is fine too."""
        roots = [root / f"kxl{self.number}" for root in control_groups(controllers=True)]
        for root in roots:
            kill_all(root)
        prefix = f"kxl{self.number}-"
        folder = Path("/run/netns")
        spaces = [path.name for path in folder.glob(f"{prefix}*")] if folder.is_dir() else []
        cables = [path.name for path in Path("/sys/class/net").glob(f"{prefix}*")]
        # Cables first: one that goes with its namespace lingers, and its name with it.
        commands = [f"link del {name}" for name in cables] + [f"netns del {name}" for name in spaces]
        if Path("/sys/class/net", self.bridge).exists():
            commands.append(f"link del {self.bridge}")
        if commands:
            ip(commands, force=True)
        for root in roots:
            _remove_groups(root)
        if self.folder.exists():
            for mount in sorted(_mounts_below(self.folder), reverse=True):
                subprocess.run(["umount", "-l", mount], check=False, capture_output=True, timeout=60)
            shutil.rmtree(self.folder, ignore_errors=True)

    def release(self) -> None:
        """Remove everything and give the number back."""
        self.clear()
        self._claim.close()


def kill_all(group: Path) -> None:
    """End all processes of a control group and of those below, and wait until they are gone."""
    until = time.monotonic() + _GONE_TIME
    while pids := members(group):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < until, f"{len(pids)} processes of {group} do not end"
        time.sleep(0.01)


def members(group: Path) -> list[int]:
    """The processes of a control group and of those below."""
    found: list[int] = []
    for procs in [group / "cgroup.procs", *group.glob("**/cgroup.procs")]:
        with contextlib.suppress(FileNotFoundError, OSError):
            found += [int(pid) for pid in procs.read_text().split()]
    return sorted(set(found))


def _allow_processors(root: Path, group: Path) -> None:
    """A group of cpuset takes no process before it has processors and memory; those below should inherit them."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (root / name).exists():
            (group / name).write_text((root / name).read_text())
    if (root / "cpuset.cpus").exists() and (root / "cgroup.clone_children").exists():
        (group / "cgroup.clone_children").write_text("1")


def _remove_groups(root: Path) -> None:
    until = time.monotonic() + _GONE_TIME
    for folder in sorted([path for path in [root, *root.glob("**")] if path.is_dir()], reverse=True):
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                # Busy for some milliseconds after its last process has ended.
                assert time.monotonic() < until, f"{folder} is still in use"
                time.sleep(0.01)


def _mounts_below(folder: Path) -> list[str]:
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [place for place in places if place == str(folder) or place.startswith(f"{folder}/")]
