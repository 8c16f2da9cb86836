"""A journal that cannot be written: that is said, what runs is ended, nothing is dropped, and a resume goes on."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubexm_exec.journal.store import Store
from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.postgres import Postgres

NOT_ROOT = os.geteuid() != 0
as_root = pytest.mark.skipif(NOT_ROOT, reason="needs root: it mounts a small file system in a namespace of its own")

# Two hosts, so that something runs on the one when the journal breaks on the other.
STEPS = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: [n1]}
        steps:
          - {name: first, type: command, with: {shell: 'echo x >>"FOLDER/count.first"'}}
          - name: gate
            type: command
            with: &gate
              shell: 'touch FOLDER/at.gate; for i in $(seq 3000); do [ -e FOLDER/go ] && exit; sleep 0.05; done'
              creates: FOLDER/go
          - {name: second, type: file, with: {path: FOLDER/second, content: "second\\n"}}
          - {name: third, type: command, with: {shell: 'echo x >>"FOLDER/count.third"'}}
      - name: long
        needs: []
        runOn: {hosts: [n2]}
        steps:
          - name: sleep
            type: command
            with:
              shell: 'echo $$ >FOLDER/pid; exec sleep 300'
              creates: FOLDER/go.long
hooks:
  always: [{name: bye, type: command, with: {shell: 'echo x >>"FOLDER/count.always"'}}]
"""
STOPPED = "error: the run was stopped because it could not be recorded"


def at_gate(site: Site) -> int:
    """Wait until the first step is written down as done, and both hosts are at work; the process on the second."""
    pid = site.host / "pid"
    wait_until(lambda: (site.host / "at.gate").exists() and pid.exists() and pid.read_text().strip())
    return int(pid.read_text())


def after_repair(site: Site) -> None:
    """The run is there, broke off, and a resume brings it to its end without doing anything twice."""
    assert site.status() == "Interrupted"
    (site.host / "go.long").touch()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert site.status() == "Success"
    assert (site.lines("count.first"), site.lines("count.third"), site.lines("count.always")) == (1, 1, 1)
    assert (site.host / "second").read_text() == "second\n"


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[list[str]]:
    """A small file system at a folder, in a mount namespace of its own: the words that let a command see it."""
    folder.mkdir(parents=True)
    holder = subprocess.Popen(
        ["unshare", "-m", "--propagation", "private", "sh", "-c",
         'mount -t tmpfs -o "size=$1,mode=0700" none "$2" && echo mounted && exec sleep 600', "sh", size, str(folder)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("nothing can be mounted here")
        yield ["nsenter", "-m", "-t", str(holder.pid), f"--wd={folder.parent}"]
    finally:
        holder.kill()
        holder.communicate()


class OnSmallDisk:
    """A site whose state is on a small disk; commands are started in its namespace."""

    def __init__(self, site: Site, enter: list[str]) -> None:
        self.site, self._enter = site, enter

    def sh(self, script: str) -> str:
        command = [*self._enter, "sh", "-ec", script]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.site.folder).stdout

    def fill(self) -> None:
        """Leave no space at all, and give back what the files that are there have not used."""
        self.sh(f"dd if=/dev/zero of={self.site.state}/fill bs=1k 2>/dev/null || true")


@pytest.fixture
def disk(sites: Sites) -> Iterator[OnSmallDisk]:
    site = sites(STEPS)
    with small_disk(site.state, "1m") as enter:
        # The commands of the site are run in the namespace, as a person would who has such a disk.
        site.within = tuple(enter)
        yield OnSmallDisk(site, enter)


@as_root
def test_disk_that_is_full_at_the_start_is_said_and_nothing_is_run(disk: OnSmallDisk) -> None:
    disk.fill()
    said = disk.site.run("kubexm-run", "spec.yaml", code=2)
    assert "there is no space left for the journal" in said
    assert "free some space" in said
    assert disk.site.content() == {}
    disk.sh(f"rm {disk.site.state}/fill")
    (disk.site.host / "go").touch()
    (disk.site.host / "go.long").touch()
    disk.site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)


@as_root
def test_disk_that_becomes_full_ends_what_runs_and_the_run_goes_on_when_there_is_space(disk: OnSmallDisk) -> None:
    site = disk.site
    run = site.start("kubexm-run", "spec.yaml")
    pid = at_gate(site)
    disk.fill()
    (site.host / "go").touch()
    said = ended(run, 1)
    assert STOPPED in said
    assert "there is no space left for the journal" in said
    assert gone(pid)
    assert not (site.host / "second").exists(), "it was begun without being written down"
    disk.sh(f"rm {site.state}/fill")
    after_repair(site)


