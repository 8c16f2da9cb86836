"""Two runs never work on one target at once: the second is refused or waits, and only a dead one is taken over."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess

import pytest

from tests.e2e.site import Site, Sites, ended, wait_until

# The first step says that it is there and waits until it may go on; the second shows that the run went on.
GATED = """
{lock}inventory: {{hosts: [{{name: n, connector: local}}]}}
modules:
  - name: m
    tasks:
      - name: t
        runOn: {{hosts: [n]}}
        steps:
          - name: gate
            type: command
            with:
              shell: 'echo $$ >"FOLDER/there.{name}"; for i in $(seq 3000); do [ -e "$F" ] && exit; sleep 0.05; done'
              env: {{F: FOLDER/go.{name}}}
              creates: FOLDER/go.{name}
          - {{name: after, type: command, with: {{shell: 'echo x >>"FOLDER/count.after"'}}}}
hooks:
  always: [{{name: bye, type: command, runOn: {{hosts: [n]}}, with: {{shell: 'echo x >>"FOLDER/count.always"'}}}}]
"""


def gated(name: str = "a", lock: str = "") -> str:
    return GATED.format(name=name, lock=f"lock: {lock}\n" if lock else "")


def begun(site: Site, process: subprocess.Popen[str], name: str = "a") -> None:
    """Wait until its first step is at work."""
    there = site.host / f"there.{name}"
    wait_until(lambda: there.exists() and there.read_text().strip(), lambda: str(process.poll()))


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites(gated())


def test_second_run_of_a_target_is_refused_with_who_and_since_when_or_waits(site: Site) -> None:
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    said = site.run("kubexm-run", "spec.yaml", code=3)
    run = site.runs()[0]
    assert f"is being worked on by run {run['id']} of {run['holder']} since " in said
    assert f"(process {first.pid})" in said
    assert "--wait" in said
    assert len(site.runs()) == 1, "what was refused is no run"
    said = site.run("kubexm", "runs", "resume", "last", code=3)
    assert f"run {run['id']}" in said
    waiting = site.start("kubexm-run", "spec.yaml", "--wait", "--output", "quiet")
    assert waiting.stderr is not None
    assert "waiting: " in waiting.stderr.readline()
    assert site.lines("count.after") == 0
    (site.host / "go.a").touch()
    ended(first, 0)
    ended(waiting, 0)
    assert [each["status"] for each in site.runs()] == ["Success", "Success"]
    assert site.lines("count.after") == 2


def test_lock_of_the_spec_is_the_target_and_other_targets_are_free(sites: Sites) -> None:
    site = sites(gated("a", lock="database"))
    site.write(gated("b", lock="database"), "same.yaml")
    site.write(gated("c", lock="elsewhere"), "other.yaml")
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    assert '"database" is being worked on' in site.run("kubexm-run", "same.yaml", code=3)
    other = site.start("kubexm-run", "other.yaml", "--output", "quiet")
    begun(site, other, "c")
    assert first.poll() is None
    for name in "ac":
        (site.host / f"go.{name}").touch()
    ended(first, 0)
    ended(other, 0)


def test_inventory_is_the_target_of_all_specs_that_use_it(site: Site) -> None:
    head = "apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: prod}\n"
    (site.folder / "prod.yaml").write_text(head + "hosts: [{name: n, connector: local}]\n")
    for name in ("spec.yaml", "other.yaml"):
        site.write(gated().replace("{hosts: [{name: n, connector: local}]}", "prod.yaml", 1), name)
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    assert '"inventory prod" is being worked on' in site.run("kubexm-run", "other.yaml", code=3)
    (site.host / "go.a").touch()
    ended(first, 0)


def test_target_of_a_killed_run_is_free_at_once(site: Site) -> None:
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    first.kill()
    first.wait()
    (site.host / "go.a").touch()
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=0)
    second, old = site.runs()
    assert (second["status"], old["status"]) == ("Success", "Interrupted")
    assert old["message"] == f"run {second['id']} has taken over its target"
    # The other can still be gone on with, from where it was.
    site.run("kubexm", "runs", "resume", old["id"], "--output", "quiet", code=0)
    assert [each["status"] for each in site.runs()] == ["Success", "Success"]
    assert site.lines("count.after") == 2


def stopped(site: Site, process: subprocess.Popen[str]) -> bool:
    """Stop a run between two writes: in the middle of one it would keep all others from the file while it sleeps."""
    process.send_signal(signal.SIGSTOP)
    connection = sqlite3.connect(site.state / "journal.db", timeout=0.2, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        process.send_signal(signal.SIGCONT)
        return False
    finally:
        connection.close()
    return True


def test_run_that_slept_past_its_lease_is_taken_over_and_stops_itself_when_it_wakes_up(sites: Sites) -> None:
    site = sites(gated(), KUBEXM_LEASE="1")
    first = site.start("kubexm-run", "spec.yaml")
    begun(site, first)
    wait_until(lambda: stopped(site, first))
    # While its lease lasts nobody takes it; --wait waits for the end of that.
    (site.host / "go.a").touch()
    site.run("kubexm-run", "spec.yaml", "--wait", "--output", "quiet", code=0)
    assert (site.lines("count.after"), site.lines("count.always")) == (1, 1)
    before = site.history(site.runs()[1]["id"]).last
    first.send_signal(signal.SIGCONT)
    said = ended(first, 1)
    assert "the run was stopped" in said
    assert "was lost: another run has taken it over" in said or "was taken over by another process" in said
    assert (site.lines("count.after"), site.lines("count.always")) == (1, 1), "it began something after that"
    second, old = site.runs()
    assert old["status"] == "Interrupted"
    assert old["message"] == f"run {second['id']} has taken over its target"
    assert site.history(old["id"]).last == before, "it wrote something after that"
    # Its first step had begun, and nobody knows more: so a resume looks, finds it done, and goes on.
    said = site.run("kubexm", "runs", "resume", old["id"], "--output", "plain", code=0)
    assert site.lines("count.after") == 2
    assert "the host shows that it was done" in said
    assert site.history(old["id"]).actions["m/t/gate", "n"].attempts == 2  # type: ignore[index]


@pytest.fixture
def container() -> tuple[str, ...]:
    """Words that begin a command in a PID namespace of its own, as in another container with the same host name."""
    command = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    if os.geteuid() != 0 or subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no PID namespaces here: they need root")
    return command


def test_living_run_is_not_robbed_from_another_pid_namespace_with_the_same_host_name(
    site: Site, container: tuple[str, ...]
) -> None:
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    site.within = container
    said = site.run("kubexm-run", "spec.yaml", code=3)
    assert f"(process {first.pid})" in said
    assert site.status() == "Running"
    (site.host / "go.a").touch()
    ended(first, 0)
    assert [each["status"] for each in site.runs()] == ["Success"]


def test_living_run_is_not_robbed_from_another_time_namespace(site: Site) -> None:
    shifted = ("unshare", "--time", "--boottime", "90000", "--monotonic", "90000", "--fork")
    if os.geteuid() != 0 or subprocess.run([*shifted, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no time namespaces here: they need root")
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    site.within = shifted
    assert f"(process {first.pid})" in site.run("kubexm-run", "spec.yaml", code=3)
    assert site.status() == "Running"
    (site.host / "go.a").touch()
    ended(first, 0)


def test_run_that_was_killed_in_another_pid_namespace_is_taken_over_when_its_lease_has_run_out(
    sites: Sites, container: tuple[str, ...]
) -> None:
    site = sites(gated(), KUBEXM_LEASE="2")
    site.within = container
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    site.within = ()
    assert "is being worked on" in site.run("kubexm-run", "spec.yaml", code=3)
    first.kill()
    first.wait()
    (site.host / "go.a").touch()
    site.run("kubexm-run", "spec.yaml", "--wait", "--output", "quiet", code=0)
    assert [each["status"] for each in site.runs()] == ["Success", "Interrupted"]


def test_living_run_is_not_robbed_by_a_process_whose_clock_is_an_hour_ahead(
    site: Site, container: tuple[str, ...]
) -> None:
    ahead = site.folder / "ahead"
    ahead.mkdir()
    shifted = "import time\nright = time.time\ntime.time = lambda: right() + 3600\n"
    (ahead / "sitecustomize.py").write_text(shifted)
    # Where nobody can look at the process, only its lease tells that it lives.
    site.within = container
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet")
    begun(site, first)
    site.within = ()
    said = site.run("kubexm-run", "spec.yaml", code=3, PYTHONPATH=str(ahead))
    assert "is being worked on" in said
    assert site.status() == "Running"
    (site.host / "go.a").touch()
    ended(first, 0)


def test_seconds_of_a_lease_that_are_no_number_are_refused(site: Site) -> None:
    said = site.run("kubexm-run", "spec.yaml", code=2, KUBEXM_LEASE="soon")
    assert 'KUBEXM_LEASE is "soon"' in said
    assert site.content() == {}
