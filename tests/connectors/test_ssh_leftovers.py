"""A command that runs on after its connection was lost is ended before anything else is done on the host."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.scripts import END_LEFT
from kubexm_exec.connectors.ssh.shell import nonce
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import ConnectorError, OutcomeUnknown
from tests.lab.people import PeopledHost
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

pytestmark = pytest.mark.usefixtures("home")
SOON = 60.0
QUICK = {"serverAliveInterval": 0.2, "serverAliveCountMax": 2}
STUBBORN = "trap '' HUP TERM; "
NOBODY = 65534


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SshHost]:
    if SSHD is None:
        pytest.skip(MISSING)
    with ssh_host(tmp_path / "box") as host:
        yield host


@pytest.fixture
def opened(box: SshHost) -> Iterator[Callable[..., SshConnector]]:
    with ExitStack() as stack:

        def make(**options: Any) -> SshConnector:
            connector = SshConnector(box.host(**options), str)
            stack.callback(connector.close)
            return connector

        yield make


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def long_one(pids: Path, before: str = "") -> str:
    """A command that writes down who it is, and then takes its time."""
    return f"{before}sleep 71 & echo $$ $! > {pids}; echo up; wait; sleep 72"


def say(connector: SshConnector, *argv: str, **more: Any) -> str:
    return connector.run(Command(argv=argv, **more), deadline=Deadline.after(SOON), cancel=Cancel()).out


def lose(connector: SshConnector, script: str, cut: Callable[[], None], **more: Any) -> None:
    """Run a command that is cut off as soon as it has said something."""
    with pytest.raises(OutcomeUnknown):
        connector.run(
            Command(shell=script, **more), deadline=Deadline(), cancel=Cancel(), on_output=lambda stream, data: cut()
        )


@pytest.mark.parametrize("before", ["", STUBBORN], ids=["willing", "stubborn"])
@pytest.mark.parametrize("more", [{}, {"stdin": b"x"}, {"pty": True}], ids=["shell", "input", "terminal"])
@pytest.mark.parametrize("after", [{}, {"stdin": b"y"}], ids=["then shell", "then input"])
def test_what_was_lost_is_ended_before_the_next_command(
    box: SshHost, opened: Any, way: None, more: dict[str, Any], after: dict[str, Any], before: str
) -> None:
    pids = box.prefix / "pids"
    connector = opened()
    lose(connector, long_one(pids, before), box.drop_connections, **more)
    lost = pids.read_text().split()
    assert len(lost) == 2
    # The states of the processes, as the next command finds them.
    seen = say(connector, "sh", "-c", f"cat $(printf '/proc/%s/stat ' {' '.join(lost)}) 2>/dev/null; echo", **after)
    assert [line for line in seen.splitlines() if line and line.rpartition(")")[2].split()[0] not in "ZX"] == []


def test_what_runs_on_at_a_host_that_froze_is_ended_too(box: SshHost, opened: Any) -> None:
    pids = box.prefix / "pids"
    connector = opened(**QUICK)
    lose(connector, long_one(pids), box.freeze)
    assert say(connector, "echo", "back") == "back\n"
    assert [pid for pid in pids.read_text().split() if lives(pid)] == []


def test_a_connection_that_is_lost_again_meanwhile_leaves_nothing_behind(box: SshHost, opened: Any) -> None:
    pids = box.prefix / "pids"
    connector = opened()
    lose(connector, long_one(pids, STUBBORN), box.drop_connections)

    pattern = connector._left._all[0].job("end", "").argv[4]

    def cut_again() -> None:
        until = time.monotonic() + SOON
        while not ending_goes_on(pattern) and time.monotonic() < until:
            threading.Event().wait(0.02)
        box.drop_connections()

    thread = threading.Thread(target=cut_again)
    thread.start()
    with pytest.raises(ConnectorError, match=r"host box: .*lost again") as caught:
        say(connector, "echo", "back")
    thread.join()
    assert not isinstance(caught.value, OutcomeUnknown)
    assert say(connector, "echo", "back") == "back\n"
    assert [pid for pid in pids.read_text().split() if lives(pid)] == []


def ending_goes_on(pattern: str) -> bool:
    """Whether the script is at work that ends something, and does not only look for it: its last argument says so."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")[:-1]
            if words[-1:] == [b"end"] and pattern.encode() in words:
                return True
    return False


