"""What is written to the far shell, tried on every shell that is installed here, without any SSH."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubexm_exec.connectors.ssh.shell import Framed, Job, plain_words, setup


def answers(shell: list[str], *jobs: Job, cut: int = 0) -> list[tuple[bytes, bytes, list[str]]]:
    """What a shell that is given the jobs one after the other says to each: output, errors, and how it ended."""
    text = setup("sync").encode() + b"\n" + b"".join(job.frame() for job in jobs)
    # As sshd starts it: in a session of its own.
    done = subprocess.run(
        shell, input=text[: len(text) - cut], capture_output=True, timeout=30, check=False, start_new_session=True
    )
    found = []
    out, err = done.stdout.partition(b"sync\n")[2], done.stderr
    for job in jobs:
        streams: list[bytes] = []
        for data, start in ((out, ""), (err, job.start)):
            parts: list[bytes] = []
            framed = Framed(start, job.end, parts.append)
            # One byte at a time: the network may cut anywhere.
            for at in range(len(data)):
                framed.feed(data[at : at + 1])
            streams.append(b"".join(parts))
            rest = bytes(framed.rest)
            if start:
                ending, _, err = rest.partition(job.end.encode())
            else:
                out = rest
        found.append((streams[0], streams[1], ending.decode().split("\n")))
    return found


@pytest.mark.parametrize(
    ("script", "code", "signalled"),
    [("exit 0", "0", False), ("exit 137", "137", False), ("kill -9 $$", "137", True), ("kill -15 $$", "143", True)],
)
def test_a_signal_is_told_from_an_exit_code_of_the_same_number(
    shell: list[str], script: str, code: str, signalled: bool
) -> None:
    [(out, err, ending)] = answers(shell, Job(("sh", "-c", f"echo out; echo err >&2; {script}")))
    assert (out, err) == (b"out\n", b"err\n")
    assert ending[0].isdigit()
    assert ending[-2:] == [code, "0"]
    assert bool("".join(ending[1:-2])) is signalled


def test_a_child_that_is_left_behind_is_noticed(shell: list[str]) -> None:
    [(_, _, ending)] = answers(shell, Job(("sh", "-c", "sleep 3 >/dev/null 2>&1 & :")))
    assert ending[-1] == "1"


def test_one_command_after_the_other_leaves_no_traces(shell: list[str]) -> None:
    first = Job(("sh", "-c", "cd /; echo $X; exit 3"), env={"X": "1 'x'\n"}, cwd="/tmp")
    second = Job(("sh", "-c", "echo ${X-none}; cat"))
    (out, _, ending), (out2, _, ending2) = answers(shell, first, second)
    assert (out, ending[-2]) == (b"1 'x'\n", "3")
    assert (out2, ending2[-2]) == (b"none\n", "0")


@pytest.mark.parametrize("env", [{}, {"X": "1 'x'\n"}], ids=["bare", "environment"])
def test_a_frame_that_was_cut_anywhere_is_never_run(shell: list[str], tmp_path: Path, env: dict[str, str]) -> None:
    mark = tmp_path / "ran"
    job = Job(("touch", str(mark), "b"), cwd=str(tmp_path), env=env)
    frame = job.frame()
    for cut in range(1, len(frame), 11):
        text = setup("sync").encode() + b"\n" + frame[: len(frame) - cut]
        # Without the line's end the last word is whole, and still nothing may happen.
        if not text.endswith(b"}"):
            subprocess.run(shell, input=text, capture_output=True, timeout=30, check=False)
    assert list(tmp_path.iterdir()) == []


def test_a_document_is_the_commands_input(shell: list[str]) -> None:
    document = "a 'b' $c `d` \\ \\\\ \"e\" é\n\n\tend\n".encode() + b"\x80\x81\x88\xff\x01\x7f\n"
    job = Job(("cat",))
    text = setup("sync").encode() + b"\n" + job.frame(document) + job.frame()
    done = subprocess.run(shell, input=text, capture_output=True, timeout=30, check=False)
    assert done.stdout == b"sync\n" + document + job.end.encode() * 2


def test_a_program_that_cannot_even_be_started_still_has_an_end(shell: list[str]) -> None:
    # No kernel takes a single argument of this size.
    [(out, _, ending)] = answers(shell, Job(("/bin/true", "x" * 200_000)))
    assert out == b""
    assert ending[-2] in ("126", "127", "2", "1")


def test_a_command_that_signals_its_whole_group_ends_itself_and_nobody_else(shell: list[str]) -> None:
    (out, _, ending), (out2, _, ending2) = answers(
        shell, Job(("sh", "-c", "echo out; kill 0; sleep 30")), Job(("echo", "next"))
    )
    assert (out, ending[-2]) == (b"out\n", "143")
    assert (out2, ending2[-2:]) == (b"next\n", ["0", "0"])


def test_other_peoples_processes_are_not_taken_for_children_that_were_left_behind(shell: list[str]) -> None:
    # In a session of its own, as other logins are.
    away = "read pid comm state parent group session rest </proc/$!/stat; [ $session = $! ]"
    other = f"setsid sleep 20 >/dev/null 2>&1 & until {away}; do :; done"
    busy = Job(("sh", "-c", f"{other}; i=0; while [ $i -lt 300 ]; do (:); i=$((i+1)); done"))
    [(_, _, ending), (_, _, after)] = answers(shell, busy, Job(("true",)))
    assert (ending[-2:], after[-2:]) == (["0", "0"], ["0", "0"])


@pytest.mark.parametrize("held", ["2>/dev/null", ">/dev/null", "7>&2 >/dev/null 2>&1"])
def test_a_child_in_a_session_of_its_own_is_noticed_if_it_can_write_to_the_streams(shell: list[str], held: str) -> None:
    [(_, _, ending)] = answers(shell, Job(("sh", "-c", f"setsid sleep 1 {held} & :")))
    assert ending[-2:] == ["0", "1"]


def test_a_child_is_noticed_among_hundreds_that_have_gone(shell: list[str]) -> None:
    script = "sleep 3 >/dev/null 2>&1 & i=0; while [ $i -lt 300 ]; do (:); i=$((i+1)); done"
    [(_, _, ending)] = answers(shell, Job(("sh", "-c", script)))
    assert ending[-2:] == ["0", "1"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo hello", ("echo", "hello")),
        ("/usr/bin/id -u root", ("/usr/bin/id", "-u", "root")),
        ("systemctl daemon-reload", ()),
        ("exit 3", ()),
        (". /etc/profile", ()),
        ("A=b /bin/x", ()),
        ("echo $HOME", ()),
        ("echo a; echo b", ()),
        ("echo 'a b'", ()),
        ("echo *", ()),
        ("echo ~", ()),
        ("echo a # b", ()),
        ("echo a\n", ()),
        ("echo  a", ()),
        ("kx_run /x", ()),
        ("", ()),
    ],
)
def test_only_a_script_of_plain_words_needs_no_shell_of_its_own(script: str, words: tuple[str, ...]) -> None:
    assert plain_words(script) == words


@pytest.mark.parametrize("script", ["echo hello", "false", "test -d /", "/bin/echo a", "/no/such", "printf %s x"])
def test_plain_words_do_the_same_as_in_a_shell_of_their_own(shell: list[str], script: str) -> None:
    [(out, _, ending)] = answers(shell, Job(("/bin/sh", "-c", script)))
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=False)
    assert (out, ending[-2]) == (done.stdout, str(done.returncode))
