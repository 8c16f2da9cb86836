"""Key files that ~/.ssh/config names: those that cannot be used keep no other key from being tried, and are named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost
from tests.lab.sshd import MISSING, SSHD, SshHost, make_key, ssh_host

pytestmark = [pytest.mark.skipif(SSHD is None, reason=MISSING), pytest.mark.usefixtures("home")]
SOON = 60.0
Configure: TypeAlias = Callable[..., None]
LOOK = "look at `IdentityFile` in the SSH configuration"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("box")) as host:
        yield host


@pytest.fixture
def configure(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Makes the SSH configuration, in a home of its own each time: it is read once."""

    def configured(*keys: Path) -> None:
        folder = tmp_path_factory.mktemp("home")
        monkeypatch.setenv("HOME", str(folder))
        (folder / ".ssh").mkdir(mode=0o700)
        lines = ["Host *", *(f"  IdentityFile {key}" for key in keys)]
        (folder / ".ssh" / "config").write_text("\n".join(lines) + "\n")

    return configured


def says(host: GraphHost) -> str:
    """What the host answers; raises ConnectorError."""
    connector = SshConnector(host, lambda reference: os.environ[reference.removeprefix("env:")])
    try:
        connector.open(Deadline.after(SOON))
        return connector.run(Command(argv=("echo", "here")), deadline=Deadline.after(SOON), cancel=Cancel()).out
    finally:
        connector.close()


def refusal(host: GraphHost) -> str:
    with pytest.raises(ConnectorError) as caught:
        says(host)
    return str(caught.value)


def _of(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def _locked(path: Path) -> None:
    make_key(path, passphrase="open sesame")


def _circle(path: Path) -> None:
    path.symlink_to(path)


BROKEN: dict[str, Callable[[Path], object]] = {
    "is empty; " + LOOK: _of(""),
    "is not a private key; " + LOOK: _of("hello\n"),
    "holds a public key; name the private one as `IdentityFile`, most often ": _of("ssh-ed25519 AAAA me\n"),
    "is of a kind that is not supported; ": _of("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
    "is damaged, ": _of("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"),
    "has a passphrase; give it as `passphrase: env:NAME`, or add the key to the agent with `ssh-add`": _locked,
    "cannot be read: Is a directory; " + LOOK: Path.mkdir,
    "cannot be read: Too many levels of symbolic links; " + LOOK: _circle,
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_key_that_cannot_be_used_is_named_and_keeps_no_other_from_being_tried(
    box: SshHost, tmp_path: Path, configure: Configure, words: str
) -> None:
    BROKEN[words](tmp_path / "broken")
    host = box.host(privateKeyPath=None)
    configure(tmp_path / "broken", box.key)
    assert says(host) == "here\n"
    configure(tmp_path / "broken", make_key(tmp_path / "stranger"))
    said = refusal(host)
    assert said.startswith(f"host box refused the login as {box.user} (Authentication failed")
    assert f". Not tried: the key file {tmp_path}/broken {words}" in said
    assert said.count("Not tried: ") == 1
    configure(tmp_path / "broken")
    assert f". Not tried: the key file {tmp_path}/broken {words}" in refusal(host)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_a_key_that_may_not_be_read_is_named(box: SshHost, tmp_path: Path, configure: Configure) -> None:
    make_key(tmp_path / "closed").chmod(0)
    configure(tmp_path / "closed")
    assert f"the key file {tmp_path}/closed cannot be read: Permission denied; {LOOK}" in refusal(
        box.host(privateKeyPath=None)
    )


def test_all_keys_that_cannot_be_used_are_named_beside_that_of_the_inventory(
    box: SshHost, tmp_path: Path, configure: Configure
) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text("hello\n")
    configure(tmp_path / "one", tmp_path / "not-there", tmp_path / "two")
    said = refusal(box.host(privateKeyPath=str(tmp_path / "three")))
    assert f"no login as {box.user}: the key file {tmp_path}/three is not a private key; look at `priv" in said
    assert said.endswith(
        f". Not tried: the key file {tmp_path}/one is not a private key; {LOOK}"
        f". Not tried: the key file {tmp_path}/two is not a private key; {LOOK}"
    )
    assert says(box.host()) == "here\n"


def test_the_agent_is_asked_although_a_key_cannot_be_used(
    box: SshHost, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").write_text("hello\n")
    configure(tmp_path / "broken")
    sock = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(sock)], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        while subprocess.run(["ssh-add", "-q", str(box.key)], stderr=subprocess.DEVNULL, check=False).returncode == 2:
            assert agent.poll() is None
        assert says(box.host(privateKeyPath=None)) == "here\n"
    finally:
        agent.kill()
        agent.wait()


def test_the_passphrase_of_the_inventory_opens_a_key_of_the_configuration(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    configure(key)
    with ssh_host(tmp_path / "own") as host:
        host.authorized.write_text((tmp_path / "locked.pub").read_text())
        monkeypatch.setenv("KX_PASS", "open sesame")
        assert says(host.host(privateKeyPath=None, passphrase="env:KX_PASS")) == "here\n"
        monkeypatch.setenv("KX_PASS", "wrong")
        said = refusal(host.host(privateKeyPath=None, passphrase="env:KX_PASS"))
    assert f"the key file {key} cannot be opened with the passphrase that is given; look at `passphrase`" in said


def test_a_gateway_that_refuses_the_login_names_the_keys_that_could_not_be_used(
    box: SshHost, tmp_path: Path, configure: Configure
) -> None:
    (tmp_path / "broken").write_text("hello\n")
    configure(tmp_path / "broken")
    way = f"{box.user}@{box.address}:{box.port}"
    said = refusal(replace(box.host(proxyJump=way), port=9))
    assert said.startswith(f"host box: its gateway {way} cannot be reached: it refused the login ")
    assert said.endswith(f". Not tried: the key file {tmp_path}/broken is not a private key; {LOOK}")
