"""Private keys: read once for all hosts, and read again when the file is another one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubexm_exec.connectors.ssh.keyfiles import key_from_text, private_key
from kubexm_exec.connectors.ssh.link import make_connection
from tests.lab.sshd import make_key


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_key_of_any_kind_is_read_once_for_all_hosts(tmp_path: Path, kind: str) -> None:
    path = str(make_key(tmp_path / "id", kind=kind))
    key = private_key(path, None)
    assert key is not None
    assert key.get_base64() == (tmp_path / "id.pub").read_text().split()[1]
    assert private_key(path, None) is key


def test_a_key_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path = make_key(tmp_path / "id")
    old = private_key(str(path), None)
    make_key(path)
    new = private_key(str(path), None)
    assert old is not None
    assert new is not None
    assert new.get_base64() == (tmp_path / "id.pub").read_text().split()[1] != old.get_base64()


def test_a_wrong_passphrase_gives_no_key_and_the_right_one_does(tmp_path: Path) -> None:
    path = str(make_key(tmp_path / "id", passphrase="right horse"))
    assert private_key(path, None) is None
    assert private_key(path, "wrong horse") is None
    assert private_key(path, "right horse") is not None


def test_what_is_no_key_or_not_there_is_left_to_whoever_reports_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key\n")
    assert private_key(str(tmp_path / "text"), None) is None
    assert private_key(str(tmp_path / "missing"), None) is None


def test_a_certificate_beside_the_key_goes_with_it_whichever_of_the_two_is_named(tmp_path: Path) -> None:
    path, authority = make_key(tmp_path / "id"), make_key(tmp_path / "ca")
    subprocess.run(["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "me", f"{path}.pub"], check=True)
    for name in (str(path), f"{path}-cert.pub"):
        key = private_key(name, None)
        assert key is not None
        assert key.public_blob is not None


def test_a_certificate_that_came_later_is_taken(tmp_path: Path) -> None:
    path, authority = make_key(tmp_path / "id"), make_key(tmp_path / "ca")
    before = private_key(str(path), None)
    subprocess.run(["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", "me", f"{path}.pub"], check=True)
    after = private_key(str(path), None)
    assert before is not None
    assert before.public_blob is None
    assert after is not None
    assert after.public_blob is not None


def test_connections_share_what_is_configured_and_nothing_that_is_set_on_one() -> None:
    import paramiko

    config = paramiko.SSHConfig.from_text(
        "Host box\n  HostName 127.0.0.9\n  Port 2222\n  User deploy\n  IdentityFile /k\n"
    )
    one, other = make_connection("box", config), make_connection("box", config, user="root", port=22)
    one.connect_kwargs = {"password": "x"}
    assert (one.host, one.port, one.user) == ("127.0.0.9", 2222, "deploy")
    assert (other.host, other.port, other.user) == ("127.0.0.9", 22, "root")
    assert "password" not in other.connect_kwargs
    assert "password" not in make_connection("box", config).connect_kwargs


def _written(path: Path, form: str, passphrase: str) -> str:
    """A key in another of the forms that keys come in."""
    if form == "pkcs8":
        return _as_pkcs8(path.read_bytes(), passphrase)
    if form == "pem":
        subprocess.run(
            ["ssh-keygen", "-q", "-p", "-m", "PEM", "-P", passphrase, "-N", passphrase, "-f", path], check=True
        )
    return path.read_text()


def _as_pkcs8(data: bytes, passphrase: str) -> str:
    from cryptography.hazmat.primitives import serialization as form

    secret = passphrase.encode() or None
    locked = form.BestAvailableEncryption(secret) if secret else form.NoEncryption()
    key = form.load_ssh_private_key(data, secret)
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, locked).decode()


@pytest.mark.parametrize("passphrase", ["", "right horse"])
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *((kind, form) for kind in ("ed25519", "rsa", "ecdsa") for form in ("openssh", "pkcs8")),
        ("rsa", "pem"),
        ("ecdsa", "pem"),
    ],
)
def test_a_key_from_a_secret_is_read_in_every_form(tmp_path: Path, kind: str, form: str, passphrase: str) -> None:
    path = make_key(tmp_path / "id", kind=kind, passphrase=passphrase)
    # As providers give it: without its last line end.
    text = _written(path, form, passphrase).removesuffix("\n")
    key = key_from_text(text, passphrase or None)
    assert key is not None
    assert key.get_base64() == (tmp_path / "id.pub").read_text().split()[1]
    if passphrase:
        assert key_from_text(text, None) is None
        assert key_from_text(text, "wrong horse") is None
    assert key_from_text(text[: len(text) // 2], passphrase or None) is None
