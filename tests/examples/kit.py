"""One of specs/examples in a folder of its own, and whole runs of it by the real program on full hosts."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.program import environment, run, start
from tests.e2e.site import ended, wait_until
from tests.lab.machines import Machine

EXAMPLES = Path(__file__).parents[2] / "specs" / "examples"
_LONG = 300.0
"""Seconds that a run may take on a busy machine: some install packages."""

# The user of the examples' inventories, and a repository with the packages that the examples install.
_READY = """
useradd -m -s /bin/bash admin
install -d -o admin -g admin -m 0700 /home/admin/.ssh
install -o admin -g admin -m 0600 /root/.ssh/authorized_keys /home/admin/.ssh/authorized_keys
echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
echo 'deb [trusted=yes] file:/usr/share/lab/debs ./' >/etc/apt/sources.list.d/lab.list
apt-get -qq update
"""
_LEAVE = """
systemctl kill --signal=KILL ssh.service
systemctl reset-failed
userdel -r admin 2>/dev/null
rm -f /etc/sudoers.d/admin /etc/apt/sources.list.d/lab.list
rm -rf /var/lib/apt/lists/*
"""


def welcome(machine: Machine) -> None:
    """Make it the host of an example."""
    machine.sh(_READY)


def dismiss(machine: Machine) -> None:
    """Leave it as it was found."""
    machine.sh(_LEAVE)
    machine.wait()


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    said: str
    result: dict[str, Any]

    @property
    def run_id(self) -> str:
        """What `kubexm runs` calls it."""
        return str(self.result["runId"])

    def changed(self) -> set[str]:
        """The nodes that changed something."""
        nodes = self.result["nodeResults"].items()
        return {name for name, node in nodes if any(each.get("changed") for each in node["hostResults"].values())}

    def failed(self) -> set[str]:
        """The nodes that failed on some host."""
        nodes = self.result["nodeResults"].items()
        return {
            name for name, node in nodes if any(each["status"] == "Failed" for each in node["hostResults"].values())
        }


class Example:
    """A copy of an example, with an inventory of test machines: their names, and the roles of each."""

    def __init__(
        self,
        name: str,
        folder: Path,
        hosts: Mapping[str, tuple[Machine, str]],
        env: Mapping[str, str],
        **variables: Any,
    ) -> None:
        self.folder = folder / name
        shutil.copytree(EXAMPLES / name, self.folder)
        machines = [machine for machine, _ in hosts.values()]
        inventory = {
            "apiVersion": "kubexm.io/v1",
            "kind": "Inventory",
            "metadata": {"name": name},
            "vars": variables,
            "defaults": {
                "user": "admin",
                "become": True,
                "privateKeyPath": str(machines[0].key),
                "knownHosts": str(folder / "known_hosts"),
            },
            "hosts": [
                {"name": host, "address": machine.address, "roles": [role]} for host, (machine, role) in hosts.items()
            ],
        }
        # JSON is YAML too.
        (self.folder / "inventory.yaml").write_text(json.dumps(inventory))
        self._env = environment(HOME=str(folder), KUBEXM_STATE=str(folder / "state"), SSH_AUTH_SOCK="", **env)

    def run(self, *options: str, code: int = 0) -> Outcome:
        """A run to its end."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        said = self._command("kubexm-run", "pipeline.yaml", "--result", result.name, *options, code=code)
        return Outcome(said, json.loads(result.read_text()))

    def check(self, *options: str) -> str:
        """What a run would change, as it is shown."""
        return self._command(
            "kubexm-run", "pipeline.yaml", "--executor", "check", "--output", "plain", *options, code=0
        )

    def kill_at(self, node: str, host: str, *options: str, at_work: Callable[[], bool] = lambda: True) -> str:
        """Begin a run, and kill -9 it while that node is at work on that host; gives the run's id."""
        process = start("kubexm-run", "pipeline.yaml", "--output", "json", *options, cwd=self.folder, env=self._env)
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        begun = (each for each in events if each["event"] == "action.started")
        event = next((each for each in begun if (each["node"], each["host"]) == (node, host)), None)
        assert event is not None, f"{node} never began on {host}:\n{ended(process)}"
        wait_until(at_work)
        process.send_signal(signal.SIGKILL)
        ended(process, -signal.SIGKILL)
        return str(event["run"])

    def resume(self, run_id: str) -> str:
        """Go on with a run, to its end."""
        return self._command("kubexm", "runs", "resume", run_id, "--output", "plain", code=0)

    def roll_back(self, run_id: str) -> str:
        """Take a run back."""
        return self._command("kubexm", "runs", "rollback", run_id, "--yes", "--output", "plain", code=0)

    def _command(self, *command: str, code: int) -> str:
        done = run(*command, cwd=self.folder, env=self._env, timeout=_LONG)
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        assert done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{said}"
        return said
