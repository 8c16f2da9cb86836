"""kubexm runs on a run that goes on in another process: its history, its log and its events while they come."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

from kubexm_spec.duration import format_duration
from tests.e2e.program import BIN, environment, run, start, write_spec
from tests.e2e.site import Sites
from tests.e2e.test_run import until

BODY = """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: first
            type: command
            with: {shell: "echo one"}
          - name: long
            type: command
            with: {shell: "echo two; until test -e DIR/go; do sleep 0.05; done; echo three"}
"""


def begun(folder: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """A run that waits in its second step for a file."""
    write_spec(folder, BODY.replace("DIR", str(folder)))
    process = start("kubexm-run", "spec.yaml", cwd=folder, env=env)
    until(lambda: any("two" in log.read_text() for log in (folder / "state" / "runs").glob("*/*")))
    return process


def test_a_run_that_goes_on_is_shown_and_followed_to_its_end(tmp_path: Path) -> None:
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    process = begun(tmp_path, env)
    followers = [start("kubexm", "runs", what, "--follow", cwd=tmp_path, env=env) for what in ("logs", "events")]
    try:
        shown = run("kubexm", "runs", "show", cwd=tmp_path, env=env).stdout
        data = json.loads(run("kubexm", "runs", "show", "--output", "json", cwd=tmp_path, env=env).stdout)
        report = run("kubexm", "runs", "report", "-o", "-", cwd=tmp_path, env=env).stdout
        pruned = run("kubexm", "runs", "prune", "--keep", "0", "--all", "--yes", cwd=tmp_path, env=env).stdout
    finally:
        (tmp_path / "go").touch()
        process.communicate(timeout=60)
    logs, events = (follower.communicate(timeout=60)[0].splitlines() for follower in followers)

    assert process.returncode == 0
    assert "Running now\n  m/t/long on control-node, for " in shown
    assert f"kubexm runs cancel {data['id']}" in shown
    assert data["alive"] is True
    assert [each["node"] for each in data["running"]] == ["m/t/long"]
    assert "Running</span> test" in report
    assert pruned == "there is nothing to remove\n"
    assert [line.rpartition("| ")[2] for line in logs] == ["one", "two", "three"]
    assert [json.loads(line)["event"] for line in events] == [
        "run.started",
        "action.started",
        "action.finished",
        "action.started",
        "action.finished",
        "run.finished",
    ]


def test_following_a_run_ends_when_its_process_is_killed(tmp_path: Path) -> None:
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    process = begun(tmp_path, env)
    follower = start("kubexm", "runs", "events", "--follow", cwd=tmp_path, env=env)
    process.kill()
    process.communicate(timeout=60)
    events = follower.communicate(timeout=60)[0].splitlines()
    (tmp_path / "go").touch()
    assert follower.returncode == 0
    assert json.loads(events[-1])["status"] == "Interrupted"
    shown = run("kubexm", "runs", "show", cwd=tmp_path, env=env).stdout
    assert ": interrupted" in shown
    assert "m/t/long on control-node" in shown


def test_a_journaled_run_tells_the_same_in_the_same_order(tmp_path: Path) -> None:
    """What happened is told when it is durable, and then as if nothing had to be written."""
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    write_spec(
        tmp_path,
        f"""
failurePolicy: failFast
inventory: {{hosts: [{{name: "n[1:3]", connector: local}}]}}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: first, type: command, with: {{shell: "echo one"}}}}
          - {{name: none, when: "false", type: message, with: {{text: "never"}}}}
          - name: again
            type: command
            retry: {{attempts: 2, delay: 0}}
            with: {{shell: "test -e {{{{ host.name }}}} || ! touch {{{{ host.name }}}}", cwd: "{tmp_path}"}}
          - {{name: ignored, ignoreErrors: true, type: command, with: {{shell: "exit 3"}}}}
          - name: more
            type: fragment
            with: {{steps: [{{name: one, type: message, with: {{text: "hello"}}}}]}}
          - {{name: bad, type: command, with: {{shell: "test {{{{ host.name }}}} != n2"}}}}
          - {{name: never, type: message, with: {{text: "not reached"}}}}
