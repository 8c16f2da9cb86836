"""A pipeline on real SSH hosts: it arrives, a second run changes nothing, and a dead host harms nobody else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import environment, run, write_spec
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)

MODULES = """
modules:
  - name: web
    tasks:
      - name: site
        steps:
          - {name: page, type: file, with: {path: "{{ vars.root }}/index.html", content: "hello\\n", mode: "0640"}}
          - {name: conf, type: template, with: {src: web.conf.j2, path: "{{ vars.root }}/web.conf"}}
          - {name: stamp, type: command, with: {argv: [touch, "{{ vars.root }}/done"], creates: "{{ vars.root }}/done"}}
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[SshHost]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ssh_host(tmp_path / f"n{n}", f"127.0.0.{10 + n}")) for n in (1, 2, 3)]


@pytest.fixture
def project(tmp_path: Path, hosts: list[SshHost]) -> Path:
    folder = tmp_path / "project"
    (folder / "templates").mkdir(parents=True)
    (folder / "templates" / "web.conf.j2").write_text("name {{ host.name }}\nend\n")
    inventory = {
        "defaults": {"user": hosts[0].user, "knownHosts": str(folder / "known_hosts")},
        "hosts": [
            {
                "name": f"n{number}",
                "address": host.address,
                "port": host.port,
                "privateKeyPath": str(host.key),
                "vars": {"root": str(host.prefix)},
            }
            for number, host in enumerate(hosts, 1)
        ],
    }
    write_spec(folder, f"inventory: {json.dumps(inventory)}\n{MODULES}")
    return folder


def run_pipeline(folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Without the keys and the settings of whoever runs the tests."""
    env = {**environment(HOME=str(folder)), "SSH_AUTH_SOCK": ""}
    done = run("kubexm-run", "spec.yaml", "--result", "result.json", cwd=folder, env=env)
    return done, json.loads((folder / "result.json").read_text())


def test_a_pipeline_arrives_on_three_hosts_and_a_second_run_changes_nothing(
    project: Path, hosts: list[SshHost]
) -> None:
    done, result = run_pipeline(project)
    assert (done.returncode, result["message"]) == (0, "9 actions: 9 changed"), done.stdout + done.stderr
    for number, host in enumerate(hosts, 1):
        assert (host.prefix / "web.conf").read_text() == f"name n{number}\nend\n"
        assert (host.prefix / "index.html").read_text() == "hello\n"
        assert (host.prefix / "index.html").stat().st_mode & 0o777 == 0o640
        assert sorted(path.name for path in host.prefix.iterdir()) == ["done", "index.html", "web.conf"]
    assert len((project / "known_hosts").read_text().splitlines()) == 3
    done, result = run_pipeline(project)
    assert (done.returncode, result["message"]) == (0, "9 actions: 9 unchanged"), done.stdout + done.stderr


def test_a_dead_host_is_unreachable_and_the_others_are_fine(project: Path, hosts: list[SshHost]) -> None:
    hosts[1].stop()
    done, result = run_pipeline(project)
    assert (done.returncode, result["message"]) == (1, "9 actions: 6 changed, 2 skipped, 1 unreachable")
    assert "host n2 cannot be reached at [127.0.0.12]" in done.stdout
    assert "connection refused; does sshd run there" in done.stdout
    assert [(host.prefix / "done").exists() for host in hosts] == [True, False, True]
    assert "Traceback" not in done.stdout + done.stderr
