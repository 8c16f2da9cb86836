"""Commands through the runner: what fails, how it is said, and what is kept quiet."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut
from kubexm_exec.runner import Runner, join, quote
from kubexm_exec.runner.errors import exit_text
from kubexm_exec.step import StepFailed


def test_an_exit_code_that_is_not_expected_is_a_failure_with_command_code_and_last_words(runner: Runner) -> None:
    with pytest.raises(StepFailed) as caught:
        runner.run(["sh", "-c", "echo one >&2; echo 'two three' >&2; exit 4"])
    failure = caught.value
    assert failure.message == "exit code 4: two three"
    assert failure.command == "sh -c 'echo one >&2; echo '\"'\"'two three'\"'\"' >&2; exit 4'"
    assert (failure.exit_code, failure.stderr) == (4, "one\ntwo three\n")


def test_expected_exit_codes_are_no_failure(runner: Runner) -> None:
    assert runner.run(["sh", "-c", "exit 4"], expect=[0, 4]).exit_code == 4


def test_success_is_a_failure_where_another_code_is_expected(runner: Runner) -> None:
    with pytest.raises(StepFailed, match="exit code 0, expected 1 or 2"):
        runner.run(["true"], expect=(2, 1))


def test_without_check_every_exit_code_is_an_answer(runner: Runner) -> None:
    assert runner.run(["sh", "-c", "exit 9"], check=False).exit_code == 9


def test_a_missing_program_says_what_to_do(runner: Runner) -> None:
    with pytest.raises(StepFailed) as caught:
        runner.run(["kx-missing"])
    assert caught.value.exit_code == 127
    assert "kx-missing" in caught.value.message
    assert "install it first" in caught.value.hint


def test_a_signal_is_named(runner: Runner) -> None:
    with pytest.raises(StepFailed, match="killed by SIGKILL"):
        runner.run(["sh", "-c", "kill -9 $$"])


def test_a_sensitive_failure_tells_neither_command_nor_output(connector: Connector) -> None:
    seen: list[bytes] = []
    runner = Runner(connector, on_output=lambda stream, data: seen.append(data), sensitive=True)
    with pytest.raises(StepFailed) as caught:
        runner.run(["sh", "-c", "echo s3cret; echo s3cret >&2; exit 3"])
    failure = caught.value
    told = [failure.message, failure.command, failure.stdout, failure.stderr, failure.hint]
    assert not any("s3cret" in text for text in told)
    assert failure.exit_code == 3
    assert seen == []


def test_output_is_shown_only_where_it_is_live(connector: Connector) -> None:
    seen: list[tuple[str, bytes]] = []
    runner = Runner(connector, on_output=lambda stream, data: seen.append((stream, data)))
    runner.run(["echo", "quiet"], live=False)
    runner.run(["echo", "loud"])
    runner.show("said\n")
    assert seen == [("stdout", b"loud\n"), ("stdout", b"said\n")]


def test_data_given_to_a_shell_script_is_never_read_as_shell(runner: Runner) -> None:
    odd = "$(echo broken) `echo broken` ; echo broken '\" \n"
    assert runner.shell('printf %s "$1"', odd).out == odd


def test_the_actions_deadline_is_named_with_the_command(connector: Connector) -> None:
    with pytest.raises(CommandTimedOut, match="while running sleep 60"):
        Runner(connector, deadline=Deadline.after(0.2)).run(["sleep", "60"])


def test_a_commands_own_timeout_is_a_failure_of_the_work(runner: Runner) -> None:
    with pytest.raises(StepFailed, match=r"no answer within 0\.2s"):
        runner.run(["sleep", "60"], timeout=0.2)


def test_a_cancelled_action_runs_nothing(connector: Connector) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(CommandCancelled):
        Runner(connector, cancel=cancel).run(["true"])


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    assert shlex.split(join(words)) == words
    assert shlex.split(quote(words[0])) == [words[0]]


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("mkdir: cannot create directory '/x': Permission denied\n", "permission denied"),
        ("mkdir: can't create directory '/x': Permission denied\n", "permission denied"),
        ("sh: 1: cannot create /x: Read-only file system", "read-only file system"),
        ("first: No such file or directory\nsecond\n", "no such file or directory"),
        ("chown: invalid user: 'kx'", "invalid user: 'kx'"),
        ("", ""),
    ],
)
def test_the_reason_is_found_in_a_tools_last_words(stderr: str, reason: str) -> None:
    assert reason_of(stderr)[0] == reason


def test_a_signal_without_a_name_is_a_number() -> None:
    assert exit_text(-200) == "killed by signal 200"


def test_a_long_command_is_cut_in_messages(runner: Runner) -> None:
    assert len(runner.display(Command(argv=("echo", "x" * 1000)))) == 200
