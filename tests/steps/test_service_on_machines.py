"""What a rollback says of services that were restarted for files which it then puts back, on a full host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import environment, run, write_spec
from tests.lab.machines import Machine

pytestmark = pytest.mark.xdist_group("machines")
UNIT = "[Service]\nExecStart=sleep 1000\n"


def test_a_service_that_read_what_is_put_back_afterwards_is_named(machine: Machine, tmp_path: Path) -> None:
    inventory = {
        "hosts": [{"name": "m", "address": machine.address, "user": "root", "privateKeyPath": str(machine.key)}],
        "defaults": {"knownHosts": str(tmp_path / "known_hosts")},
    }
    steps = [
        {"name": "config", "type": "file", "with": {"path": "/srv/kxs.conf", "content": "new\n"}},
        {"name": "restart", "type": "service", "with": {"name": "kxs", "state": "restarted", "settle": "0s"}},
        {"name": "fail", "type": "assert", "with": {"that": ["1 > 2"]}},
    ]
    modules = [{"name": "module", "tasks": [{"name": "task", "steps": steps}]}]
    write_spec(
        tmp_path, f"failurePolicy: rollback\ninventory: {json.dumps(inventory)}\nmodules: {json.dumps(modules)}\n"
    )
    machine.sh('printf %s "$1" >/etc/systemd/system/kxs.service; systemctl daemon-reload; systemctl start kxs', UNIT)
    try:
        done = run("kubexm-run", "spec.yaml", cwd=tmp_path, env=environment(HOME=str(tmp_path)), timeout=60)
        assert "Rolled back: 2 actions undone" in done.stdout, done.stdout + done.stderr
        assert "kxs.service keeps running with the files that it read when this run restarted it" in done.stderr
        assert machine.sh("systemctl is-active kxs; ls /srv").split() == ["active"]
    finally:
        machine.sh("systemctl stop kxs; rm -f /etc/systemd/system/kxs.service /srv/kxs.conf; systemctl daemon-reload")
