"""Runs whose journal is late, or lost in the middle: they end, and say so."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import time
from pathlib import Path

from tests.e2e.program import environment, run, start, write_spec
from tests.e2e.test_run import until

GRACE = 2.0
"""Seconds that a cancelled action has."""


def test_a_cancel_while_the_journal_is_in_use_by_another_program_ends_the_run(tmp_path: Path) -> None:
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    write_spec(
        tmp_path,
        f"""
inventory: {{hosts: [{{name: "n[1:2]", connector: local}}]}}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: first
            type: command
            with: {{shell: "touch begun; while ! test -e go; do sleep 0.02; done", cwd: "{tmp_path}"}}
          - {{name: second, type: command, with: {{shell: "touch second", cwd: "{tmp_path}"}}}}
""",
    )
    process = start("kubexm-run", "spec.yaml", "--output", "json", cwd=tmp_path, env=env)
    until((tmp_path / "begun").exists)
    other = sqlite3.connect(tmp_path / "state" / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    (tmp_path / "go").touch()
    # The second step waits for the journal, longer than a cancelled one that runs would have.
    until(lambda: time.time() - (tmp_path / "go").stat().st_mtime > 1)
    process.send_signal(signal.SIGINT)
    until(lambda: time.time() - (tmp_path / "go").stat().st_mtime > 1.5 + GRACE)
    other.execute("ROLLBACK")
    other.close()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    ends = {(line["node"], line["host"]): line for line in map(json.loads, out.splitlines()) if "hostName" in line}
    assert {ends["m/t/second", host]["status"] for host in ("n1", "n2")} == {"Cancelled"}
    assert ends["m/t/second", "n1"]["message"] == "Cancelled before it started"
    assert "outcomeUnknown" not in ends["m/t/second", "n1"]
    assert not (tmp_path / "second").exists()
    assert run("kubexm", "runs", "resume", "last", "--output", "quiet", cwd=tmp_path, env=env).returncode == 0
    assert (tmp_path / "second").exists()


def test_a_run_that_somebody_else_has_taken_over_ends_in_the_middle_of_its_hooks(tmp_path: Path) -> None:
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    take = "import sqlite3; c = sqlite3.connect('state/journal.db'); c.execute('UPDATE runs SET epoch = 9'); c.commit()"
    hooks = ", ".join(f"{{name: a{number}, type: message, with: {{text: never}}}}" for number in range(4))
    write_spec(
        tmp_path,
        f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {{name: take, type: command, with: {{argv: ["{sys.executable}", -c, "{take}"], cwd: "{tmp_path}"}}}}
          - {{name: next, type: message, with: {{text: never}}}}
        hooks: {{always: [{hooks}]}}
""",
    )
    done = run("kubexm-run", "spec.yaml", "--output", "json", cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (1, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert "taken over by another process" in lines[-1]["message"]
    told = [(line["event"], line["node"]) for line in lines if "node" in line]
    # Each of them is told from its beginning to its end, before the next one.
    assert told[2:] == [
        ("node.finished", "m/t/take"),
        *((kind, node) for node in ("m/t/next",) for kind in ("action.started", "action.finished", "node.finished")),
        *(
            (kind, f"m/t/hooks/always/a{number}")
            for number in range(4)
            for kind in ("action.started", "action.finished", "node.finished")
        ),
    ]
