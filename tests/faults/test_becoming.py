"""Becoming another user on a full host, with its own sudo, su, doas and PAM: it works, or is a clear error at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command, Connector
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import ConnectorError
from tests.faults.kit import SOON, Project
from tests.lab.machines import Machine
from tests.lab.people import PASSWORD

pytestmark = pytest.mark.xdist_group("becoming")
SECRETS = {"env:RIGHT": PASSWORD, "env:WRONG": "not it"}
As = Callable[..., Connector]

PEOPLE = r"""
set -e
for user in asked trusted limited ttyonly nobodys other; do
  useradd -m -s /bin/sh "$user"
  install -d -o "$user" -g "$user" -m 0700 "/home/$user/.ssh"
  install -o "$user" -g "$user" -m 0600 /root/.ssh/authorized_keys "/home/$user/.ssh/authorized_keys"
  printf '%s:%s\n' "$user" "$1" | chpasswd
done
printf 'root:%s\n' "$1" | chpasswd
cat >/etc/sudoers.d/lab <<'RULES'
Defaults:ttyonly requiretty
asked ALL=(ALL:ALL) ALL
trusted ALL=(ALL:ALL) NOPASSWD: ALL
limited ALL=(other) NOPASSWD: ALL
ttyonly ALL=(ALL:ALL) NOPASSWD: ALL
RULES
chmod 0440 /etc/sudoers.d/lab
cat >/etc/doas.conf <<'RULES'
permit nopass trusted
permit nopass limited as other
permit asked
RULES
chmod 0400 /etc/doas.conf
"""
NOBODY = r"""
rm -f /etc/sudoers.d/lab /etc/doas.conf
for user in asked trusted limited ttyonly nobodys other; do
  pkill -KILL -u "$user"
  userdel -r "$user"
