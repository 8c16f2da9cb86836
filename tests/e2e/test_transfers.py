"""Transfers by the real program to real SSH hosts: folders kept the same, files fetched, an upload that is cut off."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import environment, run, start, write_spec
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


def spec(folder: Path, box: SshHost, steps: str, hosts: str = "h1") -> Path:
    inventory = f"""\
apiVersion: kubexm.io/v1
kind: Inventory
metadata: {{name: site}}
defaults: {{user: {box.user}, privateKeyPath: {box.key}, knownHosts: {box.known_hosts}, port: {box.port}}}
hosts: [{{name: "{hosts}", address: {box.address}}}]
"""
    (folder / "hosts.yaml").write_text(inventory)
    body = f"""\
inventory: hosts.yaml
modules:
  - name: m
    tasks:
      - name: t
        runOn: {{hosts: ["h*"]}}
        steps:
{steps}"""
    return write_spec(folder, body)


def _longest_part(folder: Path) -> int:
    sizes = [0]
    for part in folder.glob(".kx-*.part"):
        with contextlib.suppress(FileNotFoundError):  # it may be renamed just now
            sizes.append(part.stat().st_size)
    return max(sizes)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(HOME=str(tmp_path))


def test_a_folder_is_shown_kept_the_same_and_fetched_from_each_host(
    box: SshHost, tmp_path: Path, env: dict[str, str]
) -> None:
    site = tmp_path / "site"
    (site / "sub").mkdir(parents=True)
    for number in range(30):
        (site / "sub" / f"{number}.txt").write_text(f"{number}\n")
    (site / "index").write_text("new\n")
    for host in ("h1", "h2"):
        (tmp_path / host).mkdir()
        (tmp_path / host / "index").write_text("old\n")
        (tmp_path / host / "extra").write_text("extra\n")
        (tmp_path / host / "kept.log").write_text("log\n")
    steps = f"""\
          - name: site
            type: sync
            with: {{src: site, path: "{tmp_path}/{{{{ host.name }}}}", delete: true, exclude: ["*.log"]}}
          - name: back
            type: fetch
            with: {{path: "{tmp_path}/{{{{ host.name }}}}/index", to: got, name: index}}
"""
    path = spec(tmp_path, box, steps, "h[1:2]")
    checked = run("kubexm-run", str(path), "--executor", "check", cwd=tmp_path, env=env)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for shown in ("-old", "+new", "extra", "removed", "folder created", "sub/7.txt"):
        assert shown in checked.stdout
    assert (tmp_path / "h1" / "extra").exists()
    done = run("kubexm-run", str(path), "--uploads", "1", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    for host in ("h1", "h2"):
        names = sorted(each.name for each in (tmp_path / host).iterdir())
        assert names == ["index", "kept.log", "sub"]
        assert len(list((tmp_path / host / "sub").iterdir())) == 30
        assert (tmp_path / "got" / host / "index").read_text() == "new\n"
    again = run("kubexm-run", str(path), "--result", "-", "--output", "quiet", cwd=tmp_path, env=env)
    assert again.returncode == 0, again.stdout + again.stderr
    nodes = json.loads(again.stdout)["nodeResults"]
    results = [result for node in nodes.values() for result in node["hostResults"].values()]
    assert len(results) == 4
    assert not any(result["changed"] for result in results)


def test_an_upload_that_is_cut_off_goes_on_in_the_next_attempt(
    box: SshHost, tmp_path: Path, env: dict[str, str]
) -> None:
    size = 96 << 20
    data = random.Random(5).randbytes(size)
    (tmp_path / "large").write_bytes(data)
    target = tmp_path / "to"
    target.mkdir()
    (target / "file").write_text("old\n")
    steps = f"""\
          - name: send
            type: copy
            with: {{src: large, path: {target}/file}}
            retry: {{attempts: 3, delay: 100ms}}
"""
    path = spec(tmp_path, box, steps)
    program = start("kubexm-run", str(path), "--output", "json", cwd=tmp_path, env=env)
    until = time.monotonic() + 60
    while _longest_part(target) < size // 8:
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < until
        time.sleep(0.001)
    box.drop_connections()
    out, err = program.communicate(timeout=120)
    assert program.returncode == 0, out + err
    assert (target / "file").read_bytes() == data
    assert [each.name for each in target.iterdir()] == ["file"]
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events].count("action.retry") == 1
    retried = next(number for number, event in enumerate(events) if event["event"] == "action.retry")
    later = [event["done"] for event in events[retried:] if event["event"] == "action.progress" and event.get("done")]
    assert later[0] > size // 16, "it went on, and did not begin again"
