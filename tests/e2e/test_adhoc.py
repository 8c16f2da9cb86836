"""Commands about hosts on real SSH hosts, with an ansible inventory as it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kubexm_exec.runner.facts import FACT_NAMES
from tests.e2e.program import environment
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[SshHost]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ssh_host(tmp_path / f"n{n}", f"127.0.0.{20 + n}")) for n in (1, 2)]


@pytest.fixture
def folder(tmp_path: Path, hosts: list[SshHost]) -> Path:
    """A folder with an ansible inventory of two live hosts and a dead one, and with one of ours."""
    lines = [
        f"n{number} ansible_host={host.address} ansible_port={host.port} ansible_ssh_private_key_file={host.key}"
        for number, host in enumerate(hosts, 1)
    ]
    lines.append(f"dead ansible_host=127.0.0.29 ansible_port=1 ansible_ssh_private_key_file={hosts[0].key}")
    text = "\n".join(["[live]", *lines[:2], "[all]", *lines, "[all:vars]", f"ansible_user={hosts[0].user}", ""])
    (tmp_path / "hosts.ini").write_text(text)
    inventory = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Inventory",
        "metadata": {"name": "site"},
        "hosts": [
            {"name": "n1", "address": hosts[0].address, "port": hosts[0].port, "user": hosts[0].user,
             "privateKeyPath": str(hosts[0].key), "knownHosts": str(tmp_path / "known")},
        ],
    }  # fmt: skip
    (tmp_path / "site.yaml").write_text(json.dumps(inventory))
    return tmp_path


def kubexm(folder: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """Without the keys and the settings of whoever runs the tests."""
    env = {**environment(HOME=str(folder)), "SSH_AUTH_SOCK": ""}
    program = Path(sys.executable).with_name("kubexm")
    return subprocess.run(
        [program, *arguments], cwd=folder, env=env, input=said, capture_output=True, text=True, timeout=120, check=False
    )


def test_command_arrives_on_live_hosts_as_it_was_typed_and_a_dead_one_is_unreachable(folder: Path) -> None:
    done = kubexm(folder, "exec", "live", "-i", "hosts.ini", "--output", "plain", "--", "echo", "$HOME {{ x }}  *")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| $HOME {{ x }}  *") == 2
    done = kubexm(folder, "exec", "all", "-i", "hosts.ini", "--output", "plain", "--shell", "exit 0")
    assert done.returncode == 1
    assert "2 changed, 1 unreachable" in done.stdout, done.stdout


def test_facts_are_asked_of_all_hosts_and_a_dead_one_is_named(folder: Path) -> None:
    done = kubexm(folder, "facts", "-i", "hosts.ini", "--output", "json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert set(told["dead"]) == {"error"}
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for name in ("n1", "n2"):
        assert tuple(told[name]) == FACT_NAMES
        assert (told[name]["bootId"], told[name]["time"]["skewSeconds"]) == (boot, 0)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="the ssh program is not installed")
def test_shell_is_opened_with_the_ssh_program_and_ends_as_it_does(folder: Path) -> None:
    done = kubexm(folder, "shell", "n1", "-i", "site.yaml", said="echo here: $SSH_CONNECTION\nexit 7\n")
    assert done.returncode == 7, done.stdout + done.stderr
    assert "127.0.0.21" in done.stdout
    assert "ssh-ed25519" in (folder / "known").read_text()
