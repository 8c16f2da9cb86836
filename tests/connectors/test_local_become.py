"""Becoming another user on the control node: the contract of connectors, real sudo and su, and what ends with a run."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pwd
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.connectors.local import users  # noqa: F401  # people of the tests may not read the folders it is in
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError
from kubexm_exec.model.graph import GraphHost
from tests.connectors.contract import ConnectorContract
from tests.lab.people import PASSWORD, missing, people_files

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes others here without a password")
SOON = 60.0
SECRETS = {"env:RIGHT": PASSWORD, "env:WRONG": "not it"}
OTHER = "daemon"


def local(become: Any = None) -> LocalConnector:
    options = {} if become is None else {"become": become}
    return LocalConnector(GraphHost("here", connector="local", options=options), SECRETS.__getitem__)


def run(connector: Connector, *argv: str, stdin: bytes | None = None, timeout: float = SOON) -> CommandResult:
    return connector.run(Command(argv=argv, stdin=stdin), deadline=Deadline.after(timeout), cancel=Cancel())


def lives(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


class TestAsAnotherUser(ConnectorContract):
    """The whole contract holds for a local host whose inventory names another user."""

    @pytest.fixture
    def connector(self) -> Iterator[Connector]:
        connector = local(OTHER)
        connector.open(Deadline.after(SOON))
        yield connector
        connector.close()


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that everybody may write."""
    made = subprocess.run(["mktemp", "-d", "/tmp/kx-become.XXXXXX"], check=True, capture_output=True, text=True)
    folder = Path(made.stdout.strip())
    folder.chmod(0o777)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.mark.parametrize("become", [OTHER, {"user": OTHER, "method": "su"}, {"user": OTHER, "password": "env:RIGHT"}])
def test_root_becomes_another_user_without_a_password(become: Any, shared: Path) -> None:
    connector = local(become)
    assert run(connector, "id", "-un").out == f"{OTHER}\n"
    assert run(connector, "sh", "-c", "id -un; cat", stdin=b"x").out == f"{OTHER}\nx"
    home = pwd.getpwnam(OTHER).pw_dir
    assert run(connector, "printenv", "HOME").out == f"{home}\n"
    for name, data in (("text", b"line\n"), ("binary", bytes(range(256)) * 1000), ("none", b"")):
        path = shared / name
        connector.put(data, str(path), deadline=Deadline.after(SOON), cancel=Cancel())
        assert connector.get(str(path), deadline=Deadline.after(SOON), cancel=Cancel()) == data
        assert path.owner() == OTHER
    connector.close()


def test_each_step_may_be_another_user_and_their_own_one_needs_nothing() -> None:
    connector = local(OTHER)
    assert connector.as_user(OTHER) is connector
    assert run(connector.as_user(False), "id", "-un").out == "root\n"
    assert connector.as_user(True) is connector.as_user("root") is connector.as_user(False)
    assert run(connector.as_user("bin"), "id", "-un").out == "bin\n"
    plain = local()
    assert plain.as_user(True) is plain
    assert run(plain.as_user(OTHER), "id", "-un").out == f"{OTHER}\n"
    plain.close()
    connector.close()


