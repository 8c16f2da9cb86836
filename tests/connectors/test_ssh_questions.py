"""Scripts of ours in the shell that is there already: they start no further shell, and behave as if they did."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.shell import Job, setup
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import CommandTimedOut
from kubexm_exec.runner.quote import script
from tests.lab.sshd import MISSING, SSHD, ssh_host


@pytest.fixture(params=[True, False], ids=["leader", "led by another"])
def own(request: pytest.FixtureRequest) -> bool:
    """Whether the shell leads its session, as sshd starts it, or a process above it does, as with sudo."""
    return bool(request.param)


def ask(shell: list[str], own: bool, *jobs: Job) -> list[tuple[str, str, str]]:
    """Output, errors and exit code of each."""
    text = setup("sync").encode() + b"\n" + b"".join(job.frame() for job in jobs)
    argv = shell if own else ["sh", "-c", '"$@"; exit $?', "sh", *shell]
    done = subprocess.run(argv, input=text, capture_output=True, timeout=30, check=False, start_new_session=True)
    found = []
    out, err = done.stdout.decode().partition("sync\n")[2], done.stderr.decode()
    for job in jobs:
        said, _, out = out.partition(job.end)
        head, _, rest = err.partition(job.start)[2].partition(job.end)
        ending, _, err = rest.partition(job.end)
        assert ending.split("\n")[-1] == "0", ending
        found.append((said, head.partition("\n")[2], ending.split("\n")[-2]))
    return found


def question(body: str, *arguments: str, **more: str) -> Job:
    return Job.of(script(body, *arguments, env=more, question=True))


def test_arguments_arrive_as_they_are_and_the_code_is_that_of_the_script(shell: list[str], own: bool) -> None:
    words = ["a b", "$(x)", "'", "*", "", "ü\n"]
    [(out, err, code)] = ask(shell, own, question('printf "<%s>" "$#" "$@"; echo oh >&2; exit 7', *words))
    assert (out, err, code) == ("".join(f"<{word}>" for word in ["6", *words]), "oh\n", "7")


def test_one_question_leaves_nothing_to_the_next_one(shell: list[str], own: bool) -> None:
    first = question(
        'set -f; x=1; f() { echo f; }; cd /; umask 077; LC_ALL=x; export x; trap "echo bye" EXIT; set -- 1 2'
    )
    second = question('echo "${x-none} $# $PWD $LC_ALL $(umask)"; command -v f || echo no f; echo /et[c]; cat')
    here = str(Path.cwd())
    [(out, _, _), (out2, err, code)] = ask(shell, own, first, second)
    assert out == "bye\n"
    mask, before = out2.split()[4], f"none 0 {here} C "
    assert out2 == f"{before}{mask}\nno f\n/etc\n"
    assert mask.endswith("022")
    assert (err, code) == ("", "0")


def test_what_a_script_cleans_up_at_its_end_is_cleaned_up_also_when_it_fails(
    shell: list[str], own: bool, tmp_path: Path
) -> None:
    body = 'trap \'rm -f -- "$t"\' EXIT; t=$1; : >"$t"; [ -f "$t" ] && false || exit 5'
    [(_, _, code)] = ask(shell, own, question(body, str(tmp_path / "t")))
    assert code == "5"
    assert not list(tmp_path.iterdir())


def test_a_script_that_is_no_shell_is_an_error_of_that_script_alone(shell: list[str], own: bool) -> None:
    [(_, err, code), (out, _, after)] = ask(shell, own, question("if then"), question("echo well"))
    assert code not in ("", "0")
    assert err
    assert (out, after) == ("well\n", "0")


def test_a_question_in_its_own_environment_and_a_command_after_it(shell: list[str], own: bool) -> None:
    asked = question('echo "$A $IFS"', A="b  c", IFS="s")
    command = Job.of(Command(argv=("sh", "-c", "echo ${A-none}; exec cat")))
    [(out, _, _), (out2, _, code)] = ask(shell, own, asked, command)
    assert out == "b  c s\n"
    assert (out2, code) == ("none\n", "0")


def test_a_command_with_letters_of_its_own_between_words_is_started(shell: list[str], own: bool) -> None:
    [(out, err, code)] = ask(shell, own, Job.of(Command(argv=("echo", "yes"), env={"IFS": "setsid/"})))
    assert (out, err, code) == ("yes\n", "", "0")


def test_a_missing_program_is_said_in_the_words_of_the_shell(shell: list[str], own: bool) -> None:
    [(_, err, code)] = ask(shell, own, Job.of(Command(argv=("kx-none", "x"))))
    assert "kx-none" in err
    assert "not found" in err
    assert "setsid" not in err
    assert code == "127"


@pytest.fixture
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshConnector]:
    if SSHD is None:
        pytest.skip(MISSING)
    monkeypatch.setenv("HOME", str(tmp_path))
    with ssh_host(tmp_path / "host") as host:
        connector = SshConnector(host.host(), lambda reference: reference)
        yield connector
        connector.close()


def living(marker: str) -> list[str]:
    """Processes that have the marker among their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in path.read_bytes().decode("utf-8", "replace").split("\0"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_a_question_that_takes_too_long_is_killed_with_all_it_started_and_the_next_one_is_answered(
    connector: SshConnector,
) -> None:
    marker = f"47{time.monotonic_ns()}"
    slow = script('sleep "$1" | sleep "$1"', marker, question=True)
    with pytest.raises(CommandTimedOut):
        connector.run(slow, deadline=Deadline.after(1.0), cancel=Cancel())
    assert living(marker) == []
    result = connector.run(script("echo $1", "on", question=True), deadline=Deadline.after(20), cancel=Cancel())
    assert result.out == "on\n"


def test_what_a_command_left_behind_outlives_a_question_that_is_killed(connector: SshConnector) -> None:
    marker = f"48{time.monotonic_ns()}"
    left = Command(argv=("sh", "-c", 'sleep "$1" >/dev/null 2>&1 &', "kx", marker))
    connector.run(left, deadline=Deadline.after(20), cancel=Cancel())
    try:
        with pytest.raises(CommandTimedOut):
            connector.run(script("sleep 60", question=True), deadline=Deadline.after(0.5), cancel=Cancel())
        assert len(living(marker)) == 1
    finally:
        for pid in living(marker):
            subprocess.run(["kill", "-9", pid], check=False)


def test_a_later_command_of_a_shell_is_killed_as_the_first_one_is(connector: SshConnector) -> None:
    marker = f"49{time.monotonic_ns()}"
    connector.run(Command(argv=("true",)), deadline=Deadline.after(20), cancel=Cancel())
    with pytest.raises(CommandTimedOut):
        connector.run(Command(argv=("sleep", marker)), deadline=Deadline.after(0.5), cancel=Cancel())
    assert living(marker) == []
    result = connector.run(Command(argv=("echo", "on")), deadline=Deadline.after(20), cancel=Cancel())
    assert (result.out, result.err, result.exit_code) == ("on\n", "", 0)


def test_only_the_first_command_of_a_shell_says_whom_to_kill(connector: SshConnector) -> None:
    for text in ("one", "two", "three"):
        command = Command(shell=f"echo {text}; echo {text}, too >&2; exit 3")
        result = connector.run(command, deadline=Deadline.after(20), cancel=Cancel())
        assert (result.out, result.err, result.exit_code) == (f"{text}\n", f"{text}, too\n", 3)
    assert connector._shell is not None
    assert len(connector._shell.group) == 2
