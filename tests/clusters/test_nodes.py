"""Hosts of the lab that can run a kubelet."""

from __future__ import annotations

import pytest

from tests.lab import machines
from tests.lab.nodes import nodes

pytestmark = pytest.mark.xdist_group("machines")


@pytest.mark.skipif(bool(machines.missing()), reason=machines.missing())
def test_a_node_divides_its_control_groups_and_finds_what_is_built_into_its_kernel() -> None:
    with nodes(1) as (node,):
        node.sh("""
cd /sys/fs/cgroup/memory && mkdir kubepods && echo 64M >kubepods/memory.limit_in_bytes
test "$(cat kubepods/memory.limit_in_bytes)" = 67108864
systemd-run --unit=limited sleep infinity && systemctl show limited -p MainPID --value >kubepods/cgroup.procs
grep -q ':memory:/kubepods$' "/proc/$(systemctl show limited -p MainPID --value)/cgroup"
modprobe overlay && sysctl -w kernel.panic=11 && test "$(cat /proc/sys/kernel/panic)" = 11
""")
        # Outside nothing has changed, and after a boot nothing is left of it.
        node.reboot()
        assert node.sh("cat /proc/sys/kernel/panic").strip() == "10"
