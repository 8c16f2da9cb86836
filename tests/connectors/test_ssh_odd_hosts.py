"""Hosts that are set up in unusual ways: one session, other login shells, and commands that kill what runs them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, OutcomeUnknown
from tests.lab.sshd import MISSING, SSHD, ssh_host

pytestmark = [pytest.mark.skipif(SSHD is None, reason=MISSING), pytest.mark.usefixtures("home")]
SOON = 60.0


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    """Makes a host with certain settings and a connector to it."""
    with ExitStack() as stack:

        def make(*settings: str, **options: Any) -> SshConnector:
            host = stack.enter_context(ssh_host(tmp_path / "box", settings=settings))
            connector = SshConnector(host.host(**options), str)
            stack.callback(connector.close)
            return connector

        yield make


def run(
    connector: SshConnector, shell: str, stdin: bytes | None = None, seconds: float = SOON, cancel: Cancel | None = None
) -> CommandResult:
    command = Command(shell=shell, stdin=stdin)
    return connector.run(command, deadline=Deadline.after(seconds), cancel=cancel or Cancel())


def written(path: Path) -> int:
    """The number of a process, once it has written it down."""
    until = time.monotonic() + SOON
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("stdin", [None, b"x"], ids=["shell", "channel"])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
@pytest.mark.usefixtures("way")
def test_command_is_ended_on_a_host_that_allows_one_session_and_the_next_one_runs(
    opened: Any, tmp_path: Path, stdin: bytes | None, how: str
) -> None:
    connector = opened("MaxSessions 1")
    run(connector, "true")
    cancel = Cancel()
    pids = tmp_path / "pid"

    def stop() -> None:
        written(pids)
        cancel.set()

    if how == "cancel":
        threading.Thread(target=stop).start()
    with pytest.raises(CommandCancelled if how == "cancel" else CommandTimedOut):
        run(connector, f"echo $$ >{pids}; sleep 300", stdin, seconds=2.0 if how == "timeout" else SOON, cancel=cancel)
    assert is_gone(written(pids))
    assert run(connector, "echo next", stdin).out == "next\n"


@pytest.mark.parametrize("become", [None, {"user": "root"}], ids=["login", "sudo"])
@pytest.mark.parametrize("shell", ["csh", "fish"])
def test_login_shell_that_is_no_posix_shell_changes_nothing(
    opened: Any, shell: str, become: Any, tmp_path: Path
) -> None:
    if shutil.which(shell) is None or (become and (os.geteuid() != 0 or shutil.which("sudo") is None)):
        pytest.skip(f"no {shell}, or nobody to become here")
    connector = opened(f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"', become=become)
    text = """printf '%s\\n' 'it'"'"'s! !! $HOME `id` "\\t" *'; wc -c"""
    assert run(connector, text, b"x" * (9 << 20)).out == f'it\'s! !! $HOME `id` "\\t" *\n{9 << 20}\n'
    target = tmp_path / "copy"
    connector.put(b"\0\n!'" * (2 << 20), str(target), deadline=Deadline.after(SOON), cancel=Cancel())
    assert target.read_bytes() == b"\0\n!'" * (2 << 20)


@pytest.mark.parametrize("stdin", [None, b"x"], ids=["shell", "channel"])
@pytest.mark.parametrize("after", ["", "; exec sleep 300"], ids=["ends", "lives on"])
@pytest.mark.usefixtures("way")
def test_command_that_kills_the_shell_that_waits_for_it_is_noticed_at_once(
    opened: Any, tmp_path: Path, stdin: bytes | None, after: str
) -> None:
    connector = opened()
    pids = tmp_path / "pid"
    with pytest.raises(OutcomeUnknown, match="the shell on the host ended"):
        run(connector, f"echo $$ >{pids}; kill -9 $PPID{after}", stdin, seconds=250.0)
    # It is ended before anything else is done there.
    assert run(connector, "echo next", stdin).out == "next\n"
    assert is_gone(written(pids))