def test_all_of_several_commands_are_ended(box: SshHost, opened: Any) -> None:
    connector = opened()
    files = [box.prefix / f"pids{n}" for n in range(3)]
    up = threading.Barrier(len(files) + 1)
    threads = [
        threading.Thread(target=lose, args=(connector, long_one(pids), lambda: up.wait(SOON) and None))
        for pids in files
    ]
    for thread in threads:
        thread.start()
    up.wait(SOON)
    box.drop_connections()
    for thread in threads:
        thread.join()
    assert say(connector, "echo", "back") == "back\n"
    assert [pid for pids in files for pid in pids.read_text().split() if lives(pid)] == []


def test_what_is_ended_does_not_get_to_its_next_part(box: SshHost, opened: Any) -> None:
    connector, done = opened(), box.prefix / "done"
    for _ in range(5):
        lose(connector, f"echo up; sleep 71; touch {done}", box.drop_connections)
        assert say(connector, "sh", "-c", f"ls {done} 2>/dev/null; :") == ""


def test_others_on_the_same_host_are_left_alone(box: SshHost, opened: Any) -> None:
    pids, own = box.prefix / "pids", box.prefix / "own"
    say(opened(), "sh", "-c", f"setsid sleep 73 >/dev/null 2>&1 & echo $! > {own}")
    connector = opened()
    lose(connector, long_one(pids), box.drop_connections)
    say(connector, "true")
    assert lives(own.read_text().strip())
    say(connector, "kill", own.read_text().strip())


def test_a_command_that_has_ended_meanwhile_is_no_trouble(box: SshHost, opened: Any) -> None:
    connector, end = opened(), box.prefix / "end"
    lose(connector, f"echo up; until [ -e {end} ]; do sleep 0.05; done; rm {end}", box.drop_connections)
    end.touch()
    while end.exists():
        threading.Event().wait(0.02)
    assert say(connector, "echo", "back") == "back\n"


# In another process, which knows nothing but a mark


@pytest.mark.parametrize("before", ["", STUBBORN], ids=["willing", "stubborn"])
@pytest.mark.parametrize("more", [{}, {"stdin": b"x"}, {"pty": True}], ids=["shell", "input", "terminal"])
def test_what_carries_the_mark_of_an_earlier_session_is_ended_before_the_first_command(
    box: SshHost, opened: Any, way: None, more: dict[str, Any], before: str
) -> None:
    pids = box.prefix / "pids"
    first, second, mark = opened(), opened(), nonce()
    first.mark(mark, ())
    lose(first, long_one(pids, before), box.drop_connections, **more)
    second.mark(nonce(), [(nonce(), None), (mark, None)])
    states = f"cat $(printf '/proc/%s/stat ' $(cat {pids})) 2>/dev/null; echo"
    seen = say(second, "sh", "-c", states)
    assert [line for line in seen.splitlines() if line and line.rpartition(")")[2].split()[0] not in "ZX"] == []


@pytest.mark.parametrize("more", [{}, {"stdin": b"x"}, {"pty": True}], ids=["shell", "input", "terminal"])
def test_what_carries_another_mark_is_left_alone(box: SshHost, opened: Any, more: dict[str, Any]) -> None:
    end = box.prefix / "end"
    living, next_one, mark = opened(), opened(), nonce()
    living.mark(nonce(), ())
    next_one.mark(mark, [(nonce(), None), (f"{mark}0", None)])
    said: list[str] = []

    def begun(stream: str, data: bytes) -> None:
        said.append(say(next_one, "echo", "also"))
        end.touch()

    result = living.run(
        Command(shell=f"echo up; until [ -e {end} ]; do sleep 0.05; done; echo still", **more),
        deadline=Deadline.after(SOON),
        cancel=Cancel(),
        on_output=lambda stream, data: None if said else begun(stream, data),
    )
    assert (result.exit_code, result.out.split(), said) == (0, ["up", "still"], ["also\n"])


# As another user


