"""Steps that work for their hosts at other places: in every executor, over retries, dead places, kills and undos."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import run as program
from tests.e2e.site import Site, Sites, ended, wait_until
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

WEB, LB, CP = ("web1", "web2", "web3"), ("lb1", "lb2"), ("cp1", "cp2")


def spec(*steps: dict[str, Any], head: str = "", **task: Any) -> str:
    """A task of the web servers, whose steps work elsewhere; and one of the load balancers afterwards."""
    hosts = [
        *({"name": name, "connector": "local", "roles": ["web"], "vars": {"port": 8080}} for name in WEB),
        *({"name": name, "connector": "local", "roles": ["lb"], "vars": {"port": 80}} for name in LB),
    ]
    later = {
        "name": "later",
        "runOn": {"roles": ["lb"]},
        "steps": [{"name": "own", "type": "message", "with": {"text": "{{ host.name }} is still here"}}],
    }
    tasks = [{"name": "t", "runOn": {"roles": ["web"]}, "steps": list(steps), **task}, later]
    body = {"inventory": {"hosts": hosts}, "modules": [{"name": "m", "tasks": tasks}]}
    return head + "".join(f"{key}: {json.dumps(value)}\n" for key, value in body.items())


def shell(name: str, script: str, to: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "command", "delegateTo": to, "with": {"shell": script}, **more}


def log(site: Site) -> list[str]:
    path = site.host / "log"
    return path.read_text().splitlines() if path.exists() else []


def run(site: Site, *options: str, code: int = 0) -> str:
    return site.run("kubexm-run", "spec.yaml", "--output", "plain", "--result", "result.json", *options, code=code)


def result(site: Site, node: str) -> dict[str, dict[str, Any]]:
    """The outcomes of a node by the host that it is for."""
    told = json.loads((site.folder / "result.json").read_text())["nodeResults"][node]["hostResults"]
    return dict(told)


def words(text: str) -> str:
    return " ".join(text.split())


NOTE = "echo {{ host.name }} {{ vars.port }} {{ facts.hostname | length > 0 }} for {{ origin.name }} >>FOLDER/log"


def test_host_facts_and_vars_are_those_of_the_place_and_the_record_names_both(sites: Sites) -> None:
    site = sites(spec(shell("a", NOTE, "lb1")))
    said = words(run(site))
    assert sorted(log(site)) == [f"lb1 80 True for {web}" for web in WEB]
    assert "changed m/t/a lb1 for web1" in said
    assert {host: (each["hostName"], each["place"]) for host, each in result(site, "m/t/a").items()} == {
        web: (web, "lb1") for web in WEB
    }
    told = [json.loads(line) for line in site.run("kubexm", "runs", "events", "last", code=0).splitlines()]
    started = {
        each["host"]: each["place"] for each in told if each["event"] == "action.started" and each["node"] == "m/t/a"
    }
    assert started == dict.fromkeys(WEB, "lb1")


def test_several_places_work_for_each_host_and_the_next_step_waits_for_all(sites: Sites) -> None:
    after = {"name": "b", "type": "command", "with": {"shell": "echo work {{ host.name }} >>FOLDER/log"}}
    site = sites(spec(shell("a", "echo {{ host.name }} {{ origin.name }} >>FOLDER/log", {"roles": ["lb"]}), after))
    run(site)
    lines = log(site)
    for web in WEB:
        assert max(lines.index(f"{lb} {web}") for lb in LB) < lines.index(f"work {web}")
    assert "m/t/a@lb1" in site.run("kubexm", "plan", "spec.yaml", code=0)


def test_an_expression_chooses_the_place_of_each_host(sites: Sites) -> None:
    to = "{{ 'lb1' if origin.name == 'web1' else 'lb2' }}"
    site = sites(spec(shell("a", "echo {{ host.name }} {{ origin.name }} >>FOLDER/log", to)))
    run(site)
    assert sorted(log(site)) == ["lb1 web1", "lb2 web2", "lb2 web3"]
    said = words(run(site, "--limit", "web1"))
    assert "lb1 for web1" in said
    assert "web2" not in said


def test_other_executors_name_both_and_change_nothing_that_they_should_not(sites: Sites) -> None:
    step: dict[str, Any] = {"name": "a", "type": "file", "delegateTo": "lb1"}
    step["with"] = {"path": "FOLDER/{{ host.name }}.{{ origin.name }}", "content": "x\n"}
    site = sites(spec(step))
    for web in WEB:
        assert f"~ m/t/a lb1 for {web}" in words(run(site, "--executor", "check"))
        assert f"on lb1 for {web}" in words(run(site, "--executor", "dry-run"))
    assert site.content() == {}
    debugged = program(
        "kubexm-run", "spec.yaml", "--executor", "debug", cwd=site.folder, stdin="n\ns\nc\n", env=site.env
    )
    assert debugged.returncode == 0, debugged.stdout + debugged.stderr
    assert "m/t/a on lb1 for web1" in debugged.stdout
    assert set(site.content()) == {"lb1.web1", "lb1.web3"}


def test_it_is_undone_at_the_place_and_what_cannot_be_is_named_with_it(sites: Sites) -> None:
    file: dict[str, Any] = {"name": "a", "type": "file", "delegateTo": {"roles": ["lb"]}}
    file["with"] = {"path": "FOLDER/{{ host.name }}.{{ origin.name }}", "content": "x\n"}
    site = sites(spec(file, shell("b", "true", "lb1")))
    run(site)
    assert len(site.content()) == len(WEB) * len(LB)
    said = site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain", code=0)
    assert site.content() == {}
    assert "cannot be undone: m/t/b on lb1 for web1\n" in said
    assert "undone m/t/a@lb2 lb2 for web3" in words(said)


def test_what_was_changed_or_printed_at_a_place_is_found_by_its_name_and_by_the_origin(sites: Sites) -> None:
    file: dict[str, Any] = {"name": "a", "type": "file", "delegateTo": "lb1"}
    file["with"] = {"path": "FOLDER/{{ origin.name }}", "content": "x\n"}
    site = sites(spec(file, shell("b", "echo from {{ host.name }} for {{ origin.name }}", "lb1")))
    run(site)
    for host, served in (("lb1", WEB), ("web2", ("web2",)), ("lb2", ())):
        shown = site.run("kubexm", "runs", "show", "--diff", "--host", host, code=0)
        assert [web for web in WEB if f"lb1 for {web}" in shown] == list(served)
        assert ("on 1 host." in shown) == bool(served), "what was done is on one machine, for whomever"
        printed = site.run("kubexm", "runs", "logs", "last", "--host", host, code=0)
        assert [web for web in WEB if f"from lb1 for {web}" in printed] == list(served)
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "quiet", code=0)
    told = [json.loads(line) for line in site.run("kubexm", "runs", "events", "last", code=0).splitlines()]
    undone = [each for each in told if each["event"] == "action.undone"]
    assert undone
    assert {each["place"] for each in undone} == {"lb1"}


def test_a_failure_belongs_to_the_origin_and_the_place_stays_in_the_run(sites: Sites) -> None:
    broken = shell("a", "test {{ origin.name }} != web2", "lb1")
    after = {"name": "b", "type": "message", "with": {"text": "{{ host.name }} went on"}}
    site = sites(spec(broken, after, maxFailures=1))
    said = run(site)
    assert "FAILED m/t/a lb1 for web2" in words(said)
    assert "web1 went on" in said
    assert "web2 went on" not in said
    assert "lb1 is still here" in said


def test_a_step_is_named_without_its_items_and_places(sites: Sites) -> None:
    step = shell("a", "echo {{ item }} {{ host.name }} {{ origin.name }} >>FOLDER/log", {"roles": ["lb"]})
    site = sites(spec({**step, "forEach": ["x", "y"]}))
    run(site, "--limit", "web1")
    everything = log(site)
    assert sorted(everything) == [f"{item} {lb} web1" for item in "xy" for lb in LB]
    for name, again in (
        ("m/t/a", everything),
        ("m/t/a@lb2", ["x lb2 web1", "y lb2 web1"]),
        ("m/t/a@lb1[y]", ["y lb1 web1"]),
    ):
        (site.host / "log").unlink()
        site.run("kubexm", "runs", "resume", "last", "--from", name, "--output", "quiet", code=0)
        assert sorted(log(site)) == sorted(again)
    assert "there is no node" in site.run("kubexm", "runs", "resume", "last", "--from", "m/t/aa", code=2)


def test_it_is_tried_again_at_the_place(sites: Sites) -> None:
    script = "echo {{ host.name }} {{ origin.name }} >>FOLDER/log; test $(grep -c {{ origin.name }} FOLDER/log) = 2"
    site = sites(spec(shell("a", script, "lb1", retry=2)))
    run(site)
    assert sorted(log(site)) == sorted(f"lb1 {web}" for web in (*WEB, *WEB))
    assert {each["attempts"] for each in result(site, "m/t/a").values()} == {2}


def test_limits_and_locks_are_counted_at_the_place(sites: Sites) -> None:
    # Whoever works while another one does finds its folder.
    alone = "mkdir FOLDER/{{ host.name }}.busy && sleep 0.1 && rmdir FOLDER/{{ host.name }}.busy"
    site = sites(spec(shell("a", alone, "lb1"), shell("b", alone, {"roles": ["lb"]})))
    run(site)
    # Two that wait for each other end only if both work at once.
    together = (
        "touch FOLDER/{{ origin.name }}.here; for i in $(seq 600); do "
        "test -e FOLDER/web1.here -a -e FOLDER/web2.here -a -e FOLDER/web3.here && exit; sleep 0.1; done; exit 1"
    )
    wide = json.dumps({"name": "lb1", "connector": "local", "roles": ["lb"], "vars": {"port": 80}})
    body = spec(shell("a", together, "lb1"))
    assert wide in body
    site = sites(body.replace(wide, wide.replace("{", '{"perHostLimit": 3, ', 1)))
    run(site)
    # One lock for both places: it is held at one of them only.
    alone = "mkdir FOLDER/busy && sleep 0.1 && rmdir FOLDER/busy"
    run(sites(spec(shell("a", alone, {"roles": ["lb"]}, resources={"locks": ["proxy"]}))))


def test_batches_and_linear_hosts_wait_for_what_is_done_elsewhere(sites: Sites) -> None:
    steps = [
        shell("a", "echo a {{ origin.name }} >>FOLDER/log", "lb1"),
        {"name": "b", "type": "command", "with": {"shell": "echo b {{ host.name }} >>FOLDER/log"}},
    ]
    site = sites(spec(*steps, batch=1))
    run(site)
    assert log(site) == [f"{step} {web}" for web in WEB for step in "ab"]
    site = sites(spec(*steps, strategy="linear"))
    run(site)
    assert [line[0] for line in log(site)] == ["a"] * 3 + ["b"] * 3


def test_a_host_without_the_others_is_served_by_a_place_outside_the_limit(sites: Sites) -> None:
    site = sites(spec(shell("a", NOTE, {"roles": ["lb"], "one": True})))
    run(site, "--limit", "web3")
    assert log(site) == ["lb1 80 True for web3"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes other users without a password")
def test_the_user_is_that_of_the_place_unless_the_step_names_one(sites: Sites) -> None:
    step = {"type": "command", "delegateTo": "lb1"}
    site = sites(
        spec(
            {**step, "name": "a", "with": {"argv": ["id", "-un"]}},
            {**step, "name": "b", "become": "bin", "with": {"argv": ["id", "-un"]}},
        ).replace('"name": "lb1"', '"name": "lb1", "become": "daemon"')
    )
    run(site)
    assert {each["stdout"].strip() for each in result(site, "m/t/a").values()} == {"daemon"}
    assert {each["stdout"].strip() for each in result(site, "m/t/b").values()} == {"bin"}


# Places that are real hosts, and die

pytest_sshd = pytest.mark.skipif(SSHD is None, reason=MISSING)
ONE: dict[str, Any] = {"roles": ["cp"], "one": True}


@pytest.fixture
def control(tmp_path: Path) -> Iterator[list[SshHost]]:
    """Two control planes."""
    with ssh_host(tmp_path / "cp1") as one, ssh_host(tmp_path / "cp2") as two:
        yield [one, two]


def cluster(sites: Sites, tmp_path: Path, control: list[SshHost], *steps: dict[str, Any], **task: Any) -> Site:
    places = [
        {
            "name": name, "roles": ["cp"], "address": host.address, "port": host.port, "user": host.user,
            "privateKeyPath": str(host.key), "knownHosts": str(host.known_hosts), "vars": {"port": 6443},
        }
        for name, host in zip(CP, control, strict=True)
    ]  # fmt: skip
    body = spec(*steps, **task).replace('"hosts": [', f'"hosts": [{json.dumps(places)[1:-1]}, ', 1)
    return sites(body, HOME=str(tmp_path), SSH_AUTH_SOCK="")


def made(name: str, **more: Any) -> dict[str, Any]:
    """A file of each place for each host."""
    where = {"path": "FOLDER/{{ host.name }}.{{ origin.name }}", "content": "x\n"}
    return {"name": name, "type": "file", "delegateTo": ONE, "with": where, **more}


@pytest_sshd
def test_the_next_place_works_if_the_first_is_dead_and_the_undo_is_there_too(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    site = cluster(sites, tmp_path, control, made("a"))
    control[0].stop()
    said = words(run(site))
    assert "chosen m/t/a cp2 for web1 instead of cp1: host cp1 cannot be reached" in said
    assert set(site.content()) == {f"cp2.{web}" for web in WEB}
    assert {each["place"] for each in result(site, "m/t/a").values()} == {"cp2"}
    # It is alive again, and has nothing of ours.
    control[0].start()
    assert "undone m/t/a cp2 for web2" in words(
        site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain", code=0)
    )
    assert site.content() == {}


@pytest_sshd
def test_with_ready_first_a_dead_place_counts_as_a_failed_host(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    control[0].stop()
    for budget, code in ((0, 1), (1, 0)):
        head = f"readyFirst: true\nmaxFailures: {budget}\n"
        site = cluster(sites, tmp_path, control, made("a"), head=head)
        assert "FAILED readyFirst cp1 unreachable" in words(run(site, code=code))
        assert set(site.content()) == (set() if code else {f"cp2.{web}" for web in WEB})


@pytest_sshd
def test_handlers_work_at_the_first_living_place_once_for_each_changed_host(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    changed = {
        "name": "a",
        "type": "file",
        "notify": "reload",
        "with": {"path": "FOLDER/{{ host.name }}", "content": "x"},
    }
    reload = shell("reload", "echo {{ host.name }} {{ origin.name }} >>FOLDER/log; test ! -e FOLDER/bad", ONE)
    site = cluster(
        sites, tmp_path, control, changed, {"name": "now", "flush": True}, changed | {"name": "b"}, handlers=[reload]
    )
    (site.host / "web3").write_text("x")
    (site.host / "bad").touch()
    control[0].stop()
    said = words(run(site, code=1))
    assert "FAILED m/t/now/reload cp2 for web1" in said
    assert sorted(log(site)) == ["cp2 web1", "cp2 web2"]
    (site.host / "bad").unlink()
    control[0].start()
    # It failed there: it is tried again there, and nowhere else.
    site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    assert sorted(log(site)) == ["cp2 web1", "cp2 web1", "cp2 web2", "cp2 web2"]
    assert "not notified" in run(site)


@pytest_sshd
def test_without_any_living_place_the_origin_fails_and_a_resume_finds_a_place_again(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    site = cluster(sites, tmp_path, control, made("a"))
    for host in control:
        host.stop()
    said = words(run(site, code=1))
    assert "unreachable: host cp2 cannot be reached" in said
    assert "neither could cp1" in said
    assert result(site, "m/t/a")["web1"]["failureKind"] == "unreachable"
    control[1].start()
    site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    assert set(site.content()) == {f"cp2.{web}" for web in WEB}


@pytest_sshd
def test_a_place_without_a_choice_that_is_dead_fails_the_origin_alone(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    after = {"name": "b", "type": "message", "with": {"text": "{{ host.name }} went on"}}
    to = "{{ 'cp1' if origin.name == 'web1' else 'cp2' }}"
    site = cluster(sites, tmp_path, control, {**made("a"), "delegateTo": to}, after, maxFailures=1)
    control[0].stop()
    said = run(site)
    assert "FAILED m/t/a cp1 for web1 unreachable: host cp1 cannot be reached" in words(said)
    assert [web for web in WEB if f"{web} went on" in said] == ["web2", "web3"]
    assert set(site.content()) == {"cp2.web2", "cp2.web3"}


@pytest_sshd
def test_what_was_going_on_at_a_place_when_the_run_was_killed_is_settled_there(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    slow = "touch FOLDER/{{ host.name }}.{{ origin.name }}; echo >>FOLDER/log; test ! -e FOLDER/slow || exec sleep 300"
    step = shell("a", slow, ONE)
    step["with"]["creates"] = "FOLDER/{{ host.name }}.{{ origin.name }}"
    site = cluster(sites, tmp_path, control, step)
    (site.host / "slow").touch()
    control[0].stop()
    first = site.start("kubexm-run", "spec.yaml", "--output", "quiet", "--limit", "web1")
    wait_until(lambda: len(log(site)) == 1)
    first.kill()
    ended(first, -signal.SIGKILL)
    (site.host / "slow").unlink()
    # The first place lives again, and must not be asked: it knows nothing of it.
    control[0].start()
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    assert "cp2 for web1" in words(said)
    assert len(log(site)) == 1, "it was done, and that was seen where it was"
    assert not (site.host / "cp1.web1").exists()


@pytest_sshd
def test_each_attempt_is_undone_where_it_was_made_over_sessions_at_different_places(
    sites: Sites, tmp_path: Path, control: list[SshHost]
) -> None:
    site = cluster(sites, tmp_path, control, made("a"))
    run(site, "--limit", "web1")
    assert set(site.content()) == {"cp1.web1"}
    control[0].stop()
    said = site.run("kubexm", "runs", "resume", "last", "--from", "m/t/a", "--output", "plain", code=0)
    assert "instead of cp1" in words(said)
    assert set(site.content()) == {"cp1.web1", "cp2.web1"}
    control[0].start()
    site.run("kubexm", "runs", "rollback", "last", "--yes", "--output", "plain", code=0)
    assert site.content() == {}
