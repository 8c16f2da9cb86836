"""What a command gets in its environment is nowhere in a command line on the host, however the command is run."""

from __future__ import annotations

import hashlib
import io
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.shell import Job
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from tests.lab.sshd import MISSING, SSHD, ssh_host

pytestmark = pytest.mark.usefixtures("home")
SOON = 60.0
ALL_BYTES = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
FEED = bytes(range(256)) * 1000 + b"\x04\r\n"
WORD = "planted-in-the-environment"
VALUES = {
    "plain": WORD,
    "quotes": f"{WORD} 'a' \"b\" $HOME `id` \\0101 \\c %s !x",
    "lines": f"\n\n{WORD}\n\r\n\tü\n\n",
    "all bytes": f"{ALL_BYTES}{WORD}{ALL_BYTES}",
    "long": f"{WORD}{'x' * 50_000}\n",
    "empty": "",
}
# The value, what is read, and every command line on the machine.
ALL_LINES = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0\\n' '  '"
LOOK = f'printf %s "$KX_VALUE" | sha256sum; {{reads}}sha256sum; {ALL_LINES}'


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def input_of(how: str) -> dict[str, Any]:
    """What makes a command take one of the ways to the host."""
    if how == "stream":
        return {"stdin": io.BytesIO(FEED)}
    return {"stdin": FEED} if how == "input" else {"pty": True} if how == "terminal" else {}


def look(connector: SshConnector, value: str, **more: Any) -> CommandResult:
    reads = "" if "stdin" in more else "</dev/null "
    command = Command(shell=LOOK.format(reads=reads), env={"KX_VALUE": value, "KX_MORE": WORD}, **more)
    return connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel())


def check(result: CommandResult, value: str, stdin: bytes = b"") -> None:
    lines = result.out.splitlines()
    assert result.exit_code == 0, result.err
    assert [line.split()[0] for line in lines[:2]] == [digest(value.encode("utf-8", "surrogateescape")), digest(stdin)]
    shown = "\n".join(lines[2:])
    assert "KX_VALUE" in shown, "the command's own line must be among those that were seen"
    assert WORD not in shown
    assert result.stderr == b""


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_every_shell_takes_any_value_and_leaves_the_input_alone(shell: list[str], way: None, value: str) -> None:
    job = Job.of(Command(shell='printf %s "$V"; printf %s "$W" >&2; cat', env={"V": value, "W": f"{value}."}))
    script = job.line("kxsync", reads=True)
    assert WORD not in script
    done = subprocess.run(
        [*shell, "-c", script], input=job.hidden() + FEED, capture_output=True, timeout=SOON, start_new_session=True
    )
    wanted = value.encode("utf-8", "surrogateescape")
    assert done.stdout.partition(b"\n")[2] == wanted + FEED + job.end.encode()
    assert wanted + b"." + job.end.encode() in done.stderr


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_shell_whose_environment_did_not_come_whole_runs_nothing(shell: list[str], tmp_path: Path, cut: int) -> None:
    job = Job(("touch", str(tmp_path / "ran")), env={"V": "x" * 500})
    script = job.line("kxsync", reads=False)
    subprocess.run([*shell, "-c", script], input=job.hidden()[:-cut], capture_output=True, timeout=SOON)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def connector(tmp_path: Path, way: None) -> Iterator[SshConnector]:
    if SSHD is None:
        pytest.skip(MISSING)
    with ssh_host(tmp_path / "box") as host, ExitStack() as stack:
        made = SshConnector(host.host(), str)
        stack.callback(made.close)
        yield made


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("how", ["shell", "input", "stream", "terminal"])
def test_no_command_line_shows_a_value(connector: SshConnector, value: str, how: str) -> None:
    more = input_of(how)
    check(look(connector, value, **more), value, FEED if "stdin" in more else b"")


def test_no_command_line_shows_a_value_of_a_second_command_at_the_same_time(
    connector: SshConnector, tmp_path: Path
) -> None:
    free = tmp_path / "free"
    begun = threading.Event()

    def first() -> None:
        command = Command(shell=f"echo up; until [ -e {free} ]; do sleep 0.05; done", env={"KX_VALUE": f"1 {WORD}"})
        connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel(), on_output=lambda *_: begun.set())

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert begun.wait(SOON)
        check(look(connector, VALUES["lines"]), VALUES["lines"])
    finally:
        free.touch()
        thread.join()


def test_the_next_command_of_the_same_shell_knows_nothing_of_it(connector: SshConnector) -> None:
    check(look(connector, WORD), WORD)
    result = connector.run(Command(shell="env"), deadline=Deadline.after(SOON), cancel=Cancel())
    assert WORD not in result.out
    assert "kx_v" not in result.out


@pytest.mark.parametrize("more", [{}, {"stdin": b"x"}, {"pty": True}], ids=["shell", "input", "terminal"])
def test_a_name_that_no_shell_can_hold_is_set_too(connector: SshConnector, more: dict[str, Any]) -> None:
    # Another word, since `env` has it in its command line for a moment, and others look at the same time.
    env = {"a.b-c": "held by 'env'", "KX_VALUE": "held"}
    command = Command(argv=("env",), env=env, **more)
    out = connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel()).out
    assert {"a.b-c=held by 'env'", "KX_VALUE=held"} <= set(out.splitlines())
    assert "kx_v" not in out


# As another user


@pytest.mark.parametrize("how", ["shell", "input", "terminal"])
@pytest.mark.parametrize(
    ("user", "become"),
    [
        ("trusted", {"user": "other"}),
        ("asked", {"user": "other", "password": "env:P"}),
        ("asked", {"user": "other", "method": "su", "password": "env:P"}),
        ("ttyonly", {"pty": True, "user": "other"}),
        ("asked", {"pty": True, "user": "other", "password": "env:P"}),
        ("asked", {"pty": True, "user": "other", "method": "su", "password": "env:P"}),
    ],
    ids=["sudo", "sudo password", "su", "sudo terminal", "sudo terminal password", "su terminal"],
)
def test_no_command_line_shows_a_value_of_another_user(as_user: Any, user: str, become: Any, how: str) -> None:
    more = input_of(how)
    value = VALUES["all bytes"] + VALUES["long"]
    check(look(as_user(user, become), value, **more), value, FEED if "stdin" in more else b"")