@as_root
def test_log_that_cannot_be_written_stops_the_run_too(disk: OnSmallDisk) -> None:
    site = disk.site
    site.write(STEPS.replace("for i in", "yes $(seq 9) | head -n 200000; for i in"))
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert STOPPED in said
    assert "output.jsonl: there is no space left" in said
    assert not (site.host / "second").exists()


def test_folder_that_is_read_only_is_said_and_nothing_is_run(sites: Sites) -> None:
    site = sites(STEPS)
    site.state.mkdir(mode=0o500)
    if not NOT_ROOT:
        # Root may write everywhere, except where nothing can be.
        site.env["KUBEXM_STATE"] = "/proc/kubexm"
    said = site.run("kubexm-run", "spec.yaml", code=2)
    assert "error: journal " in said
    assert "→ " in said
    assert site.content() == {}


@pytest.mark.parametrize("what", ["corrupt", "foreign", "newer"])
def test_journal_that_is_none_of_ours_is_left_alone_and_nothing_is_run(what: str, sites: Sites) -> None:
    site = sites(STEPS)
    site.state.mkdir()
    path = site.state / "journal.db"
    if what == "corrupt":
        path.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)
    elif what == "foreign":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE songs (name text)")
        other.close()
    else:
        Store(str(path)).close()
        with sqlite3.connect(path) as newer:
            newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.close()
    before = path.read_bytes()
    for command in (["kubexm-run", "spec.yaml"], ["kubexm", "runs"], ["kubexm", "runs", "resume", "last"]):
        said = site.run(*command, code=2)
        expected = {
            "corrupt": r"journal is damaged|not a journal",
            "foreign": "is the database of another program",
            "newer": "was made by a newer kubexm",
        }[what]
        assert any(part in said for part in expected.split("|")), said
    if what != "newer":
        assert path.read_bytes() == before
    assert [each.name for each in site.state.iterdir()] == ["journal.db"]
    assert site.content() == {}
    # Without one it can be run all the same.
    for name in ("go", "go.long"):
        (site.host / name).touch()
    site.run("kubexm-run", "spec.yaml", "--no-journal", "--output", "quiet", code=0)


@pytest.mark.parametrize("how", ["removed", "replaced", "with its folder", "with a file for its folder"])
def test_journal_that_is_removed_in_the_middle_stops_the_run(how: str, sites: Sites) -> None:
    site = sites(STEPS)
    journal = site.state / "journal.db"
    if how == "replaced":
        site.state.mkdir()
        Store(str(journal)).close()
        shutil.copy(journal, site.folder / "copy")
    run = site.start("kubexm-run", "spec.yaml")
    pid = at_gate(site)
    if how == "removed":
        journal.unlink()
    elif how == "replaced":
        (site.folder / "copy").replace(journal)
    else:
        site.state.rename(site.folder / "elsewhere")
        if "file" in how:
            site.state.touch()
    # Nothing has to be written for it to be found out.
    said = ended(run, 1)
    assert STOPPED in said
    assert "was removed or replaced while it was in use" in said
    assert "runs resume" not in said, "there is nothing to go on with"
    assert gone(pid)
    assert not (site.host / "second").exists()


def test_journal_that_is_damaged_in_the_middle_stops_the_run(sites: Sites) -> None:
    site = sites(STEPS)
    run = site.start("kubexm-run", "spec.yaml")
    pid = at_gate(site)
    connection = sqlite3.connect(site.state / "journal.db")
    connection.execute("DROP TABLE entries")
    connection.commit()
    connection.close()
    (site.host / "go").touch()
    said = ended(run, 1)
    assert STOPPED in said
    assert gone(pid)
    assert not (site.host / "second").exists()


def test_database_that_goes_away_ends_what_runs_and_the_run_goes_on_when_it_is_back(
    sites: Sites, server: Postgres
) -> None:
    site = sites(STEPS, journal=server.new_database())
    run = site.start("kubexm-run", "spec.yaml")
    pid = at_gate(site)
    server.stop()
    try:
        (site.host / "go").touch()
        said = ended(run, 1)
        assert STOPPED in said
        assert "the database of the journal has gone away" in said or "does not answer" in said
        assert gone(pid)
        assert not (site.host / "second").exists()
        assert "does not answer" in site.run("kubexm", "runs", code=2)
    finally:
        server.restart()
    after_repair(site)
