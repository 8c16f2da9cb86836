"""A run is cancelled from another terminal: told at once, its processes gone, its hooks run, and it can be resumed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

# It does not want to die, and has a child: all of it must go.
SLEEPS = """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: wait
            type: command
            with:
              shell: >-
                trap "" TERM; echo $$ >"FOLDER/pid.{{ host.name }}"; sleep 300 &
                echo $! >"FOLDER/child.{{ host.name }}"; wait; wait; sleep 300
              creates: FOLDER/go
          - {name: after, type: command, with: {shell: 'echo x >>"FOLDER/count.after"'}}
hooks:
  always: [{name: bye, type: command, with: {shell: 'echo x >>"FOLDER/count.always"'}}]
"""


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "remote", "127.0.0.31") as host:
        yield host


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def processes(site: Site, hosts: list[str]) -> list[int]:
    paths = [site.host / f"{name}.{host}" for host in hosts for name in ("pid", "child")]
    wait_until(lambda: all(path.exists() and path.read_text().strip() for path in paths))
    return [int(path.read_text()) for path in paths]


@pytest.mark.skipif(SSHD is None, reason=MISSING)
def test_cancel_ends_what_runs_here_and_far_away_within_ten_seconds_and_the_run_can_be_resumed(
    sites: Sites, remote: SshHost
) -> None:
    far = {
        "name": "far", "address": remote.address, "port": remote.port, "user": remote.user,
        "privateKeyPath": str(remote.key), "knownHosts": str(remote.known_hosts),
    }  # fmt: skip
    inventory = {"hosts": [{"name": "near", "connector": "local"}, far]}
    site = sites(f"inventory: {json.dumps(inventory)}\n{SLEEPS}", SSH_AUTH_SOCK="", HOME=str(remote.folder))
    run = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    pids = processes(site, ["near", "far"])
    begun = time.monotonic()
    said = site.run("kubexm", "runs", "cancel", "last", code=0)
    assert f"(process {run.pid}) to stop" in said
    wait_until(lambda: all(map(gone, pids)))
    # On a machine that is not busy it takes about three; ten are promised.
    took = time.monotonic() - begun
    said = ended(run, 130)
    assert took < 10 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), f"it took {took:.1f}s"
    assert "cancelled: running actions are stopped, always hooks run" in said
    assert (site.lines("count.after"), site.lines("count.always")) == (0, 1)
    assert site.status() == "Cancelled"
    said = site.run("kubexm", "runs", "cancel", "last", code=2)
    assert "is not running: it is Cancelled" in said
    (site.host / "go").touch()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    # What it was asked before it was resumed is not asked of the new session.
    assert site.status() == "Success"
    assert (site.lines("count.after"), site.lines("count.always")) == (2, 2)


def test_cancel_of_a_run_that_is_not_there_or_over_says_so(sites: Sites) -> None:
    site = sites("inventory: {hosts: [{name: n, connector: local}]}\n" + SLEEPS)
    assert "there is no run yet" in site.run("kubexm", "runs", "cancel", "last", code=2)
