"""Facts: what the script says on this machine, and what its answers mean."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.model.plain import plain
from kubexm_exec.runner.facts import FACT_NAMES, SCRIPT, parse, with_skew

SAID = """\
time=1700000000 +0200
distribution=ubuntu
machineId=abc
dbusId=other
bootId=b-1
cgroup=2
init=init
manager=systemd
packages=apt-get
selinux=1
vendor=QEMU
product=Standard PC
disk=vda 41943040 1
disk=nvme0n1 1000215216 0 Samsung SSD 980
mount=/dev/vda1 / ext4 rw,relatime 0 0
mount=proc /proc proc rw 0 0
mount=/dev/sdb /mnt/my\\040disk xfs ro 0 0
interface=eth0 1500 up 52:54:00:00:00:01
interface=lo 65536 unknown 00:00:00:00:00:00
interface=tun0 1400 unknown
address=1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
address=2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever
address=2: eth0    inet6 2001:db8::5/64 scope global \\       valid_lft forever
address=2: eth0    inet6 fe80::1/64 scope link \\       valid_lft forever
address=3: tun0    inet 10.8.0.2 peer 10.8.0.1/32 scope global tun0\\       valid_lft forever
route=tun0 00000000 600
route=eth0 0100000A 100
account=root:x:0:0:root:/root:/bin/bash
account=broken
"""


def facts(text: str = SAID) -> dict[str, Any]:
    found: dict[str, Any] = plain(parse(text))
    return found


def test_answers_become_facts() -> None:
    found = facts()
    assert found["disks"] == [
        {"name": "vda", "sizeMb": 20480, "rotational": True, "model": ""},
        {"name": "nvme0n1", "sizeMb": 488386, "rotational": False, "model": "Samsung SSD 980"},
    ]
    assert [(mount["path"], mount["type"], mount["options"]) for mount in found["mounts"]] == [
        ("/", "ext4", ["rw", "relatime"]),
        ("/mnt/my disk", "xfs", ["ro"]),
    ]
    assert {one["name"]: one["addresses"] for one in found["interfaces"]} == {
        "eth0": ["10.0.0.5/24", "2001:db8::5/64", "fe80::1/64"],
        "lo": ["127.0.0.1/8"],
        "tun0": ["10.8.0.2/32"],
    }
    assert found["addresses"] == {"ipv4": ["10.0.0.5", "10.8.0.2"], "ipv6": ["2001:db8::5"]}
    assert found["defaultRoute"] == {"interface": "eth0", "gateway": "10.0.0.1", "address": "10.0.0.5"}
    assert (found["machineId"], found["bootId"], found["cgroupVersion"]) == ("abc", "b-1", 2)
    assert (found["init"], found["packageManager"], found["selinux"]) == ("systemd", "apt", "enforcing")
    assert found["time"] == {"epoch": 1700000000, "zone": "+0200", "skewSeconds": 0}
    assert found["virtualization"] == "kvm"
    assert found["users"] == [{"name": "root", "uid": 0, "gid": 0, "home": "/root", "shell": "/bin/bash"}]


def test_host_that_says_nothing_has_all_facts_empty() -> None:
    found = facts("")
    assert tuple(found) == FACT_NAMES
    assert found["defaultRoute"] == {"interface": "", "gateway": "", "address": ""}
    assert (found["init"], found["packageManager"], found["selinux"]) == ("unknown", "unknown", "disabled")
    assert found["disks"] == found["mounts"] == found["users"] == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("virt=lxc\ncontainer=docker", "lxc"),
        ("container=podman\nvendor=QEMU", "podman"),
        ("vendor=VMware, Inc.", "vmware"),
        ("hypervisor=1", "vm"),
        ("vendor=Dell Inc.\nproduct=PowerEdge", "none"),
    ],
)
def test_virtualization_is_what_is_closest_to_the_host(lines: str, expected: str) -> None:
    assert facts(lines)["virtualization"] == expected


@pytest.mark.parametrize(
    ("epoch", "skew"), [(1000, 0), (1001, 0), (999, 0), (1060, 58), (940, -59)], ids=lambda value: str(value)
)
def test_only_what_the_time_of_asking_cannot_explain_is_skew(epoch: int, skew: int) -> None:
    found = with_skew(parse(f"time={epoch} +0000"), 1000.5, 1001.5)
    assert found["time"]["skewSeconds"] == skew


def test_nobody_can_change_what_everybody_shares() -> None:
    found = parse(SAID)
    with pytest.raises(TypeError):
        found["disks"][0]["name"] = "other"
    assert isinstance(found["disks"], tuple)


@pytest.mark.parametrize("shell", [["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]], ids=lambda s: s[0])
def test_script_works_in_every_posix_shell(shell: list[str]) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    before = time.time()
    done = subprocess.run([*shell, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = plain(with_skew(parse(done.stdout), before, time.time()))
    assert tuple(found) == FACT_NAMES
    assert found["bootId"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert found["time"]["skewSeconds"] == 0
    assert "root" in [user["name"] for user in found["users"]]
    assert "lo" in [one["name"] for one in found["interfaces"]]
