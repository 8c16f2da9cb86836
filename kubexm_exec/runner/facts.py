"""Gathers the facts of hosts, in one round trip over POSIX sh."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kubexm_exec.connectors.base import OWN_SCRIPT, Command, Connector
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import ConnectorError

# The shell reads files itself where possible: each program costs time.
SCRIPT: Final = r"""
say() { printf '%s=%s\n' "$1" "$2"; }
from() { v=; [ -r "$2" ] && read -r v 2>/dev/null <"$2"; [ -n "$v" ] && say "$1" "$v"; }
say time "$(date '+%s %z' 2>/dev/null)"
if [ -r /etc/os-release ]; then . /etc/os-release; elif [ -r /usr/lib/os-release ]; then . /usr/lib/os-release; fi
say distribution "${ID:-}"
say like "${ID_LIKE:-}"
say version "${VERSION_ID:-}"
say codename "${VERSION_CODENAME:-${UBUNTU_CODENAME:-}}"
say system "$(uname -s 2>/dev/null)"
say kernel "$(uname -r 2>/dev/null)"
say machine "$(uname -m 2>/dev/null)"
say hostname "$(uname -n 2>/dev/null)"
say cpus "$({ getconf _NPROCESSORS_ONLN || nproc || grep -c '^processor' /proc/cpuinfo; } 2>/dev/null)"
say memory "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo 2>/dev/null)"
say user "$(id -un 2>/dev/null || id -u 2>/dev/null)"
from dbusId /var/lib/dbus/machine-id
from machineId /etc/machine-id
from bootId /proc/sys/kernel/random/boot_id
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then say cgroup 2; elif [ -d /sys/fs/cgroup ]; then say cgroup 1; fi
from init /proc/1/comm
if [ -d /run/systemd/system ]; then say manager systemd; elif [ -d /run/openrc ]; then say manager openrc; fi
for p in apt-get dnf yum zypper apk pacman; do
  if command -v "$p" >/dev/null 2>&1; then say packages "$p"; break; fi
done
from selinux /sys/fs/selinux/enforce
if command -v systemd-detect-virt >/dev/null 2>&1; then say virt "$(systemd-detect-virt 2>/dev/null)"; fi
if [ -e /.dockerenv ]; then say container docker; elif [ -e /run/.containerenv ]; then say container podman; fi
from vendor /sys/class/dmi/id/sys_vendor
from product /sys/class/dmi/id/product_name
if grep -q '^flags.* hypervisor' /proc/cpuinfo 2>/dev/null; then say hypervisor 1; fi
for d in /sys/block/*; do
  n=${d##*/}
  case $n in '*' | loop* | ram* | zram* | fd* | sr* | nbd*) continue ;; esac
  s=0 r= m=
  [ -r "$d/size" ] && read -r s <"$d/size"
  [ -r "$d/queue/rotational" ] && read -r r <"$d/queue/rotational"
  [ -r "$d/device/model" ] && read -r m <"$d/device/model"
  [ "$s" != 0 ] && say disk "$n $s ${r:-0} $m"
done 2>/dev/null
sed 's/^/mount=/' /proc/self/mounts 2>/dev/null
for d in /sys/class/net/*; do
  [ -e "$d/mtu" ] || continue
  a= t= o=
  [ -r "$d/address" ] && read -r a <"$d/address"
  [ -r "$d/mtu" ] && read -r t <"$d/mtu"
  [ -r "$d/operstate" ] && read -r o <"$d/operstate"
  say interface "${d##*/} ${t:-0} ${o:-unknown} $a"
done 2>/dev/null
ip -o addr show 2>/dev/null | sed 's/^/address=/'
if [ -r /proc/net/route ]; then
  while read -r i d g f c u m k x; do
    [ "$d$k" = 0000000000000000 ] && say route "$i $g $m"
  done </proc/net/route
