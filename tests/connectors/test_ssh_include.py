"""`Include` in SSH configuration files: understood as ssh itself does."""

from __future__ import annotations

import getpass
import subprocess
from io import StringIO
from pathlib import Path

import paramiko
import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.config import config_text
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost
from tests.lab.sshd import MISSING, SSHD, ssh_host

pytestmark = pytest.mark.skipif(SSHD is None, reason=MISSING)
SOON = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ~/.ssh of somebody without an agent."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path / ".ssh"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text.replace("HERE", str(folder)))
        (folder / name).chmod(0o600)
    return folder / "config"


def test_a_host_is_reached_by_an_alias_from_an_included_file(folder: Path, tmp_path: Path) -> None:
    with ssh_host(tmp_path / "box") as box:
        (folder / "config.d").mkdir()
        write(folder, config="Include config.d/*.conf ~/.ssh/none not-there\nHost *\n  HostKeyAlias the-box\n")
        alias = f"Host shop\n  HostName 127.0.0.1\n  Port {box.port}\n  User {box.user}\n  IdentityFile {box.key}\n"
        write(folder / "config.d", **{"one.conf": alias, ".two.conf": "nonsense", "three": "nonsense"})
        connector = SshConnector(GraphHost("web", address="shop"), str)
        try:
            command = Command(argv=("echo", "here"))
            assert connector.run(command, deadline=Deadline.after(SOON), cancel=Cancel()).out == "here\n"
        finally:
            connector.close()
        assert (folder / "known_hosts").read_text().startswith("the-box ")


@pytest.mark.parametrize(
    "files",
    [
        {"config": "Include HERE/a\nUser top\n", "a": "Host web\n  User web\n  Port 1\n"},
        {"config": "Host w*\n  Include HERE/a\n  User w\nHost db\n  User db\n", "a": "Port 5\nHost web\n  Port 6\n"},
        {"config": "Host w*\n  Include HERE/a\nHost *\n  User any\n", "a": "Host db\n  User wrong\n  Port 9\n"},
        {"config": "Host w* !wiki\n  Include HERE/a\n", "a": "Match host web,wiki\n  User m\nMatch all\n  Port 7\n"},
        {"config": "Match originalhost web\n  Include HERE/a HERE/b\n", "a": "Host *\n  User a\n", "b": "Port 8\n"},
        {"config": "Include HERE/a\n", "a": "Host w*\n  Include HERE/b\nPort 3\n", "b": "Host web\n  User deep\n"},
        {"config": 'Include "HERE/[ab]"\n', "b": "User b\n", "a": "Host db\n  User a\n"},
        {"config": "include=HERE/a\nHost all\n  Include HERE/b\n", "a": "Match host all\n  User a\n", "b": "Port 2\n"},
    ],
)
def test_what_counts_is_what_ssh_says_itself(folder: Path, files: dict[str, str]) -> None:
    path = write(folder, **files)
    config = paramiko.SSHConfig.from_file(StringIO(config_text(path)))
    nobody = getpass.getuser()
    for host in ("web", "wiki", "db", "all"):
        told = subprocess.run(["ssh", "-G", "-F", str(path), host], capture_output=True, text=True, check=True).stdout
        said = dict(line.split(" ", 1) for line in told.splitlines() if line.startswith(("user ", "port ")))
        ours = {"user": nobody, "port": "22", **config.lookup(host)}
        assert {key: ours[key] for key in said} == said, (host, config_text(path))


def test_files_that_include_each_other_are_an_error_and_not_a_hang(folder: Path) -> None:
    path = write(folder, config="Include HERE/a HERE/a\n", a="Include HERE/config HERE/config\n")
    with pytest.raises(ConnectorError, match="files that include each other"):
        config_text(path)


def test_quotes_that_do_not_end_are_said_with_their_file(folder: Path) -> None:
    path = write(folder, config='Include "HERE/a\n')
    with pytest.raises(ConnectorError, match=r"config: Include .* cannot be read: no closing quotation"):
        config_text(path)


def test_a_file_without_includes_is_kept_as_it_is(folder: Path) -> None:
    text = 'Host a\n  Port 1\n# Include x\nMatch exec "test  x"\n  User me\n'
    assert config_text(write(folder, config=text)) == text
