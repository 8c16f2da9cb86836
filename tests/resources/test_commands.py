"""The real programs: resources listed, fetched, bundled and used, on this machine and on hosts over SSH."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubexm_exec.cli.main import main
from tests.e2e.program import environment, run, write_spec
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host
from tests.resources.server import Web

CONTENT = random.Random(4).randbytes(400_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SECRET = "tok3n-of-the-team"


@pytest.fixture
def project(tmp_path: Path, web: Web) -> Path:
    folder = tmp_path / "project"
    (folder / "out").mkdir(parents=True)
    for arch in ("amd64", "arm64"):
        web.add(CONTENT + arch.encode(), f"/tool-1.2-{arch}.bin")
    web.add(CONTENT, "/private.bin", needs={"Authorization": f"Bearer {SECRET}"})
    (folder / "local.txt").write_text("from here\n")
    write_spec(
        folder,
        f"""
params: {{version: {{default: "1.2"}}}}
resources:
  tool:
    url: "{web.url("/tool-")}{{{{ params.version }}}}-{{{{ variant }}}}.bin"
    sha256:
      amd64: {hashlib.sha256(CONTENT + b"amd64").hexdigest()}
      arm64: {hashlib.sha256(CONTENT + b"arm64").hexdigest()}
  private:
    url: "{web.url("/private.bin")}"
    sha256: {DIGEST}
    headers: {{Authorization: "Bearer {{{{ secret('env:TOKEN') }}}}"}}
  local: local.txt
modules:
  - name: m
    tasks:
      - name: t
        vars: {{out: "{{{{ vars.root | default('{folder / "out"}') }}}}"}}
        steps:
          - {{name: tool, type: download, with: {{resource: tool, path: "{{{{ vars.out }}}}/tool", mode: "0755"}}}}
          - {{name: private, type: download, with: {{resource: private, path: "{{{{ vars.out }}}}/private"}}}}
          - {{name: copied, type: copy, with: {{src: "resource:private", path: "{{{{ vars.out }}}}/copied"}}}}
          - {{name: local, type: copy, with: {{src: "resource:local", path: "{{{{ vars.out }}}}/local"}}}}
