"""Gathers what a host says about itself, in one round trip over POSIX sh."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from kubexm_exec.connectors.base import Cancel, Command, Connector, ConnectorError, Deadline

_SCRIPT: Final = r"""
say() { printf '%s=%s\n' "$1" "$2"; }
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
"""

_FAMILIES: Final = (
    ("debian", {"debian", "ubuntu", "raspbian", "linuxmint"}),
    ("redhat", {"rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn", "openeuler", "kylin"}),
    ("suse", {"suse", "sles", "opensuse", "opensuse-leap", "opensuse-tumbleweed"}),
    ("alpine", {"alpine"}),
    ("arch", {"arch", "archlinux", "manjaro"}),
)
_ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "i386": "386",
}


FACT_NAMES: Final = ("os", "kernel", "architecture", "machine", "hostname", "cpus", "memoryMb", "user")
"""The top-level facts that every host has; expressions are checked against them when compiling."""


def gather(connector: Connector, *, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
    """Ask the host; raises ConnectorError if it has no shell that answers."""
    command = Command(argv=("sh", "-c", _SCRIPT))
    result = connector.run(command, deadline=deadline, cancel=cancel)
    if result.exit_code != 0:
        said = result.err.strip().splitlines()[-1:] or [f"exit code {result.exit_code}"]
        raise ConnectorError(f"facts could not be gathered: {said[0]}")
    return parse(result.out)


def parse(text: str) -> Mapping[str, Any]:
    """The facts in what the script said."""
    said = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    distribution = said.get("distribution", "").lower()
    words = [distribution, *said.get("like", "").lower().split()]
    family = next((name for word in words for name, members in _FAMILIES if word in members), distribution)
    machine = said.get("machine", "")
    facts: dict[str, Any] = {
        "os": MappingProxyType(
            {
                "family": family or said.get("system", "").lower(),
                "distribution": distribution or said.get("system", "").lower(),
                "version": said.get("version", ""),
                "codename": said.get("codename", ""),
            }
        ),
        "kernel": said.get("kernel", ""),
        "architecture": _ARCHITECTURES.get(machine, machine),
        "machine": machine,
        "hostname": said.get("hostname", ""),
        "cpus": _number(said.get("cpus", "")),
        "memoryMb": _number(said.get("memory", "")) // 1024,
        "user": said.get("user", ""),
    }
    return MappingProxyType(facts)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


class Facts:
    """The facts of all hosts of a run: gathered on first use, once a host, by one asker at a time."""

    def __init__(self, connect: Callable[[str, Deadline], Connector]) -> None:
        self._connect = connect
        self._known: dict[str, Mapping[str, Any]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, host: str, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
        """The facts of a host; a failure is not remembered, so that a retry asks again."""
        known = self._known.get(host)
        if known is not None:
            return known
        with self._lock:
            lock = self._locks.setdefault(host, threading.Lock())
        if not lock.acquire(timeout=-1 if (left := deadline.left()) is None else left):
            raise ConnectorError(f"facts of {host} are still being gathered by another step")
        try:
            if host not in self._known:
                connector = self._connect(host, deadline)
                self._known[host] = gather(connector, deadline=deadline, cancel=cancel)
            return self._known[host]
        finally:
            lock.release()