@pytest.mark.parametrize("more", [{}, {"stdin": b"x"}], ids=["shell", "input"])
@pytest.mark.parametrize(
    ("user", "become"),
    [
        ("trusted", {"user": "root"}),
        ("asked", {"user": "other", "password": "env:P"}),
        ("asked", {"user": "other", "method": "su", "password": "env:P"}),
        ("ttyonly", {"pty": True, "user": "other"}),
    ],
    ids=["sudo", "sudo password", "su", "sudo terminal"],
)
def test_what_another_user_runs_is_ended_as_that_user(
    as_user: Any, peopled: PeopledHost, user: str, become: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    connector = as_user(user, become)
    pids = Path(say(connector, "mktemp").strip())
    lose(connector, long_one(pids, STUBBORN), peopled.drop_connections, **more)
    lost = pids.read_text().split()
    say(connector, "rm", str(pids))
    assert len(lost) == 2
    assert [pid for pid in lost if lives(pid)] == []


def test_what_a_user_has_left_is_ended_before_another_one_does_anything(as_user: Any, peopled: PeopledHost) -> None:
    connector = as_user("trusted", None)
    boss = connector.as_user(True)
    pids = Path(say(boss, "mktemp").strip())
    lose(boss, long_one(pids, STUBBORN), peopled.drop_connections)
    lost = pids.read_text().split()
    assert say(connector.as_user("other"), "id", "-un") == "other\n"
    assert [pid for pid in lost if lives(pid)] == []
    say(boss, "rm", str(pids))


def test_what_cannot_be_ended_is_said_again_and_again_and_nothing_else_is_begun(
    as_user: Any, peopled: PeopledHost
) -> None:
    connector, boss = as_user("trusted", None), as_user("trusted", True)
    pids = Path(say(boss, "mktemp").strip())
    script = long_one(pids, STUBBORN)
    lose(connector, f"sudo -n sh -c {shlex.quote(script)}; echo next", peopled.drop_connections)
    lost = pids.read_text().split()
    for _ in range(2):
        with pytest.raises(ConnectorError, match=rf"host box: .*cannot be ended \(processes.* {lost[0]}\b") as caught:
            say(connector, "touch", f"{pids}.begun")
        assert not isinstance(caught.value, OutcomeUnknown)
    assert all(lives(pid) for pid in lost)
    say(boss, "kill", "-KILL", *lost)
    assert say(connector, "sh", "-c", f"ls {pids}.begun 2>/dev/null; echo back") == "back\n"
    say(boss, "rm", str(pids))


# What looks and ends, in every shell


@pytest.fixture
def lost() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A shell with a word in its command line, whose command goes on."""
    word = nonce()
    script = b"sh -c 'sleep 74; :' &\necho up; sleep 75; :\n"
    with subprocess.Popen(
        ["/bin/sh", "-s", word], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(script)
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        yield word, process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def end_left(
    shell: list[str], pattern: str, processes: str, what: str, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, "-c", END_LEFT, "kx", pattern, processes, what],
        capture_output=True,
        text=True,
        timeout=SOON,
        user=user,
    )


def began(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_every_shell_looks_without_harm_and_then_ends_all_of_it(shell: list[str], lost: Any) -> None:
    word, process = lost
    pattern = f"[k]{word[1:]}"
    looked = end_left(shell, pattern, "", "look")
    assert (looked.returncode, looked.stderr) == (1, "")
    assert process.poll() is None
    found = [item.split(":") for item in looked.stdout.split()[1:]]
    assert len(found) >= 2
    assert all(began(int(pid)) == moment for pid, moment in found)
    ended = end_left(shell, pattern, "", "end")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    process.wait(SOON)
    assert [pid for pid, _ in found if lives(pid)] == []
    assert end_left(shell, pattern, looked.stdout.partition(" ")[2], "look").returncode == 0


def test_every_shell_leaves_a_process_alone_that_only_has_the_same_number(shell: list[str], lost: Any) -> None:
    _, process = lost
    pattern = f"[k]{nonce()[1:]}"
    assert end_left(shell, pattern, f"{process.pid}:{int(began(process.pid)) - 1}", "end").returncode == 0
    assert process.poll() is None
    assert end_left(shell, pattern, f"{process.pid}:{began(process.pid)}", "end").returncode == 0
    process.wait(SOON)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_every_shell_names_what_it_may_not_end_and_cuts_nothing_off(shell: list[str], lost: Any) -> None:
    word, process = lost
    pattern = f"[k]{word[1:]}"
    looked = end_left(shell, pattern, "", "look").stdout.split()
    refused = end_left(shell, pattern, "", "end", user=NOBODY)
    assert (refused.returncode, refused.stderr) == (1, "")
    assert set(looked) <= set(refused.stdout.split())
    assert process.poll() is None
