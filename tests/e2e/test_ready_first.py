"""``readyFirst``: every host is connected to before the first action; who does not answer is known before a change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import run
from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)

REST = """
readyFirst: true
HEAD
modules:
  - name: m
    tasks:
      - name: t
        runOn: all
        steps:
          - {name: a, type: command, tags: [a], with: {shell: 'echo x >>FOLDER/count.{{ host.name }}; WORK'}}
      - name: later
        runOn: {hosts: [one]}
        steps: [{name: b, type: command, tags: [b], with: {shell: "echo x >>FOLDER/count.b"}}]
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[SshHost]]:
    """Two hosts; the second one does not answer any more."""
    with ssh_host(tmp_path / "one") as one, ssh_host(tmp_path / "two") as two:
        two.stop()
        yield [one, two]


def site_of(sites: Sites, tmp_path: Path, hosts: list[SshHost], head: str = "", work: str = "true") -> Site:
    listed = [
        {
            "name": name, "address": host.address, "port": host.port, "user": host.user,
            "privateKeyPath": str(host.key), "knownHosts": str(host.known_hosts),
        }
        for name, host in zip(("one", "two"), hosts, strict=True)
    ]  # fmt: skip
    body = f"inventory: {json.dumps({'hosts': [*listed, {'name': 'here', 'connector': 'local'}]})}"
    body += REST.replace("HEAD", head).replace("WORK", work)
    return sites(body, HOME=str(tmp_path), SSH_AUTH_SOCK="")


def logins(host: SshHost) -> int:
    """How often somebody has logged in since it was started."""
    return (host.folder / "log").read_text().count("Accepted publickey")


def result(site: Site) -> dict[str, Any]:
    """By node and host what became of each action of the newest run."""
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))["result"]["nodeResults"]
    return {
        f"{node} {host}": each.get("failureKind") or each.get("reason") or each["status"]
        for node, of in shown.items()
        for host, each in of["hostResults"].items()
    }


def test_a_dead_host_is_known_before_anything_is_changed_and_the_run_fails(
    sites: Sites, tmp_path: Path, hosts: list[SshHost]
) -> None:
    site = site_of(sites, tmp_path, hosts)
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert not site.counts()
    assert said.count("FAILED     readyFirst") == 1
    assert "unreachable: host two cannot be reached" in said
    assert result(site) == {
        "readyFirst one": "Success", "readyFirst two": "unreachable", "readyFirst here": "Success",
        "m/t/a one": "dependency", "m/t/a two": "dependency", "m/t/a here": "dependency", "m/later/b one": "dependency",
    }  # fmt: skip
    assert logins(hosts[0]) == 1


def test_within_max_failures_the_others_go_on_over_the_connections_that_are_there(
    sites: Sites, tmp_path: Path, hosts: list[SshHost]
) -> None:
    site = site_of(sites, tmp_path, hosts, "maxFailures: 1")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    assert site.counts() == {"one": 1, "here": 1, "b": 1}
    assert result(site)["m/t/a two"] == "dependency"
    assert logins(hosts[0]) == 1


def test_no_hook_runs_before_all_hosts_are_ready(sites: Sites, tmp_path: Path, hosts: list[SshHost]) -> None:
    hook = '{name: NAME, type: command, with: {shell: "echo x >>FOLDER/count.NAME"}}'
    hooks = ", ".join(f"{name}: [{hook.replace('NAME', name)}]" for name in ("pre", "post", "onFailure"))
    site = site_of(sites, tmp_path, hosts, f"hooks: {{{hooks}}}")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    assert site.counts() == {"onFailure": 1}
    hosts[1].start()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert site.counts() == {"onFailure": 1, "pre": 1, "one": 1, "two": 1, "here": 1, "b": 1, "post": 1}


def test_a_check_says_it_too_and_a_dry_run_contacts_nobody(sites: Sites, tmp_path: Path, hosts: list[SshHost]) -> None:
    site = site_of(sites, tmp_path, hosts)
    said = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=1)
    assert "unreachable: host two cannot be reached" in said
    assert "4 skipped, 1 unreachable" in said
    before = logins(hosts[0])
    said = site.run("kubexm-run", "spec.yaml", "--executor", "dry-run", code=0)
    assert "[1/3] readyFirst  ready  on one, two, here" in said
    assert logins(hosts[0]) == before
    hosts[1].start()
    said = site.run("kubexm-run", "spec.yaml", "--executor", "check", "--output", "plain", code=0)
    assert "= 3 actions are as they should be" in said


