"""kubexm runs answer: a question that a run asks at its own terminal is answered from another one."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import BIN, environment, run, write_spec
from tests.e2e.site import Sites, ended, wait_until

BODY = """
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: approve, type: gate, with: {question: "Go on?"}}
          - {name: after, type: command, with: {argv: [touch, after]}}
"""


def read(process: subprocess.Popen[bytes], until: bytes) -> bytes:
    """What a program prints until it prints that."""
    assert process.stdout is not None
    shown = b""
    while until not in shown:
        assert select.select([process.stdout], [], [], 60)[0], shown
        shown += os.read(process.stdout.fileno(), 65536) or pytest.fail(f"it ended: {shown!r}")
    return shown


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("no", 1)])
def test_a_gate_is_answered_from_another_terminal(tmp_path: Path, answer: str, code: int) -> None:
    env = environment(KUBEXM_STATE=str(tmp_path / "state"))
    write_spec(tmp_path, BODY)
    pipe = subprocess.PIPE
    argv = [str(BIN / "kubexm-run"), "spec.yaml", "--output", "plain"]
    process = subprocess.Popen(argv, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
    try:
        read(process, b"Go on? [y/n]")
        wrong = run("kubexm", "runs", "answer", "last", "m/t/after", answer, cwd=tmp_path, env=env)
        assert (wrong.returncode, "m/t/after does not wait for an answer in run" in wrong.stderr) == (2, True)
        assert "waiting: m/t/approve on control-node" in wrong.stderr
        told = run(
            "kubexm", "runs", "answer", "last", "m/t/approve", answer, "--output", "json", cwd=tmp_path, env=env
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["answer"] == answer
        # Its input stays open: it is not the end of it that is taken for an answer.
        read(process, f": {answer}, says ".encode())
        assert process.wait(60) == code
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "after").exists() is (answer == "yes")
    over = run("kubexm", "runs", "answer", "last", "m/t/approve", answer, cwd=tmp_path, env=env)
    assert (over.returncode, over.stderr.startswith("error: ")) == (2, True)


def test_without_a_terminal_a_gate_with_a_timeout_waits_for_an_answer_that_others_see_asked(sites: Sites) -> None:
    question = "Go on? {{ secret('env:WORD') }}"
    site = sites(BODY.replace('"Go on?"', f'"{question}", timeout: 90s'), WORD="correct-horse")
    process = site.start("kubexm-run", "spec.yaml", "--output", "plain")
    shown = wait_until(lambda: "waits" in (text := site.run("kubexm", "runs", "show", "last")) and text)
    run = site.runs()[0]["id"]
    assert f"Run {run} of " in shown
    assert ": waits for an answer\n" in shown
    assert "correct-horse" not in shown
    assert "m/t/approve on control-node, for " in shown
    assert ": waits for an answer: Go on? " in shown
    assert f"kubexm runs answer {run} m/t/approve yes" in shown
    data = json.loads(site.run("kubexm", "runs", "show", "last", "--output", "json"))
    [waiting] = data["waiting"]
    assert (waiting["node"], waiting["host"], "Go on?" in waiting["question"]) == ("m/t/approve", "control-node", True)
    events = [json.loads(line) for line in site.run("kubexm", "runs", "events", "last").splitlines()]
    assert [each["question"] for each in events if each["event"] == "action.asks"] == [waiting["question"]]
    assert 'did you mean "m/t/approve"?' in site.run("kubexm", "runs", "answer", "last", "approve", "yes", code=2)
    site.run("kubexm", "runs", "answer", "last", "m/t/approve", "yes", code=0)
    ended(process, 0)
    assert "nothing does" in site.run("kubexm", "runs", "answer", "last", "m/t/approve", "yes", code=2)


def test_without_a_terminal_and_a_timeout_nobody_is_waited_for_unless_that_is_wanted(sites: Sites) -> None:
    site = sites(BODY)
    said = site.run("kubexm-run", "spec.yaml", "--output", "plain", code=1)
    assert f"kubexm runs answer {site.runs()[0]['id']} m/t/approve yes" in " ".join(said.split())
    process = site.start("kubexm", "runs", "resume", "last", "--wait-for-answers")
    wait_until(lambda: "waits for an answer" in site.run("kubexm", "runs", "show", "last"))
    site.run("kubexm", "runs", "answer", "last", "m/t/approve", "yes", code=0)
    ended(process, 0)
