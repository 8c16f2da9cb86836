"""kill -9 at every point of the journal: what is resumed comes to the same end, nothing acknowledged runs twice."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import BIN, environment, write_spec

POINTS = [
    *(f"{name}.{when}:1" for name in ("begin", "end") for when in ("before", "after")),
    *(f"append.{when}:{times}" for when in ("before", "after") for times in (1, 2, 3, 4, 5, 6, 8, 10, 13)),
]
"""Before and after every kind of write: that of the run itself, that of its end, and each group of entries."""

# Every step counts its executions on the host, and can be looked at: the others are never run a second time blindly.
STEPS = """
inventory: {hosts: [{name: "n[1:3]", connector: local, perHostLimit: 2}]}
vars: {at: "FOLDER"}
modules:
  - name: first
    tasks:
      - name: make
        runOn: {hosts: ["n[1:3]"]}
        steps:
          - name: guarded
            type: command
            with:
              shell: 'echo x >>"$D/guarded.$H"'
              creates: "{{ vars.at }}/guarded.{{ host.name }}"
              env: &env {D: "{{ vars.at }}", H: "{{ host.name }}"}
          - name: file
            type: file
            with: {path: "{{ vars.at }}/file.{{ host.name }}", content: "{{ host.name }}\\n"}
          - name: count
            type: script
            with:
              content: 'echo x >>"$D/count.$H"; echo counted-$H'
              creates: "{{ vars.at }}/count.{{ host.name }}"
              env: *env
  - name: second
    tasks:
      - name: gather
        runOn: {hosts: [n1]}
        steps:
          - name: more
            type: fragment
            with:
              steps:
                - name: added
                  type: command
                  with:
                    shell: 'echo x >>"$D/added.$H"'
                    creates: "{{ vars.at }}/added.{{ host.name }}"
                    env: *env
          - name: last
            type: file
            with:
              path: "{{ vars.at }}/last"
              content: "{{ hosts | length }} {{ steps['first/make/file'].outputs.size }}\\n"
"""


class Site:
    """A folder that stands for the hosts, and a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = folder / "host"
        self.host.mkdir(parents=True)
        self.spec = write_spec(folder, STEPS.replace("FOLDER", str(self.host)))
        self.env = environment(KUBEXM_STATE=str(folder / "state"))

    def run(self, *command: str, die_at: str = "") -> subprocess.CompletedProcess[str]:
        env = {**self.env, **({"KUBEXM_DIE_AT": die_at} if die_at else {})}
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]], cwd=self.folder, env=env, capture_output=True, text=True,
            timeout=120, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def entries(self) -> list[list[Any]]:
        """All that the journal acknowledged."""
        path = self.folder / "state" / "journal.db"
        if not path.exists():
            return []
        with sqlite3.connect(path) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if "entries" not in tables:
                return []
            rows = connection.execute("SELECT data FROM entries ORDER BY seq").fetchall()
        connection.close()
        return [entry for (data,) in rows for entry in json.loads(data)]

    def has_run(self) -> bool:
        """Whether the journal knows the run."""
        path = self.folder / "state" / "journal.db"
        with sqlite3.connect(path) as connection:
            count = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        connection.close()
        return bool(count)

    def counts(self) -> Counter[str]:
        """How often each counting step was executed, on each host."""
        return Counter({
            path.name: len(path.read_text().splitlines())
            for path in self.host.iterdir()
            if path.name.partition(".")[0] in ("guarded", "count", "added")
        })  # fmt: skip

    def content(self) -> dict[str, str]:
        """What is on the hosts, without the counts, and without what a killed writer had not put in its place yet."""
        files = [path for path in sorted(self.host.iterdir()) if not path.name.startswith(".kx-")]
        return {path.name: path.read_text() for path in files if path.name not in self.counts()}


def ended(entries: list[list[Any]]) -> set[tuple[str, str]]:
    return {(row[1], row[2]["hostName"]) for row in entries if row[0] == "e" and row[2]["status"] == "Success"}


def statuses(entries: list[list[Any]]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for row in entries:
        if row[0] == "e":
            _, node, result, *_ = row
            done = result["status"] == "Success" or result.get("reason") == "precheck"
            found[node, result["hostName"]] = "done" if done else result["status"]
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("undisturbed"))
    done = site.run("kubexm-run", "spec.yaml", "--output", "quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(site.counts().values()) == {1}
    return site


def finish(site: Site) -> None:
    """Resume until it is through; what the journal acknowledged must not run again."""
    for _ in range(4):
        before, counted = ended(site.entries()), site.counts()
        done = site.run("kubexm", "runs", "resume", "last", "--output", "quiet")
        for name, host in before:
            file = f"{name.rpartition('/')[2].rpartition('+')[2]}.{host}"
            assert site.counts()[file] == counted[file], f"{name} on {host} ran again"
        if done.returncode == 0:
            return
    pytest.fail(done.stdout + done.stderr)


@pytest.mark.parametrize("die_at", POINTS)
def test_run_that_was_killed_at_a_point_of_the_journal_comes_to_the_same_end_when_it_is_resumed(
    die_at: str, undisturbed: Site, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site")
    done = site.run("kubexm-run", "spec.yaml", "--output", "quiet", die_at=die_at)
    if done.returncode == 0:
        pytest.skip("it was through before that point")
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    if not site.has_run():
        # Nothing was acknowledged, and nothing done.
        assert site.content() == {}
        assert die_at == "begin.before:1"
        return
    if die_at.startswith("end.after"):
        assert site.run("kubexm", "runs", "--output", "json").stdout.count('"Success"') == 1
        return
    shown = json.loads(site.run("kubexm", "runs", "--output", "json").stdout)
    assert shown[0]["status"] == "Interrupted"
    finish(site)
    assert site.content() == undisturbed_content(undisturbed, site)
    assert statuses(site.entries()) == statuses(undisturbed.entries())
    assert set(site.counts().values()) == {1}


def undisturbed_content(undisturbed: Site, site: Site) -> dict[str, str]:
    return {name: text.replace(str(undisturbed.host), str(site.host)) for name, text in undisturbed.content().items()}


@pytest.mark.parametrize("seed", range(3))
def test_run_that_is_killed_again_and_again_comes_to_the_same_end(seed: int, undisturbed: Site, tmp_path: Path) -> None:
    chance = random.Random(seed)
    site = Site(tmp_path / "site")
    done = site.run("kubexm-run", "spec.yaml", "--output", "quiet", die_at=f"append.after:{chance.randint(1, 4)}")
    assert done.returncode == -signal.SIGKILL
    for _ in range(3):
        point = f"any:{chance.randint(1, 9)}"
        done = site.run("kubexm", "runs", "resume", "last", "--output", "quiet", die_at=point)
    if done.returncode != 0:
        finish(site)
    assert site.content() == undisturbed_content(undisturbed, site)
    assert statuses(site.entries()) == statuses(undisturbed.entries())
    assert set(site.counts().values()) == {1}