def test_the_debugger_stops_there_first(sites: Sites, tmp_path: Path, hosts: list[SshHost]) -> None:
    hosts[1].start()
    site = site_of(sites, tmp_path, hosts)
    debug = run("kubexm-run", "spec.yaml", "--executor", "debug", cwd=site.folder, stdin="n\nc\n", env=site.env)
    assert debug.returncode == 0, debug.stdout + debug.stderr
    assert "[1/7] readyFirst on one" in debug.stdout
    assert site.counts() == {"one": 1, "two": 1, "here": 1, "b": 1}


def test_only_hosts_with_selected_work_have_to_be_ready(sites: Sites, tmp_path: Path, hosts: list[SshHost]) -> None:
    site = site_of(sites, tmp_path, hosts)
    site.run("kubexm-run", "spec.yaml", "--limit", "!two", "--output", "quiet", code=0)
    assert site.counts() == {"one": 1, "here": 1, "b": 1}
    site.run("kubexm-run", "spec.yaml", "--tags", "b", "--output", "quiet", code=0)
    assert site.counts() == {"one": 1, "here": 1, "b": 2}
    site.run("kubexm-run", "spec.yaml", "--limit", "here", "--output", "quiet", code=0)


def test_a_resume_connects_to_hosts_with_work_left_and_to_no_others(
    sites: Sites, tmp_path: Path, hosts: list[SshHost]
) -> None:
    hosts[1].start()
    site = site_of(sites, tmp_path, hosts, work="test {{ host.name }} != two -o -e FOLDER/ok")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    (site.host / "ok").touch()
    before = logins(hosts[1])
    # Only ``m/t/a`` on two is left, and what waits for it on one.
    site.run("kubexm", "runs", "resume", "last", "--only", "m/t/a", "--output", "quiet", code=0)
    assert (logins(hosts[0]), logins(hosts[1])) == (1, before + 1)
    assert result(site) == {
        "readyFirst one": "Success", "readyFirst two": "Success", "readyFirst here": "Success",
        "m/t/a one": "Success", "m/t/a two": "Success", "m/t/a here": "Success", "m/later/b one": "dependency",
    }  # fmt: skip
    hosts[1].stop()
    # The dead host has nothing left to do: it keeps nobody from going on.
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert logins(hosts[0]) == 2
    assert site.counts() == {"one": 1, "two": 2, "here": 1, "b": 1}


def test_a_host_that_has_died_since_is_known_before_a_resumed_run_changes_anything(
    sites: Sites, tmp_path: Path, hosts: list[SshHost]
) -> None:
    hosts[1].start()
    site = site_of(sites, tmp_path, hosts, work="test -e FOLDER/go || sleep 600")
    process = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: len(site.counts()) == 3)
    process.kill()
    ended(process)
    (site.host / "go").touch()
    hosts[1].stop()
    said = site.run("kubexm", "runs", "resume", "last", "--from", "m/t/a", "--output", "plain", code=1)
    assert "FAILED     readyFirst" in said
    assert site.counts() == {"one": 1, "two": 1, "here": 1}
    hosts[1].start()
    site.run("kubexm", "runs", "resume", "last", "--from", "m/t/a", "--output", "quiet", code=0)
    assert site.counts() == {"one": 2, "two": 2, "here": 2, "b": 1}


def test_drift_looks_at_the_others_whoever_does_not_answer(sites: Sites, tmp_path: Path, hosts: list[SshHost]) -> None:
    hosts[1].start()
    site = site_of(sites, tmp_path, hosts, work="true")
    text = (site.folder / "spec.yaml").read_text()
    file = "type: file, tags: [a], with: {path: 'FOLDER/f.{{ host.name }}', content: x}}"
    start = text.index("type: command, tags: [a]")
    text = text[:start] + file.replace("FOLDER", str(site.host)) + text[text.index("\n", start) :]
    (site.folder / "spec.yaml").write_text(text)
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    hosts[1].stop()
    (site.host / "f.one").write_text("other")
    said = site.run("kubexm", "drift", "spec.yaml", code=1)
    assert "one: differs: m/t/a" in said
    assert "two: FAILED: m/t/a" in said