done 2>/dev/null
passwd -q -d root && passwd -q -l root
"""


@pytest.fixture(scope="module")
def box(_pair: tuple[Machine, Machine]) -> Iterator[Machine]:
    """A host with people on it."""
    machine = _pair[0]
    machine.sh(PEOPLE, PASSWORD)
    yield machine
    machine.sh(NOBODY)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def as_user(box: Machine) -> Iterator[As]:
    """Makes open connectors for a user, with a way to become another."""
    with ExitStack() as stack:

        def make(user: str, become: Any, **options: Any) -> Connector:
            connector = SshConnector(box.host(user=user, become=become, **options), SECRETS.__getitem__)
            stack.callback(connector.close)
            connector.open(Deadline.after(SOON))
            return connector

        yield make


def run(connector: Connector, *argv: str, stdin: bytes | None = None) -> CommandResult:
    return connector.run(Command(argv=argv, stdin=stdin), deadline=Deadline.after(SOON), cancel=Cancel())


@pytest.mark.parametrize("stdin", [None, b"input"], ids=["shell", "channel"])
@pytest.mark.parametrize(
    ("user", "become", "whom"),
    [
        ("trusted", True, "root"),
        ("trusted", "other", "other"),
        ("limited", "other", "other"),
        ("asked", {"password": "env:RIGHT"}, "root"),
        ("asked", {"user": "other", "password": "env:RIGHT"}, "other"),
        ("trusted", {"user": "other", "password": "env:RIGHT"}, "other"),
        ("nobodys", {"method": "su", "password": "env:RIGHT"}, "root"),
        ("nobodys", {"user": "other", "method": "su", "password": "env:RIGHT"}, "other"),
        ("root", {"user": "other", "method": "su"}, "other"),
        ("trusted", {"method": "doas"}, "root"),
        ("limited", {"method": "doas", "user": "other"}, "other"),
        ("asked", {"method": "doas", "password": "env:RIGHT"}, "root"),
        ("asked", {"method": "doas", "user": "other", "password": "env:RIGHT"}, "other"),
        ("ttyonly", {"pty": True}, "root"),
        ("asked", {"pty": True, "password": "env:RIGHT"}, "root"),
        ("nobodys", {"pty": True, "method": "su", "password": "env:RIGHT"}, "root"),
        ("root", "other", "other"),
    ],
)
def test_commands_run_as_the_other_user(as_user: As, user: str, become: Any, whom: str, stdin: bytes | None) -> None:
    connector = as_user(user, become)
    assert run(connector, "id", "-un", stdin=stdin).out == f"{whom}\n"
    home = "/root" if whom == "root" else f"/home/{whom}"
    assert run(connector, "sh", "-c", "cd && pwd", stdin=stdin).out == f"{home}\n"
    seen = run(connector, "sh", "-c", "cat; env; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>&1", stdin=stdin)
    assert PASSWORD.encode() not in seen.stdout


@pytest.mark.parametrize(
    ("user", "become", "message"),
    [
        ("asked", {"password": "env:WRONG"}, r"asked cannot become root by sudo: the password is wrong"),
        ("asked", True, r'a password is required; give the password with `become: \{password: "env:NAME"\}`'),
        ("limited", True, r"limited cannot become root by sudo: .*(allow the user|give the password)"),
        ("limited", {"password": "env:RIGHT"}, r"limited cannot become root by sudo: .*allow the user"),
        ("nobodys", {"password": "env:RIGHT"}, r"nobodys is not in the sudoers file.*allow the user"),
        ("ttyonly", True, r"must have a tty.*requiretty"),
        ("trusted", "nosuchuser", r"unknown user.*give a user in `become` that exists"),
        ("nobodys", {"method": "su", "password": "env:WRONG"}, r"cannot become root by su: the password is wrong"),
        ("nobodys", {"method": "su"}, r"by su: a password is asked for; give it with"),
        (
            "nobodys",
            {"method": "su", "user": "nosuchuser", "password": "env:RIGHT"},
            r"give a user in `become` that exists",
        ),
        ("asked", {"method": "doas"}, r"asked cannot become root by doas: .*give the password|permit nopass"),
        ("asked", {"method": "doas", "password": "env:WRONG"}, r"by doas: the password is wrong; check"),
        ("nobodys", {"method": "doas"}, r"nobodys cannot become root by doas: .*allow the user"),
        ("nobodys", {"method": "doas", "password": "env:RIGHT"}, r"root by doas: .*allow the user"),
    ],
)
@pytest.mark.parametrize("stdin", [None, b"input"], ids=["shell", "channel"])
def test_a_refusal_is_an_error_at_once_that_says_what_to_do(
    as_user: As, user: str, become: Any, message: str, stdin: bytes | None
) -> None:
    connector = as_user(user, become)
    with pytest.raises(ConnectorError, match=message) as caught:
        run(connector, "cat", stdin=stdin)
    assert PASSWORD not in str(caught.value)
    assert "not it" not in str(caught.value)


def test_the_password_is_in_no_log_of_the_host(as_user: As, box: Machine) -> None:
    assert run(as_user("asked", {"password": "env:RIGHT"}), "id", "-u").out == "0\n"
    assert "sudo" in box.sh("journalctl -q --no-pager -t sudo -n 20")
    assert PASSWORD not in box.sh("journalctl -q --no-pager; cat /home/*/.*history /root/.*history 2>/dev/null || :")


def test_sudo_that_asks_for_a_password_unexpectedly_is_a_clear_error_and_no_hang(box: Machine, tmp_path: Path) -> None:
    project = Project(tmp_path / "project", [box], user="trusted", become=True)
    project.write({"name": "who", "type": "command", "with": {"argv": ["id", "-un"]}})
    assert project.run().code == 0
    box.sh("sed -i 's/^trusted .*/trusted ALL=(ALL:ALL) ALL/' /etc/sudoers.d/lab")
    try:
        outcome = project.run()
    finally:
        box.sh("sed -i 's/^trusted .*/trusted ALL=(ALL:ALL) NOPASSWD: ALL/' /etc/sudoers.d/lab")
    assert outcome.code == 1
    text = " ".join(outcome.text.split())
    assert "trusted cannot become root by sudo: sudo: a password is required" in text
    assert 'give the password with `become: {password: "env:NAME"}`' in text


def test_a_run_with_the_right_password_works_and_with_a_wrong_one_says_so(box: Machine, tmp_path: Path) -> None:
    project = Project(tmp_path / "project", [box], user="asked", become={"password": "env:THE_PASSWORD"})
    project.write({"name": "file", "type": "file", "with": {"path": "/srv/roots", "content": "mine\n", "mode": "0600"}})
    outcome = project.run(THE_PASSWORD=PASSWORD)
    assert outcome.code == 0, outcome.text
    assert box.sh("stat -c '%U %a' /srv/roots; cat /srv/roots") == "root 600\nmine\n"
    box.sh("rm /srv/roots")
    outcome = project.run(THE_PASSWORD="not it")
    assert outcome.code == 1
    assert "the password is wrong; check `become.password`" in " ".join(outcome.text.split())
    assert not (box.root / "srv/roots").exists()