""",
    )
    return folder


def call(folder: Path, program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The real program for runs; the other commands in this process, which is quicker."""
    env = environment(TOKEN=SECRET, HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache"), SSH_AUTH_SOCK="", **more)
    if program == "kubexm-run":
        done = run(program, *arguments, cwd=folder, env=env)
    else:
        with contextlib.chdir(folder):
            result = CliRunner().invoke(main, list(arguments), env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        done = subprocess.CompletedProcess([program, *arguments], result.exit_code, result.stdout, result.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    return done


def states(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line[0] for line in done.stdout.splitlines() if line[:1] in "~?=" and " m/t/" in line]


def test_check_run_and_second_run_on_this_machine(project: Path, web: Web) -> None:
    checked = call(project, "kubexm-run", "spec.yaml", "--executor", "check")
    assert (checked.returncode, states(checked)) == (0, ["~", "~", "?", "~"]), checked.stdout + checked.stderr
    assert "resource private is not here: check fetches nothing" in checked.stdout
    assert (web.asked, list((project / "out").iterdir())) == ([], [])
    dry = call(project, "kubexm-run", "spec.yaml", "--executor", "dry-run")
    assert (dry.returncode, web.asked) == (0, [])

    done = call(
        project, "kubexm-run", "spec.yaml", "--output", "plain", "--result", "result.json", "--report", "r.html"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "out" / "private").read_bytes() == CONTENT
    assert (project / "out" / "copied").read_bytes() == CONTENT
    assert (project / "out" / "local").read_text() == "from here\n"
    assert (project / "out" / "tool").stat().st_mode & 0o777 == 0o755
    assert (project / "out" / "copied").stat().st_mode & 0o777 == 0o644
    assert len(web.asked) == 2
    for path in [*(project / "cache").rglob("*"), project / "result.json", project / "r.html"]:
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path

    again = call(project, "kubexm-run", "spec.yaml", "--output", "plain")
    assert "4 actions: 4 unchanged" in again.stdout
    assert len(web.asked) == 2


def test_a_plan_is_run_with_its_resources_and_refused_when_a_local_one_changed(project: Path, web: Web) -> None:
    planned = call(project, "kubexm", "plan", "spec.yaml", "-o", "plan.json")
    assert planned.returncode == 0, planned.stderr
    done = call(project, "kubexm-run", "--plan", "plan.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (project / "local.txt").write_text("another\n")
    stale = call(project, "kubexm-run", "--plan", "plan.json")
    assert (stale.returncode, "local.txt has changed" in stale.stderr) == (3, True)


def test_list_shows_every_variant_and_what_is_here(project: Path, web: Web) -> None:
    listed = call(project, "kubexm", "resources", "list", "spec.yaml", "--output", "json")
    rows = {(row["resource"], row["variant"]): row for row in json.loads(listed.stdout)}
    assert {key: (row["here"], row["steps"]) for key, row in rows.items()} == {
        ("tool", "amd64"): (None, 1),
        ("tool", "arm64"): (None, 1),
        ("private", ""): (None, 2),
        ("local", ""): ("path", 1),
    }
    assert rows["tool", "arm64"]["source"].endswith("/tool-1.2-arm64.bin")
    assert web.asked == []
    text = call(project, "kubexm", "resources", "list", "spec.yaml", "-e", "version=1.3").stdout
    assert "tool-1.3-arm64.bin" in text
    assert "4 files, 1 here" in text


def test_fetch_fills_the_cache_and_says_the_missing_digest(project: Path, web: Web) -> None:
    done = call(project, "kubexm", "resources", "fetch", "spec.yaml")
    assert done.returncode == 0, done.stderr
    assert "private  fetched  400.0 kB" in done.stdout
    digest = hashlib.sha256(b"from here\n").hexdigest()
    assert f"spec.yaml:16:3  local:  sha256: {digest}" in done.stdout
    assert f"add sha256: {digest}" in done.stderr, "the warning has it too"
    assert len(web.asked) == 3
    assert "here (cache)" in call(project, "kubexm", "resources", "fetch", "spec.yaml").stdout
    assert len(web.asked) == 3


def test_what_cannot_be_had_hinders_nothing_else(project: Path, web: Web) -> None:
    del web.pages["/private.bin"]
    done = call(project, "kubexm", "resources", "fetch", "spec.yaml", "--output", "json")
    data = json.loads(done.stdout)
    assert (done.returncode, len(data["fetched"])) == (1, 3)
    assert "404" in data["failed"][0]["error"]
    text = call(project, "kubexm", "resources", "fetch", "spec.yaml")
    assert (text.returncode, "→ there is no such file" in text.stderr) == (1, True)


def test_a_bundle_is_all_that_a_run_without_a_network_needs(project: Path, web: Web) -> None:
    made = call(project, "kubexm", "resources", "bundle", "spec.yaml", "-o", "offline")
    assert made.returncode == 0, made.stderr
    assert "4 files" in made.stdout
    assert "Use it with: kubexm-run spec.yaml --bundle offline" in made.stdout
    web.pages.clear()
    asked = len(web.asked)
    there = {"XDG_CACHE_HOME": str(project / "another")}
    done = run(
        "kubexm-run", "spec.yaml", "--bundle", "offline", cwd=project,
        env=environment(TOKEN=SECRET, HOME=str(project), **there),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "copied private from the bundle to" in done.stdout
    assert "downloaded" not in done.stdout
    assert (project / "out" / "private").read_bytes() == CONTENT
    assert len(web.asked) == asked
    by_variable = call(project, "kubexm", "resources", "list", "spec.yaml", "--output", "json", KUBEXM_BUNDLE="offline")
    assert {row["here"] for row in json.loads(by_variable.stdout)} == {"bundle", "path"}


def test_a_bundle_serves_hosts_that_should_fetch_for_themselves(project: Path, web: Web) -> None:
    call(project, "kubexm", "resources", "bundle", "spec.yaml", "-o", "offline")
    spec = project / "spec.yaml"
    spec.write_text(spec.read_text().replace("    url:", "    fetchOn: host\n    url:"))
    web.pages.clear()
    done = call(project, "kubexm-run", "spec.yaml", "--bundle", "offline")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_bundle_that_is_not_there_is_an_error_before_anything_runs(project: Path) -> None:
    done = call(project, "kubexm-run", "spec.yaml", "--bundle", "nowhere")
    assert (done.returncode, "there is no bundle nowhere" in done.stderr) == (2, True)


def test_prune_says_what_it_removed(project: Path) -> None:
    call(project, "kubexm", "resources", "fetch", "spec.yaml")
    assert "removed 0 files" in call(project, "kubexm", "resources", "prune").stdout
    gone = json.loads(call(project, "kubexm", "resources", "prune", "--older-than", "0s", "--output", "json").stdout)
    assert gone["files"] >= 3
    assert call(project, "kubexm", "resources", "prune", "--older-than", "soon").returncode == 2


def test_a_missing_secret_is_named_and_nothing_is_asked(project: Path, web: Web) -> None:
    done = run("kubexm", "resources", "fetch", "spec.yaml", cwd=project, env=environment(HOME=str(project)))
    assert (done.returncode, "TOKEN is not set" in done.stderr, web.asked) == (2, True, [])


@pytest.mark.skipif(SSHD is None, reason=MISSING)
class TestOverSsh:
    """Hosts that are reached by a real sshd."""

    @pytest.fixture
    def hosts(self, tmp_path: Path) -> Iterator[list[SshHost]]:
        with ExitStack() as stack:
            yield [stack.enter_context(ssh_host(tmp_path / f"n{n}", f"127.0.0.{30 + n}")) for n in (1, 2, 3)]

    @pytest.fixture
    def site(self, project: Path, hosts: list[SshHost]) -> Path:
        inventory: dict[str, Any] = {
            "defaults": {"user": hosts[0].user, "knownHosts": str(project / "known_hosts")},
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
        (project / "inventory.yaml").write_text(
            json.dumps({"apiVersion": "kubexm.io/v1", "kind": "Inventory", "metadata": {"name": "lab"}, **inventory})
        )
        return project

    def test_three_hosts_get_it_from_one_download_and_a_second_run_changes_nothing(
        self, site: Path, web: Web, hosts: list[SshHost]
    ) -> None:
        done = call(site, "kubexm-run", "spec.yaml", "-i", "inventory.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert all((host.prefix / "private").read_bytes() == CONTENT for host in hosts)
        assert len(web.asked) == 2, "one for each file, not for each host"
        again = call(site, "kubexm-run", "spec.yaml", "-i", "inventory.yaml")
        assert "12 unchanged" in again.stdout
        assert len(web.asked) == 2

    def test_hosts_that_fetch_for_themselves_do_so_and_leave_nothing_behind(
        self, site: Path, web: Web, hosts: list[SshHost]
    ) -> None:
        spec = site / "spec.yaml"
        spec.write_text(spec.read_text().replace("resource: private,", "resource: private, fetchOn: host,"))
        done = call(site, "kubexm-run", "spec.yaml", "-i", "inventory.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        asked = [headers["user-agent"] for path, headers in web.asked if path == "/private.bin"]
        assert sorted(agent.partition("/")[0] for agent in asked) == ["kubexm"] * 4, asked
        for host in hosts:
            assert sorted(os.listdir(host.prefix)) == ["copied", "local", "private", "tool"]  # noqa: PTH208
        again = call(site, "kubexm-run", "spec.yaml", "-i", "inventory.yaml")
        assert "12 unchanged" in again.stdout

    def test_forged_content_reaches_no_host(self, site: Path, web: Web, hosts: list[SshHost]) -> None:
        web.pages["/private.bin"].content = b"forged"
        for where in ("control", "host"):
            spec = site / "spec.yaml"
            spec.write_text(spec.read_text().replace("resource: private,", f"resource: private, fetchOn: {where},"))
            done = call(site, "kubexm-run", "spec.yaml", "-i", "inventory.yaml", "--output", "plain")
            assert done.returncode == 1
            assert f"expected {DIGEST}, got {hashlib.sha256(b'forged').hexdigest()}" in done.stdout
            assert not any((host.prefix / "private").exists() for host in hosts)
            spec.write_text(spec.read_text().replace(f", fetchOn: {where}", ""))