""",
    )

    def told(*more: str) -> list[tuple[str, str, str]]:
        arguments = "spec.yaml", "--forks", "1", "--output", "json", *more
        done = run("kubexm-run", *arguments, cwd=tmp_path, env=env)
        assert done.returncode == 1, done.stderr
        for host in ("n1", "n2", "n3"):
            (tmp_path / host).unlink()
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [(line["event"], line.get("node", ""), line.get("host", "")) for line in lines]

    plain = told("--no-journal")
    assert {kind for kind, _, _ in plain} >= {"action.retry", "graph.extended", "run.stopping", "node.finished"}
    assert told() == plain


def test_a_journaled_run_of_many_hosts_tells_the_same_of_each(tmp_path: Path) -> None:
    """All of them begin together, so that what the driver writes is written by itself."""
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    write_spec(
        tmp_path,
        """
inventory: {hosts: [{name: "n[1:12]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: first, type: message, with: {text: "hello"}}
          - {name: bad, type: command, with: {shell: "test {{ host.name }} != n2"}}
          - name: more
            type: fragment
            with: {steps: [{name: one, type: message, with: {text: "hello"}}]}
          - {name: last, type: message, with: {text: "{{ steps.first.status }}"}}
""",
    )

    def told(*more: str) -> dict[str, list[tuple[str, str]]]:
        done = run("kubexm-run", "spec.yaml", "--output", "json", *more, cwd=tmp_path, env=env)
        assert done.returncode == 1, done.stderr
        of_host: dict[str, list[tuple[str, str]]] = {}
        for line in map(json.loads, done.stdout.splitlines()):
            if "host" in line:
                of_host.setdefault(line["host"], []).append((line["event"], line["node"]))
        return of_host

    plain = told("--no-journal")
    assert [kind for kind, _ in plain["n2"]][-4:] == ["action.started", *["action.finished"] * 3]
    assert [kind for kind, _ in plain["n1"] if kind == "action.started"] == ["action.started"] * 5
    assert told() == plain


def test_the_run_that_is_taken_back_is_the_one_that_was_shown(tmp_path: Path) -> None:
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))

    def make(name: str) -> None:
        body = "modules: [{name: m, tasks: [{name: t, steps: [{name: a, type: file, with: {path: PATH}}]}]}]\n"
        write_spec(tmp_path, body.replace("PATH", str(tmp_path / name)), f"{name}.yaml")
        assert run("kubexm-run", f"{name}.yaml", cwd=tmp_path, env=env).returncode == 0

    make("one")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [BIN / "kubexm", "runs", "rollback", "last"],
        cwd=tmp_path, env=env, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(theirs)
    with process:
        assert process.stderr is not None
        seen = b""
        while b"undo it?" not in seen:
            read = process.stderr.read1()  # type: ignore[attr-defined]
            assert read
            seen += read
        make("two")
        os.write(ours, b"y\n")
        process.stderr.read()
    os.close(ours)
    assert process.returncode == 0
    assert [(tmp_path / name).exists() for name in ("one", "two")] == [False, True]


def test_the_time_of_a_resumed_run_is_that_of_its_sessions_wherever_it_is_shown(sites: Sites) -> None:
    site = sites("""
inventory: {hosts: [{name: n1, connector: local}]}
modules:
  - name: m
    tasks:
      - {name: t, runOn: {hosts: [n1]}, steps: [{name: s, type: command, with: {argv: [test, -e, FOLDER/there]}}]}
""")
    site.run("kubexm-run", "spec.yaml", "--output", "quiet", code=1)
    # As if that had been a day ago.
    with contextlib.closing(sqlite3.connect(site.state / "journal.db")) as journal:
        earlier = r"\b1[0-9]{9}\.[0-9]+"
        for run, seq, data in journal.execute("SELECT run, seq, data FROM entries").fetchall():
            moved = re.sub(earlier, lambda at: str(float(at.group()) - 86400), data)
            journal.execute("UPDATE entries SET data = ? WHERE run = ? AND seq = ?", (moved, run, seq))
        journal.execute("UPDATE runs SET created = created - 86400, ended = ended - 86400")
        journal.commit()
    (site.host / "there").touch()
    said = site.run("kubexm", "runs", "resume", "last", "--output", "plain", code=0)
    listed = site.runs()[0]
    shown = json.loads(site.run("kubexm", "runs", "show", "--output", "json", code=0))
    assert 0 < listed["seconds"] < 3600
    assert shown["seconds"] == listed["seconds"]
    took = format_duration(listed["seconds"])
    assert f"  {took}  " in site.run("kubexm", "runs", code=0)
    assert f" on 1 host in {took}: " in site.run("kubexm", "runs", "show", code=0)
    # Without what came before the first action, and after the last one.
    summary = re.search(r"Success  .*: 1 action on 1 host in (\S+)(?: \S+)?: ", said)
    assert summary is not None
    assert "h" not in summary[1]
