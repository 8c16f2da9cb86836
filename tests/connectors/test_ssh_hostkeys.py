"""Host keys: first contacts are recorded, changed keys refused, every hop checked; on real servers and files."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.connectors.ssh.connector import SshConnector
from kubexm_exec.connectors.ssh.hostkeys import HostKeyRefused, KnownHosts, shared
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import ConnectorError
from tests.lab.sshd import MISSING, SSHD, SshHost, ssh_host

needs_sshd = pytest.mark.skipif(SSHD is None, reason=MISSING)
KEY = base64.b64encode(b"one key").decode()
OTHER = base64.b64encode(b"another key").decode()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


@pytest.fixture
def box(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "box") as host:
        yield host


def hello(host: SshHost, **options: Any) -> str:
    """What a new connection to the host brings."""
    connector = SshConnector(host.host(**options), lambda reference: reference)
    try:
        connector.open(Deadline.after(30))
        return connector.run(Command(argv=("echo", "hello")), deadline=Deadline.after(30), cancel=Cancel()).out
    finally:
        connector.close()


@needs_sshd
def test_the_first_contact_is_recorded_in_a_file_that_only_we_can_read(box: SshHost) -> None:
    assert hello(box) == "hello\n"
    kind, data = (box.folder / "host.pub").read_text().split()[:2]
    assert box.known_hosts.read_text() == f"[127.0.0.1]:{box.port} {kind} {data}\n"
    assert box.known_hosts.stat().st_mode & 0o777 == 0o600
    assert hello(box) == "hello\n"
    assert len(box.known_hosts.read_text().splitlines()) == 1


@needs_sshd
def test_a_changed_key_is_refused_with_the_line_that_knows_another_and_what_to_do(box: SshHost) -> None:
    hello(box)
    before = box.known_hosts.read_text()
    box.stop()
    box.new_host_key()
    box.start()
    for policy in ("acceptNew", "strict"):
        with pytest.raises(ConnectorError) as caught:
            hello(box, hostKeys=policy)
        text = str(caught.value)
        assert "CHANGED" in text
        assert f"{box.known_hosts}:1 knows ssh-ed25519 SHA256:" in text
        assert f"ssh-keygen -R '[127.0.0.1]:{box.port}' -f {box.known_hosts}" in text
    assert box.known_hosts.read_text() == before
    assert hello(box, hostKeys="off") == "hello\n"


@needs_sshd
def test_a_key_of_another_kind_in_place_of_the_known_one_is_refused(box: SshHost) -> None:
    hello(box)
    box.stop()
    box.new_host_key("ecdsa")
    box.start()
    with pytest.raises(ConnectorError, match="CHANGED"):
        hello(box)


@needs_sshd
def test_a_dropped_connection_is_not_reopened_to_a_host_with_another_key(box: SshHost) -> None:
    connector = SshConnector(box.host(), lambda reference: reference)
    connector.open(Deadline.after(30))
    box.stop()
    box.new_host_key()
    box.start()
    with pytest.raises(ConnectorError, match=r"CHANGED|unknown"):
        connector.run(Command(argv=("true",)), deadline=Deadline.after(30), cancel=Cancel())
    with pytest.raises(ConnectorError, match="CHANGED"):
        connector.run(Command(argv=("true",)), deadline=Deadline.after(30), cancel=Cancel())
    connector.close()


@needs_sshd
def test_strict_refuses_a_host_that_is_not_known_and_records_nothing(box: SshHost) -> None:
    with pytest.raises(ConnectorError, match=r"not known .*hostKeys: acceptNew"):
        hello(box, hostKeys="strict")
    assert not box.known_hosts.exists()
    hello(box)
    assert hello(box, hostKeys="strict") == "hello\n"


@needs_sshd
def test_every_hop_is_checked(box: SshHost, tmp_path: Path) -> None:
    with ssh_host(tmp_path / "bastion", "127.0.0.2", settings=("AllowTcpForwarding yes",)) as bastion:
        bastion.authorized.write_text((box.folder / "id.pub").read_text())
        (tmp_path / ".ssh").mkdir(mode=0o700)
        (tmp_path / ".ssh" / "config").write_text(f"Host 127.0.0.2\n  IdentityFile {box.key}\n")
        jump = f"{box.user}@127.0.0.2:{bastion.port}"
        assert hello(box, proxyJump=jump) == "hello\n"
        assert len(box.known_hosts.read_text().splitlines()) == 2
        bastion.stop()
        bastion.new_host_key()
        bastion.start()
        with pytest.raises(ConnectorError, match=rf"\[127.0.0.2\]:{bastion.port} has CHANGED"):
            hello(box, proxyJump=jump)


@needs_sshd
def test_a_file_that_cannot_be_written_is_named(box: SshHost, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match=r"cannot be recorded in .*file/known_hosts.*knownHosts"):
        hello(box, knownHosts=str(tmp_path / "file" / "known_hosts"))


def test_many_first_contacts_at_once_leave_one_whole_line_each(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    # Two objects stand for two programs.
    files = [KnownHosts(path), KnownHosts(path)]

    def record(number: int) -> None:
        files[number % 2].check(f"host{number // 2}", "ssh-ed25519", KEY, "acceptNew", host="h")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(80)))
    assert sorted(path.read_text().splitlines()) == sorted(f"host{n} ssh-ed25519 {KEY}" for n in range(40))


def test_names_are_found_plain_hashed_and_by_pattern(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, b"secret.example", hashlib.sha1).digest()
    hashed = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    path.write_text(
        f"# comment\n\nweb1,10.0.0.1 ssh-ed25519 {KEY} somebody\n{hashed} ssh-rsa {KEY}\n"
        f"*.lab,!bad.lab ssh-ed25519 {KEY}\n[*.lab]:2222 ssh-ed25519 {KEY}\n"
        f"@cert-authority * ssh-ed25519 {OTHER}\nhalf a\n"
        f"@revoked gone ssh-ed25519 {KEY}"
    )
    known = KnownHosts(path)
    for name in ("web1", "WEB1", "10.0.0.1", "secret.example", "a.lab", "[a.lab]:2222"):
        known.check(name, "ssh-ed25519", KEY, "strict", host="h")
    for name in ("web2", "bad.lab", "[a.lab]:22"):
        with pytest.raises(HostKeyRefused, match="not known"):
            known.check(name, "ssh-ed25519", KEY, "strict", host="h")
    with pytest.raises(HostKeyRefused, match=r"revoked in .*known_hosts:9"):
        known.check("gone", "ssh-ed25519", KEY, "acceptNew", host="h")
    with pytest.raises(HostKeyRefused, match=r"known_hosts:4 knows ssh-rsa"):
        known.check("secret.example", "ssh-rsa", OTHER, "acceptNew", host="h")


def test_a_last_line_without_end_is_not_continued_and_other_programs_lines_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"a ssh-ed25519 {KEY}")
    known = KnownHosts(path)
    known.check("b", "ssh-ed25519", KEY, "acceptNew", host="h")
    assert path.read_text() == f"a ssh-ed25519 {KEY}\nb ssh-ed25519 {KEY}\n"
    path.write_text(f"c ssh-ed25519 {OTHER}\n")
    with pytest.raises(HostKeyRefused, match="CHANGED"):
        known.check("c", "ssh-ed25519", KEY, "acceptNew", host="h")


def test_a_key_that_somebody_took_out_of_the_file_meanwhile_no_longer_counts(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    old, new = KEY, OTHER
    path.write_text(f"web ssh-ed25519 {old}\n")
    known = KnownHosts(path)
    with pytest.raises(HostKeyRefused, match="has CHANGED"):
        known.check("web", "ssh-ed25519", new, "acceptNew", host="web")
    path.unlink()
    known.check("web", "ssh-ed25519", new, "acceptNew", host="web")
    assert path.read_text() == f"web ssh-ed25519 {new}\n"


def test_all_hosts_that_ask_at_once_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"h{number} ssh-ed25519 {KEY}\n" for number in range(2000)))
    gate = threading.Barrier(20)

    def ask(_: int) -> int:
        gate.wait()
        return id(shared(path))

    with ThreadPoolExecutor(20) as pool:
        assert len(set(pool.map(ask, range(20)))) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_key_is_recorded_through_no_link_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "known_hosts").symlink_to(tmp_path / "target")
    os.chown(tmp_path / "shared" / "known_hosts", 65534, 65534, follow_symlinks=False)
    known = KnownHosts(tmp_path / "shared" / "known_hosts")
    with pytest.raises(HostKeyRefused, match="in a folder that everybody may write"):
        known.check("web1", "ssh-ed25519", KEY, "acceptNew", host="web1")
    assert not (tmp_path / "target").exists()
