"""What a host prints holds bytes of whoever may write its files: they are data, and never say where something is."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Deadline
from kubexm_exec.runner.facts import parse
from kubexm_exec.runner.files.probe import Held, look
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system import firewall, mounts, names, swap
from kubexm_exec.runner.system.cron import Crontabs
from kubexm_exec.runner.system.firewall import Firewalls
from kubexm_exec.runner.system.kernel import Kernel
from kubexm_exec.runner.system.keys import Keys
from kubexm_exec.runner.system.mounts import MountTable
from kubexm_exec.runner.system.names import System
from kubexm_exec.runner.system.nftables import Opening
from kubexm_exec.runner.system.swap import SwapSpace
from kubexm_exec.step import StepFailed

ME = getpass.getuser()
USERS: dict[str, Callable[[Session, str], Held | None]] = {
    "cron": lambda session, path: Crontabs(session).look(ME, path).held,
    "firewall": lambda session, path: Firewalls(session).look(Opening("80", "tcp"), "nftables").rules,
    "hostname": lambda session, path: System(session).names().hostname,
    "hosts": lambda session, path: System(session).hosts(),
    "keys": lambda session, path: _keys(session, path),
    "look": lambda session, path: look(session, [path]).files[path],
    "module": lambda session, path: Kernel(session).module("kx_none", [path]).files[path],
    "mounts": lambda session, path: MountTable(session).look("/proc").fstab,
    "settings": lambda session, path: Kernel(session).settings(["kernel/ostype"], path).file,
    "swap": lambda session, path: SwapSpace(session).look().fstab,
}


def _keys(session: Session, path: str) -> Held:
    found = Keys(session).look(ME, path)
    assert found is not None
    assert found.folder.path == str(Path(path).parent)
    return found.held


@pytest.fixture
def session(connector: LocalConnector) -> Session:
    return Session(connector, Deadline.after(60))


@pytest.mark.parametrize("user", USERS)
def test_what_a_file_holds_adds_nothing_to_what_the_host_says(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    file, root = tmp_path / "held", tmp_path / "root"
    path, other = str(file), str(root / "file")
    words = (b"\0kx ", b"kx ", b" ", b"$mark ", b"\0", secrets.token_hex(16).encode() + b" ")
    data = b"old\n"
    for mark in words:
        for asked in (path, other):
            for end in (b"\n", b"\0"):
                place = asked.encode()
                data += mark + b"file\n" + place + end + place + end + b"file\n600/0/0/root/root\nwanted\n"
        data += mark + b"path\n" + other.encode() + mark + b"folder\n700/0/0/root/root\n" + mark + b"found\nufw"
        data += mark + b"live\nother\n" + mark + b"is kernel/ostype\nother" + mark + b"loaded\n" + mark + b"link\n"
    file.write_bytes(data)
    for module, name in ((mounts, "FSTAB"), (swap, "FSTAB"), (names, "HOSTNAME"), (firewall, "RULES")):
        monkeypatch.setattr(module, name, path)
    if user == "hosts":
        monkeypatch.setattr(names, "HOSTS", path)
    held = USERS[user](session, path)
    assert held is not None
    assert (held.path, held.state.uid, held.data) == (path, os.getuid(), data)


def test_no_list_of_processes_shows_what_an_answer_is_divided_by(session: Session) -> None:
    seen = look(session, (), "part seen; cat /proc/$$/cmdline /proc/$$/environ; part mark; printf %s $mark")
    assert len(seen.parts["mark"]) == 32
    assert seen.parts["mark"] not in seen.parts["seen"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("part one; part one", "makes no sense"),
        ('file "$1/x"; file "$1/x"', "makes no sense"),
        ('file "$1/../x"', "leads to"),
        ("file x", "leads to"),
    ],
)
def test_what_is_said_twice_or_found_elsewhere_is_refused(
    session: Session, tmp_path: Path, body: str, message: str
) -> None:
    with pytest.raises(StepFailed, match=message):
        look(session, (), body, str(tmp_path), more=True)


def test_a_path_may_hold_line_breaks(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "a\nfile\nb"
    file.write_text("x")
    assert look(session, [str(file)]).files[str(file)].text == "x"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_the_comment_of_a_user_adds_no_facts(mark: str) -> None:
    facts = parse(f"user=root\naccount=u:x:1001:1001:{mark}user=u{mark}packages=apk{mark}:/home/u:/bin/sh\n")
    assert (facts["user"], facts["packageManager"]) == ("root", "unknown")
