"""The lab itself: full hosts really are what the tests on them take for granted, and nothing of them is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.kit import wait_until
from tests.lab.machines import Machine, missing
from tests.lab.machines_ground import Ground, control_groups

pytestmark = pytest.mark.xdist_group("lab")
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not os.environ.get("CI") or os.geteuid() != 0, reason="only where CI runs as root must there be a lab"
)
def test_ci_has_full_hosts() -> None:
    assert missing() == ""


def test_machines_are_full_hosts_of_their_own(pair: tuple[Machine, Machine]) -> None:
    one, two = pair
    for each in pair:
        assert each.sh("cat /proc/1/comm; hostname") == f"systemd\n{each.name}\n"
    assert one.sh("cat /etc/machine-id") != two.sh("cat /etc/machine-id")
    assert one.sh("cat /etc/ssh/ssh_host_ed25519_key.pub") != two.sh("cat /etc/ssh/ssh_host_ed25519_key.pub")
    one.sh("echo mine >/srv/mine")
    assert (one.root / "srv/mine").read_text() == "mine\n"
    assert not (two.root / "srv/mine").exists()


def test_only_the_networks_settings_of_the_kernel_are_a_machines_own(pair: tuple[Machine, Machine]) -> None:
    again = 'value=$(cat "$1") && echo "$value" 2>/dev/null >"$1" && echo written || echo refused'
    assert pair[0].sh(again, "/proc/sys/vm/swappiness") == "refused\n"
    assert pair[0].sh(again, "/proc/sys/net/ipv4/ip_forward") == "written\n"


@pytest.mark.parametrize("how", ["reboot", "plug"])
def test_a_machine_keeps_its_disk_over_a_restart(pair: tuple[Machine, Machine], how: str) -> None:
    machine = pair[0]
    machine.sh("echo kept >/srv/kept")
    before = machine.boot_id()
    if how == "reboot":
        machine.reboot()
    else:
        machine.stop()
        assert not machine.answers()
        machine.start()
        machine.wait()
    assert machine.boot_id() != before
    assert machine.sh("cat /srv/kept") == "kept\n"


def test_a_cut_machine_reaches_nobody_until_it_is_healed(pair: tuple[Machine, Machine]) -> None:
    one, two = pair
    reach = f"timeout 1 bash -c 'exec 3<>/dev/tcp/{one.address}/22' 2>/dev/null && echo yes || echo no"
    assert two.sh(reach) == "yes\n"
    one.cut()
    assert not one.answers()
    assert two.sh(reach) == "no\n"
    one.heal()
    wait_until(one.answers, "it is healed")
    assert two.sh(reach) == "yes\n"


def test_a_hung_sshd_goes_on_and_a_killed_one_comes_back(pair: tuple[Machine, Machine]) -> None:
    machine = pair[0]
    machine.hang()
    assert not machine.answers()
    machine.resume()
    wait_until(machine.answers, "it goes on")
    machine.kill_sshd()
    wait_until(machine.answers, "it is back")


def test_what_a_killed_owner_leaves_is_removed_by_the_next_one_and_what_is_in_use_is_not(
    machines: Callable[[int], list[Machine]],
) -> None:
    (mine,) = machines(1)
    script = (
        "import sys\nfrom tests.lab.machines import machines\n"
        "with machines(1) as (made,):\n print(made.folder, made.address, flush=True)\n sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        folder, address = owner.stdout.readline().split()
        number = address.split(".")[2]
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert Path(folder).exists()
    Ground.claim().release()
    assert not Path(folder).parent.exists()
    assert not [path for path in Path("/sys/class/net").iterdir() if path.name in (f"kxl{number}", f"kxl{number}-1")]
    assert not (Path("/run/netns") / f"kxl{number}-1").exists()
    assert not [root for root in control_groups() if (root / f"kxl{number}").exists()]
    assert mine.answers()
