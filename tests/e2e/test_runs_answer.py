"""kubexm runs answer: a question that a run asks at its own terminal is answered from another one."""

from __future__ import annotations

import json
import os
import select
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import BIN, environment, run, write_spec

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
        assert (wrong.returncode, "m/t/after does not wait in run" in wrong.stderr) == (2, True)
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
