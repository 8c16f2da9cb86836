"""What steps change on a system is still so after a boot, on a full host that is really restarted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.result import ForecastState
from kubexm_exec.testing import StepTest
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")

RULES = """flush ruleset
table inet filter {
  chain input { type filter hook input priority filter; policy drop; iif lo accept; tcp dport 22 accept; }
}
"""
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("sysctl", {"values": {"net.ipv4.ip_forward": 1, "net.ipv4.tcp_rmem": "4096 131072 4194304"}}),
    ("mount", {"path": "/srv/a b", "src": "scratch", "fstype": "tmpfs", "options": ["size=2m", "noexec"]}),
    ("mount", {"path": "/srv/bound", "src": "/usr/share", "fstype": "none", "options": "bind,ro"}),
    ("hostname", {"name": "node7.example", "hostsFile": True}),
    ("host-entry", {"block": "cluster", "entries": {"10.0.0.1": "one", "10.0.0.2": "two"}}),
    ("firewall-port", {"port": 6443, "source": "10.0.0.0/8"}),
    ("firewall-port", {"port": "30000-32767", "protocol": "udp"}),
]


def test_a_boot_changes_nothing_that_steps_have_set(machines: Callable[[int], list[Machine]], tmp_path: Path) -> None:
    (machine,) = machines(1)
    machine.sh('printf %s "$1" >/etc/nftables.conf && nft -f /etc/nftables.conf && systemctl -q enable nftables', RULES)
    for step, parameters in STEPS:
        world = StepTest(tmp_path, step, parameters, host=machine.host())
        assert world.forecast().state is ForecastState.CHANGE, step
        assert world.run().changed
        world.close()
    machine.reboot()
    for step, parameters in STEPS:
        world = StepTest(tmp_path, step, parameters, host=machine.host())
        assert world.forecast().state is ForecastState.SATISFIED, step
        world.close()
    assert machine.sh("uname -n; cat /proc/sys/net/ipv4/ip_forward; stat -f -c %T '/srv/a b'").split() == [
        "node7.example",
        "1",
        "tmpfs",
    ]
