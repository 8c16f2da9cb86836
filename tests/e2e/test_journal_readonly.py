"""A state folder that is read-only: past runs and those that go on elsewhere can be looked at, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until

READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
UNSHARE = ("unshare", "-m", "--propagation", "private")
STEPS = """
inventory: {hosts: [{name: n, connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: all
        steps:
          - {name: first, type: command, with: {shell: 'echo from the first; touch FOLDER/begun'}}
          - name: gate
            type: command
            with:
              shell: 'for i in $(seq 3000); do [ -e FOLDER/go ] && exit; sleep 0.05; done'
              creates: FOLDER/go
"""


@pytest.fixture
def site(sites: Sites) -> Site:
    """Where its state can be mounted a second time, and read-only there."""
    if os.geteuid() != 0 or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root: it mounts a folder in a namespace of its own")
    return sites(STEPS)


def reading(site: Site, *command: str, code: int = 0) -> str:
    """A command for which the state is read-only."""
    site.within = (*UNSHARE, "sh", "-c", READ_ONLY, str(site.state))
    try:
        return site.run("kubexm", *command, code=code)
    finally:
        site.within = ()


def test_past_runs_are_read_and_what_would_write_is_refused(site: Site) -> None:
    (site.host / "go").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    assert [each.name for each in site.state.iterdir() if each.is_file()] == ["journal.db"]
    assert "Success" in reading(site, "runs")
    assert "Success" in reading(site, "runs", "list")
    assert "of test: Success" in reading(site, "runs", "show")
    assert "| from the first" in reading(site, "runs", "logs", "last")
    assert '"event": "run.finished"' in reading(site, "runs", "events", "last")
    reading(site, "runs", "report", "last", "-o", "report.html")
    assert "m/t/first" in (site.folder / "report.html").read_text()
    assert "Drift: nothing differs" in reading(site, "drift", "spec.yaml")
    for command in (["resume", "last"], ["rollback", "last", "--yes"], ["cancel", "last"], ["prune", "--keep", "0"]):
        said = reading(site, "runs", *command, code=2)
        assert "the journal cannot be written: it is read-only" in said, command
        assert "→ " in said


def test_a_run_is_read_while_it_goes_on_and_after_it_was_killed(site: Site) -> None:
    run = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: (site.host / "begun").exists() and "m/t/gate" in reading(site, "runs", "events", "last"))
    assert "of test: running now" in reading(site, "runs", "show")
    assert "| from the first" in reading(site, "runs", "logs", "last")
    run.send_signal(signal.SIGKILL)
    ended(run, -signal.SIGKILL)
    assert "of test: interrupted" in reading(site, "runs", "show")
    (site.host / "go").touch()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert "of test: Success" in reading(site, "runs", "show")


def test_a_journal_that_is_not_there_is_not_made_up(site: Site) -> None:
    site.state.mkdir()
    said = reading(site, "runs", code=2)
    assert "error: journal " in said
    assert "→ " in said
