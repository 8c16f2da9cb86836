"""What a person is asked or shown at the terminal: no secret, and nothing that a host could steer the terminal with."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine.prompts import Asker
from kubexm_exec.model.errors import CommandCancelled
from tests.e2e.program import run, write_spec

SECRET = "hunter2-secret-word"
TOKEN = "token-0123456789"

SPEC = r"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: host, type: command, with: {shell: 'printf "\033[2J\033[1;1Hall is well\r\n\033]0;title\007"'}}
          - {name: token, type: command, sensitive: true, with: {shell: "echo token-0123456789"}}
          - name: ask
            type: gate
            with:
              question: >-
                {{ steps.host.outputs.stdout }} use {{ secret('file:pw.txt') }} and {{ steps.token.outputs.stdout }}?
"""


@pytest.mark.parametrize(
    "options", [("--output", "plain"), ("--output", "json"), ("--output", "quiet"), ("--executor", "debug")]
)
@pytest.mark.parametrize("answer", ["yes", "no"])
def test_a_question_shows_no_secret_and_does_not_steer_the_terminal(
    tmp_path: Path, options: tuple[str, str], answer: str
) -> None:
    write_spec(tmp_path, SPEC)
    (tmp_path / "pw.txt").write_text(SECRET)
    (tmp_path / "pw.txt").chmod(0o600)
    typed = f"c\n{answer}\nn\n" if "debug" in options else f"{answer}\n"
    process = run("kubexm-run", "spec.yaml", *options, cwd=tmp_path, stdin=typed, timeout=120)
    shown = process.stdout + process.stderr
    assert "all is well" in shown
    assert "use ***" in shown
    for word in (SECRET, TOKEN, "\x1b[2J", "\x1b[1;1H", "\x1b]0;", "\x07"):
        assert word not in shown
    assert process.returncode == (0 if answer == "yes" else 1), shown


def asked(asker: Asker, cancel: Cancel, given: list[object]) -> threading.Thread:
    def ask() -> None:
        try:
            answer = asker.ask("n", "h", "n on h", "?", default=None, deadline=Deadline.after(30), cancel=cancel)
            given.append(answer)
        except CommandCancelled as error:
            given.append(type(error))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False)])
def test_the_first_answer_counts(first: bool, second: bool) -> None:
    asker = Asker(None, list[str]().append, patient=True)
    given: list[object] = []
    thread = asked(asker, Cancel(), given)
    while not asker.answer("n", "", first, "a"):
        assert thread.is_alive()
    asker.answer("n", "", second, "b")
    thread.join(30)
    assert given == [first]


def test_after_a_cancel_no_answer_counts() -> None:
    asker = Asker(None, list[str]().append, patient=True)
    given: list[object] = []
    cancel = Cancel()
    cancel.set()
    thread = asked(asker, cancel, given)
    while thread.is_alive():
        assert not asker.answer("n", "", True, "late")
    thread.join(30)
    assert given == [CommandCancelled]
