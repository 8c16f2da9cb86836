"""Becoming another user on a real host: with real sudo and su, with and without passwords, and never a hang."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.connectors.ssh.channels import become_line
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.options import Become, Method
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError
from tests.connectors.contract import ConnectorContract
from tests.lab.people import PASSWORD, PeopledHost, missing, peopled_host

WHY_NOT = missing()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
SOON = 60.0
SECRETS = {"env:RIGHT": PASSWORD, "env:WRONG": "not it"}


@pytest.fixture(scope="module")
def box() -> Iterator[PeopledHost]:
    with peopled_host() as host:
        yield host


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def as_user(box: PeopledHost) -> Iterator[Any]:
    """Makes open connectors for a user, with a way to become another."""
    with ExitStack() as stack:

        def make(user: str, become: Any, **options: Any) -> SshConnector:
            host = replace(box.host(become=become, **options), user=user)
            connector = SshConnector(host, SECRETS.__getitem__)
            stack.callback(connector.close)
            connector.open(Deadline.after(SOON))
            return connector

        yield make


def run(connector: Connector, *argv: str, stdin: bytes | None = None, timeout: float = SOON) -> CommandResult:
    command = Command(argv=argv, stdin=stdin)
    return connector.run(command, deadline=Deadline.after(timeout), cancel=Cancel())


class TestAsAnotherUserWithAPassword(ConnectorContract):
    """The whole contract holds behind sudo that asks for a password."""

    @pytest.fixture
    def connector(self, behind_sudo: Connector) -> Connector:
        behind_sudo.open(Deadline.after(SOON))
        return behind_sudo


@pytest.fixture(scope="module")
def behind_sudo(box: PeopledHost) -> Iterator[Connector]:
    become = {"user": "other", "password": "env:RIGHT"}
    connector = SshConnector(replace(box.host(become=become), user="asked"), SECRETS.__getitem__)
    yield connector
    connector.close()


@pytest.mark.parametrize("become", [{"pty": True}, {"user": "other", "password": "env:RIGHT", "pty": True}])
def test_files_and_input_of_any_bytes_go_through_the_terminal_that_become_wants(
    as_user: Any, box: PeopledHost, become: Any
) -> None:
    connector = as_user("ttyonly" if become == {"pty": True} else "asked", become)
    data = bytes(range(256)) * 2000
    assert run(connector, "cat", stdin=data).stdout == data
    path = f"{box.prefix}/through-terminal"
    for content in (data, b"a line\n", b"no end", b""):
        connector.put(content, path, deadline=Deadline.after(SOON), cancel=Cancel())
        assert connector.get(path, deadline=Deadline.after(SOON), cancel=Cancel()) == content
    with pytest.raises(FileNotFoundError):
        connector.get(f"{path}-not", deadline=Deadline.after(SOON), cancel=Cancel())
    with pytest.raises(ConnectorError, match="cannot be sent through a terminal"):
        connector.put(io.BytesIO(data), path, deadline=Deadline.after(SOON), cancel=Cancel())
    run(connector, "rm", path)


def test_a_timeout_kills_what_runs_behind_a_terminal_that_become_wants(as_user: Any, box: PeopledHost) -> None:
    connector = as_user("ttyonly", {"pty": True})
    pids = box.prefix / "pids-of-terminal"
    with pytest.raises(CommandTimedOut):
        run(connector, "sh", "-c", f"sleep 61 & echo $! $$ > {pids}; wait", timeout=10.0)
    for pid in pids.read_text().split():
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


@pytest.mark.parametrize("stdin", [None, b"input"], ids=["shell", "channel"])
@pytest.mark.parametrize(
    ("user", "become", "whom"),
    [
        ("trusted", True, "root"),
        ("trusted", "other", "other"),
        ("trusted", {"user": "other", "password": "env:RIGHT"}, "other"),
        ("asked", {"password": "env:RIGHT"}, "root"),
        ("asked", {"user": "other", "password": "env:RIGHT"}, "other"),
        ("asked", {"user": "other", "method": "su", "password": "env:RIGHT"}, "other"),
        ("root", {"user": "other", "method": "su"}, "other"),
        ("root", "other", "other"),
        ("ttyonly", {"pty": True}, "root"),
        ("ttyonly", {"pty": True, "user": "other"}, "other"),
        ("asked", {"pty": True, "password": "env:RIGHT"}, "root"),
        ("asked", {"pty": True, "user": "other", "method": "su", "password": "env:RIGHT"}, "other"),
    ],
)
def test_commands_run_as_the_other_user(as_user: Any, user: str, become: Any, whom: str, stdin: bytes | None) -> None:
    connector = as_user(user, become)
    assert run(connector, "id", "-un", stdin=stdin).out == f"{whom}\n"
    assert PASSWORD not in run(connector, "sh", "-c", "cat; env", stdin=stdin).out


@pytest.mark.parametrize(
    ("user", "become", "own"),
    [
        ("trusted", None, "trusted"),
        ("trusted", "other", "other"),
        ("asked", {"password": "env:RIGHT", "always": False}, "asked"),
        ("asked", {"user": "other", "password": "env:RIGHT"}, "other"),
    ],
)
def test_one_connection_serves_several_users(as_user: Any, box: PeopledHost, user: str, become: Any, own: str) -> None:
    connector = as_user(user, become)
    users = {False: user, True: "root", "root": "root", "other": "other", "nobodys": "nobodys", "asked": "asked"}
    for _ in range(2):
        assert run(connector, "id", "-un").out == f"{own}\n"
        for wanted, name in users.items():
            other = connector.as_user(wanted)
            assert run(other, "sh", "-c", "id -un; cat", stdin=b"x").out == f"{name}\nx"
            assert run(other, "id", "-un").out == f"{name}\n"
            path = f"{box.prefix}/of.{name}"
            other.put(b"x", path, deadline=Deadline.after(SOON), cancel=Cancel())
            assert run(other, "stat", "-c", "%U", path).out == f"{name}\n"
            run(other, "rm", path)
    assert connector.as_user(True) is connector.as_user("root")
    connector.close()
    connector.open(Deadline.after(SOON))
    assert run(connector.as_user("other"), "id", "-un").out == "other\n"


def test_several_users_work_at_once_and_more_of_them_than_there_are_channels(as_user: Any) -> None:
    connector = as_user("root", None)
    names = ["asked", "trusted", "nobodys", "ttyonly", "other", "daemon", "bin", "sys", "games", "man"]
    # Each takes its time, so that they meet.
    with ThreadPoolExecutor(len(names)) as pool:
        script = "sleep 0.2; id -un"
        found = list(pool.map(lambda name: run(connector.as_user(name), "sh", "-c", script).out.strip(), names * 3))
    assert found == names * 3


def test_a_host_that_allows_one_channel_serves_several_users_one_after_the_other(tmp_path: Path) -> None:
    with peopled_host("MaxSessions 1") as box:
        connector = SshConnector(replace(box.host(become=None), user="trusted"), SECRETS.__getitem__)
        connector.open(Deadline.after(SOON))
        for _ in range(2):
            for name in ("root", "other", "trusted"):
                assert run(connector.as_user(name), "id", "-un", timeout=20).out == f"{name}\n"
            assert run(connector, "cat", stdin=b"x", timeout=20).out == "x"
        connector.close()


def test_a_password_that_nobody_needs_is_not_looked_up(as_user: Any) -> None:
    connector = as_user("trusted", {"password": "env:NOT_THERE", "always": False})
    assert run(connector, "id", "-un").out == "trusted\n"
    with pytest.raises(KeyError):
        connector.as_user(True)


def test_what_another_user_cannot_be_is_that_users_error_alone(as_user: Any) -> None:
    connector = as_user("asked", None)
    with pytest.raises(ConnectorError, match=r"asked cannot become root by sudo: .*password"):
        run(connector.as_user(True), "true")
    assert run(connector, "id", "-un").out == "asked\n"


@pytest.mark.parametrize(
    ("user", "become", "message"),
    [
        ("asked", {"password": "env:WRONG"}, r"asked cannot become root by sudo: the password is wrong"),
        ("asked", {"method": "su", "password": "env:WRONG"}, r"cannot become root by su: the password is wrong"),
        ("asked", True, r'a password is required; give the password with `become: \{password: "env:NAME"\}`'),
        ("asked", {"method": "su"}, r"a password is asked for; give it with"),
        ("nobodys", {"password": "env:RIGHT"}, r"nobodys is not in the sudoers file.*allow the user"),
        ("ttyonly", True, r"must have a tty.*set `become: \{pty: true\}`.*requiretty"),
        ("asked", {"pty": True, "password": "env:WRONG"}, r"asked cannot become root by sudo: the password is wrong"),
        ("asked", {"pty": True, "method": "su", "password": "env:WRONG"}, r"by su: the password is wrong"),
        ("asked", {"pty": True, "method": "su"}, r"a password is asked for; give it with"),
        ("trusted", "nosuchuser", r"unknown user.*give a user in `become` that exists"),
        ("trusted", {"method": "doas"}, r"by doas: .*(install it|allow the user)"),
    ],
)
def test_a_refusal_is_an_error_at_once_that_says_what_to_do(as_user: Any, user: str, become: Any, message: str) -> None:
    connector = as_user(user, become)
    with pytest.raises(ConnectorError, match=message) as caught:
        run(connector, "true")
    assert PASSWORD not in str(caught.value)
    assert "not it" not in str(caught.value)


def test_a_wrong_password_is_noticed_also_when_the_command_has_input(as_user: Any) -> None:
    connector = as_user("asked", {"password": "env:WRONG"})
    with pytest.raises(ConnectorError, match="the password is wrong"):
        run(connector, "cat", stdin=b"input")


def test_files_belong_to_the_other_user(as_user: Any, box: PeopledHost) -> None:
    connector = as_user("trusted", "other")
    for name, data in (("text", b"line\n"), ("binary", bytes(range(256)) * 1000)):
        path = f"{box.prefix}/{name}"
        connector.put(data, path, deadline=Deadline.after(SOON), cancel=Cancel())
        assert connector.get(path, deadline=Deadline.after(SOON), cancel=Cancel()) == data
        assert run(connector, "stat", "-c", "%U %a", path).out == "other 644\n"


def test_a_timeout_kills_what_the_other_user_started(as_user: Any, box: PeopledHost) -> None:
    connector = as_user("asked", {"password": "env:RIGHT"})
    pids = box.prefix / "pids"
    with pytest.raises(CommandTimedOut):
        run(connector, "sh", "-c", f"sleep 61 & echo $! $$ > {pids}; wait", timeout=10.0)
    for pid in pids.read_text().split():
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_login_by_password_works_and_a_wrong_one_is_refused(as_user: Any) -> None:
    connector = as_user("asked", None, password="env:RIGHT", privateKeyPath=None)
    assert run(connector, "id", "-un").out == "asked\n"
    with pytest.raises(ConnectorError, match=r"refused the login as asked .*tried: password"):
        as_user("asked", None, password="env:WRONG", privateKeyPath=None)


def test_no_command_line_ever_holds_the_password() -> None:
    methods: tuple[Method, ...] = ("sudo", "su", "doas")
    for method in methods:
        assert "s3cret" not in become_line(Become("root", method, "s3cret"), "prompt", "sh")