fi
sed 's/^/account=/' /etc/passwd 2>/dev/null
:
"""

FACT_NAMES: Final = (
    "os", "kernel", "architecture", "machine", "hostname", "cpus", "memoryMb", "user", "users", "disks", "mounts",
    "interfaces", "addresses", "defaultRoute", "machineId", "bootId", "cgroupVersion", "init", "packageManager",
    "selinux", "time", "virtualization",
)  # fmt: skip
"""The top-level facts that every host has; expressions are checked against them when compiling."""

_FAMILIES: Final = (
    ("debian", {"debian", "ubuntu", "raspbian", "linuxmint"}),
    ("redhat", {"rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn", "openeuler", "kylin"}),
    ("suse", {"suse", "sles", "opensuse", "opensuse-leap", "opensuse-tumbleweed"}),
    ("alpine", {"alpine"}),
    ("arch", {"arch", "archlinux", "manjaro"}),
)
ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "i386": "386",
}
"""Names of the kernel for architectures, and those of most downloads."""
_VIRTUAL: Final = (
    ("kvm", r"kvm|qemu|rhev|openstack|google|amazon|digitalocean|hetzner"),
    ("vmware", r"vmware"),
    ("oracle", r"virtualbox|innotek"),
    ("microsoft", r"microsoft corporation virtual"),
    ("xen", r"\bxen\b"),
)
_PSEUDO: Final = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs", "selinuxfs", "sysfs",
    "tracefs",
})  # fmt: skip
"""Types of mounts without files of users."""
_REPEATED: Final = ("disk", "mount", "interface", "address", "route", "account")
_ADDRESS: Final = re.compile(r"\d+:\s+(\S+)\s+(inet6?)\s+([0-9a-fA-F.:]+)(?: peer \S+?)?(?:/(\d+))?\s.*?scope (\S+)")


def parse(text: str) -> Mapping[str, Any]:
    """The facts in the output of the script; an unknown one is empty, 0 or ``unknown``, never missing."""
    said: dict[str, str] = {}
    many: dict[str, list[str]] = {name: [] for name in _REPEATED}
    for line in text.split("\n"):
        name, sign, value = line.partition("=")
        if name in many:
            many[name].append(value)
        elif sign:
            said[name] = value.strip()
    distribution = said.get("distribution", "").lower()
    words = [distribution, *said.get("like", "").lower().split()]
    family = next((name for word in words for name, members in _FAMILIES if word in members), distribution)
    machine = said.get("machine", "")
    interfaces = _interfaces(many["interface"], many["address"])
    facts: Mapping[str, Any] = _frozen(
        {
            "os": {
                "family": family or said.get("system", "").lower(),
                "distribution": distribution or said.get("system", "").lower(),
                "version": said.get("version", ""),
                "codename": said.get("codename", ""),
            },
            "kernel": said.get("kernel", ""),
            "architecture": ARCHITECTURES.get(machine, machine),
            "machine": machine,
            "hostname": said.get("hostname", ""),
            "cpus": _number(said.get("cpus", "")),
            "memoryMb": _number(said.get("memory", "")) // 1024,
            "user": said.get("user", ""),
            "users": [user for line in many["account"] if (user := _user(line)) is not None],
            "disks": [disk for line in many["disk"] if (disk := _disk(line)) is not None],
            "mounts": [mount for line in many["mount"] if (mount := _mount(line)) is not None],
            "interfaces": interfaces,
            "addresses": _addresses(many["address"]),
            "defaultRoute": _route(many["route"], interfaces),
            "machineId": said.get("machineId") or said.get("dbusId", ""),
            "bootId": said.get("bootId", ""),
            "cgroupVersion": _number(said.get("cgroup", "")),
            "init": said.get("manager") or said.get("init", "unknown"),
            "packageManager": said.get("packages", "").removesuffix("-get") or "unknown",
            "selinux": {"1": "enforcing", "0": "permissive"}.get(said.get("selinux", ""), "disabled"),
            "time": _time(said.get("time", "")),
            "virtualization": _virtualization(said),
        }
    )
    return facts


def with_skew(facts: Mapping[str, Any], before: float, after: float) -> Mapping[str, Any]:
    """The facts with the clock skew of the host in seconds (below 0: behind), unless the round trip explains it."""
    told = facts["time"]["epoch"]
    if not told:
        return facts
    ahead = max(0, int(told - after)) or -max(0, int(before - (told + 1)))
    return MappingProxyType({**facts, "time": MappingProxyType({**facts["time"], "skewSeconds": ahead})})


def _frozen(value: Any) -> Any:
    """An immutable copy: all actions share the facts."""
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(one) for key, one in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _user(line: str) -> dict[str, Any] | None:
    cells = line.split(":")
    if len(cells) != 7 or not cells[0]:
        return None
    name, _, uid, gid, _, home, shell = cells
    return {"name": name, "uid": _number(uid), "gid": _number(gid), "home": home, "shell": shell}


def _disk(line: str) -> dict[str, Any] | None:
    name, size, rotational, *model = line.split() if len(line.split()) >= 3 else ("", "", "")
    if not name:
        return None
    # The kernel counts sectors of 512 bytes, whatever the disk has.
    return {
        "name": name,
        "sizeMb": _number(size) * 512 // 1024**2,
        "rotational": rotational == "1",
        "model": " ".join(model),
    }


def _mount(line: str) -> dict[str, Any] | None:
    cells = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), cell) for cell in line.split()]
    if len(cells) < 4 or cells[2] in _PSEUDO:
        return None
    return {"device": cells[0], "path": cells[1], "type": cells[2], "options": cells[3].split(",")}


def _interfaces(lines: list[str], addresses: list[str]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        cells = line.split()
        if len(cells) >= 3:
            mac = cells[3] if len(cells) > 3 else ""
            found[cells[0]] = {
                "name": cells[0], "mac": mac, "mtu": _number(cells[1]), "state": cells[2], "addresses": [],
            }  # fmt: skip
    for line in addresses:
        match = _ADDRESS.match(line)
        if match is not None and match[1] in found:
            found[match[1]]["addresses"].append(f"{match[3]}/{match[4]}" if match[4] else match[3])
    return list(found.values())


def _addresses(lines: list[str]) -> dict[str, list[str]]:
    """Addresses that other hosts can reach: neither loopback nor link-local."""
    matches = [match for line in lines if (match := _ADDRESS.match(line)) is not None and match[5] == "global"]
    kinds = {"ipv4": "inet", "ipv6": "inet6"}
    return {kind: list(dict.fromkeys(m[3] for m in matches if m[2] == word)) for kind, word in kinds.items()}


def _route(lines: list[str], interfaces: list[dict[str, Any]]) -> dict[str, str]:
    """The IPv4 default route with the lowest metric."""
    routes = []
    for line in lines:
        cells = line.split()
        if len(cells) == 3 and re.fullmatch(r"[0-9A-Fa-f]{8}", cells[1]):
            routes.append((_number(cells[2]), cells[0], cells[1]))
    if not routes:
        return {"interface": "", "gateway": "", "address": ""}
    _, name, gateway = min(routes)
    own: list[str] = next((one["addresses"] for one in interfaces if one["name"] == name), [])
    address = next((one.partition("/")[0] for one in own if ":" not in one), "")
    # In the byte order of the machine, which is little-endian on all that matter.
    dotted = ".".join(str(byte) for byte in reversed(bytes.fromhex(gateway)))
    return {"interface": name, "gateway": "" if dotted == "0.0.0.0" else dotted, "address": address}


def _time(text: str) -> dict[str, Any]:
    epoch, _, zone = text.partition(" ")
    return {"epoch": _number(epoch), "zone": zone, "skewSeconds": 0}


def _virtualization(said: Mapping[str, str]) -> str:
    if said.get("virt"):
        return said["virt"]
    if said.get("container"):
        return said["container"]
    maker = f"{said.get('vendor', '')} {said.get('product', '')}".lower()
    known = next((name for name, pattern in _VIRTUAL if re.search(pattern, maker)), "")
    return known or ("vm" if said.get("hypervisor") else "none")


def gather(connector: Connector, *, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
    """The facts of a host; raises ConnectorError if its shell does not answer."""
    command = Command(argv=("sh", "-c", SCRIPT, OWN_SCRIPT))
    before = time.time()
    result = connector.run(command, deadline=deadline, cancel=cancel)
    if result.exit_code != 0:
        said = result.err.strip().splitlines()[-1:] or [f"exit code {result.exit_code}"]
        raise ConnectorError(f"facts could not be gathered: {said[0]}")
    return with_skew(parse(result.out), before, time.time())


class Facts:
    """The facts of all hosts of a run: gathered on first use, once per host."""

    def __init__(self, connect: Callable[[str, Deadline, Cancel], Connector]) -> None:
        self._connect = connect
        self._known: dict[str, Mapping[str, Any]] = {}
        self._turns: dict[str, Semaphore] = {}
        self._lock = threading.Lock()

    def of(self, host: str, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
        """The facts of a host; a failure is not cached, so that a retry asks again."""
        known = self._known.get(host)
        if known is not None:
            return known
        with self._lock:
            turn = self._turns.setdefault(host, Semaphore(1))
        if not turn.take(deadline, cancel):
            raise ConnectorError(f"facts of {host} are still being gathered by another step")
        try:
            known = self._known.get(host)
            if known is None:
                connector = self._connect(host, deadline, cancel)
                known = self._known[host] = gather(connector, deadline=deadline, cancel=cancel)
            return known
        finally:
            turn.give_back()

    def forget(self, host: str) -> None:
        """Gather the facts again next time: the host has changed."""
        self._known.pop(host, None)


__all__ = ["FACT_NAMES", "Facts", "gather", "parse"]
