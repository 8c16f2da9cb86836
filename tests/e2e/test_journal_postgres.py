"""The journal in PostgreSQL, with the real program: run, fail, resume, roll back, cancel, lock, and kill -9."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.postgres import Postgres

STEPS = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {hosts: ["n[1:2]"]}
        steps:
          - {name: file, type: file, with: {path: "FOLDER/file.{{ host.name }}", content: "new\\n"}}
          - name: once
            type: command
            with:
              shell: 'echo x >>FOLDER/count.once.{{ host.name }}; touch FOLDER/done.{{ host.name }}'
              creates: FOLDER/done.{{ host.name }}
          - {name: gate, type: command, with: {shell: 'test ! -e FOLDER/wait || sleep 300; test -e FOLDER/go'}}
          - {name: last, type: file, with: {path: "FOLDER/last.{{ host.name }}", content: "last\\n"}}
"""


@pytest.fixture
def site(sites: Sites, server: Postgres) -> Site:
    return sites(STEPS, journal=server.new_database())


def test_run_is_refused_cancelled_resumed_and_taken_back(site: Site) -> None:
    (site.host / "file.n1").write_text("old\n")
    (site.host / "wait").touch()
    run = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    wait_until(lambda: site.lines("count.once.n1") and site.lines("count.once.n2"))
    assert f"(process {run.pid})" in site.run("kubexm-run", "spec.yaml", code=3)
    site.run("kubexm", "runs", "cancel", "last", code=0)
    ended(run, 130)
    assert site.status() == "Cancelled"
    (site.host / "wait").unlink()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=1)
    assert site.status() == "Failed"
    (site.host / "go").touch()
    site.run("kubexm", "runs", "resume", "last", "--output", "quiet", code=0)
    assert site.status() == "Success"
    assert (site.lines("count.once.n1"), site.lines("count.once.n2")) == (1, 1)
    assert (site.host / "last.n2").read_text() == "last\n"
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    assert site.status() == "RolledBack"
    assert (site.host / "file.n1").read_text() == "old\n"
    assert not (site.host / "file.n2").exists()
    assert not list(site.state.glob("*.db")), "there is a second journal"


@pytest.mark.parametrize("die_at", ["append.before:3", "append.after:4", "append.after:7", "end.before:1"])
def test_killed_run_is_resumed_to_its_end_and_nothing_runs_twice(die_at: str, site: Site) -> None:
    (site.host / "go").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=-signal.SIGKILL, KUBEXM_DIE_AT=die_at)
    assert site.status() == "Interrupted"
    site.run("kubexm", "runs", "resume", "last", "--output", "plain")
    if site.status() != "Success":
        # The gate cannot be looked at, so that it was not run a second time blindly.
        site.run("kubexm", "runs", "resume", "last", "--from", "m/t/gate", "--output", "quiet", code=0)
    assert (site.lines("count.once.n1"), site.lines("count.once.n2")) == (1, 1)
    assert (site.host / "last.n1").read_text() == "last\n"
    assert site.status() == "Success"