def test_another_user_has_neither_our_folders_nor_our_programs(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    closed = shared / "closed"
    closed.mkdir(0o700)
    monkeypatch.setenv("PATH", f"{closed}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", str(closed))
    connector = local(OTHER)
    connector.start_in(str(closed))
    said = run(connector, "sh", "-c", "pwd; env; mktemp -u").out
    assert str(closed) not in said
    assert said.startswith("/\n")
    connector.close()


def test_who_does_not_exist_is_named_with_what_to_do() -> None:
    with pytest.raises(ConnectorError, match=r"host here: root cannot become nosuchuser by su: .*`become` that exists"):
        run(local("nosuchuser"), "true")


def test_a_timeout_kills_what_the_other_user_started(shared: Path) -> None:
    connector = local(OTHER)
    pids = shared / "pids"
    with pytest.raises(CommandTimedOut):
        run(connector, "sh", "-c", f"sleep 61 & echo $! $$ > {pids}; wait", timeout=10.0)
    assert not [pid for pid in pids.read_text().split() if lives(pid)]
    connector.close()


def test_what_a_killed_program_left_running_as_another_user_is_ended_by_the_next_session(shared: Path) -> None:
    code = """
import sys
from kubexm_exec.connectors.base import Command
from kubexm_exec.control import Cancel, Deadline
from tests.connectors.test_local_become import OTHER, local

connector = local(OTHER)
connector.mark("firstsession", [])
connector.open(Deadline.after(60))
script = "mktemp -d /tmp/kx.firstsession.XXXXXX > $0/folder; echo $$ > $0/pid; echo begun; sleep 62"
connector.run(
    Command(argv=("sh", "-c", script, sys.argv[1])), deadline=Deadline.after(60), cancel=Cancel(),
    on_output=lambda *_: print("begun", flush=True),
)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(shared)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
    pid, folder = (shared / "pid").read_text().strip(), Path((shared / "folder").read_text().strip())
    assert folder.is_dir()
    connector = local()
    connector.mark("secondsession", [("firstsession", OTHER)])
    connector.open(Deadline.after(SOON))
    assert not lives(pid)
    assert not folder.exists()
    connector.close()


def test_nothing_is_left_open_after_many_commands() -> None:
    connector = local(OTHER)

    def once() -> None:
        run(connector, "cat", stdin=b"x")
        run(connector, "kx-none")

    once()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # the names count, not the files
    for _ in range(10):
        once()
    assert len(os.listdir("/proc/self/fd")) <= before + 12  # noqa: PTH208  # the last ones may still be closed
    connector.close()


# people with passwords


WHY_NOT = missing()
peopled = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
CLONE_NEWNS = 0x20000


def as_person(person: str, folder: Path, work: Callable[[], Any]) -> Any:
    """What a function gives in a process of one of the people, who exist only there."""
    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.unshare(CLONE_NEWNS) == 0
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            for file in people_files(folder):
                subprocess.run(["mount", "--bind", str(file), f"/etc/{file.name}"], check=True)
            one = pwd.getpwnam(person)
            os.setgroups([])
            os.setresgid(one.pw_gid, one.pw_gid, one.pw_gid)
            os.setresuid(one.pw_uid, one.pw_uid, one.pw_uid)
            os.chdir("/")
            theirs.send((True, work()))
        except BaseException:  # noqa: BLE001  # it is told to the test
            theirs.send((False, traceback.format_exc()))
        finally:
            os._exit(0)
    theirs.close()
    fine, said = ours.recv()
    os.waitpid(child, 0)
    assert fine, said
    return said


@pytest.fixture
def people(shared: Path) -> Path:
    return shared


@peopled
@pytest.mark.parametrize(
    ("person", "become", "whom"),
    [
        ("trusted", True, "root"),
        ("trusted", "other", "other"),
        ("trusted", {"user": "other", "password": "env:RIGHT"}, "other"),
        ("asked", {"password": "env:RIGHT"}, "root"),
        ("asked", {"user": "other", "password": "env:RIGHT"}, "other"),
        ("asked", {"user": "other", "method": "su", "password": "env:RIGHT"}, "other"),
        ("ttyonly", {"pty": True}, "root"),
        ("asked", {"pty": True, "user": "other", "password": "env:RIGHT"}, "other"),
        ("asked", {"pty": True, "user": "other", "method": "su", "password": "env:RIGHT"}, "other"),
    ],
)
def test_a_person_becomes_another_by_sudo_and_su(people: Path, person: str, become: Any, whom: str) -> None:
    data = bytes(range(256)) * 500

    def work() -> Any:
        connector = local(become)
        path = f"{people}/of-{whom}"
        connector.put(data, path, deadline=Deadline.after(SOON), cancel=Cancel())
        got = connector.get(path, deadline=Deadline.after(SOON), cancel=Cancel())
        seen = run(connector, "sh", "-c", "cat; env; cat /proc/[0-9]*/cmdline 2>&1", stdin=b"in").stdout
        said = run(connector, "id", "-un").out, run(connector.as_user(False), "id", "-un").out
        connector.close()
        return said, got, seen

    said, got, seen = as_person(person, people, work)
    assert said == (f"{whom}\n", f"{person}\n")
    assert got == data
    assert PASSWORD.encode() not in seen


@peopled
@pytest.mark.parametrize(
    ("person", "become", "message"),
    [
        ("asked", {"password": "env:WRONG"}, "host here: asked cannot become root by sudo: the password is wrong"),
        ("asked", True, "a password is required; give the password with `become: {password:"),
        ("asked", {"method": "su"}, "a password is asked for; give it with"),
        ("nobodys", {"password": "env:RIGHT"}, "allow the user in the host's sudoers file"),
        ("ttyonly", True, "set `become: {pty: true}`"),
    ],
)
def test_a_refusal_is_an_error_at_once_that_says_what_to_do(
    people: Path, person: str, become: Any, message: str
) -> None:
    def work() -> str:
        try:
            run(local(become), "true")
        except ConnectorError as error:
            return str(error)
        return "it was not refused"

    said = as_person(person, people, work)
    assert message in said
    assert PASSWORD not in said


@peopled
def test_a_timeout_kills_what_a_person_may_not_signal(people: Path) -> None:
    def work() -> str:
        connector = local({"password": "env:RIGHT"})
        try:
            run(connector, "sh", "-c", f"sleep 63 & echo $! $$ > {people}/pids; wait", timeout=10.0)
        except CommandTimedOut:
            return "timed out"
        return "it was not stopped"

    assert as_person("asked", people, work) == "timed out"
    left = [pid for pid in (people / "pids").read_text().split() if lives(pid)]
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left
