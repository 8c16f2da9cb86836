"""The key files that an inventory and ~/.ssh/config name: which can be used, and why others cannot."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubexm_exec.connectors.ssh.options import SshOptions
from kubexm_exec.control import once
from kubexm_exec.model.errors import ConnectorError

if TYPE_CHECKING:
    import paramiko

CERTIFICATE: Final = "-cert.pub"
"""How the name of a key's certificate ends, after that of the key."""
_INVENTORY: Final = "privateKeyPath"
_CONFIG: Final = "IdentityFile"
_LOOK: Final = {_INVENTORY: f"look at `{_INVENTORY}`", _CONFIG: f"look at `{_CONFIG}` in the SSH configuration"}
_PUBLIC: Final = (b"ssh-", b"ecdsa-", b"sk-")
_KNOWN: Final = tuple(b"-----BEGIN %s PRIVATE KEY-----" % kind for kind in (b"OPENSSH", b"RSA", b"EC"))


def check_readable(path: Path, host: str) -> None:
    """Raise ConnectorError if the file, or the key of a certificate, cannot be read."""
    for each in dict.fromkeys((path, Path(_key_of(path)))):
        try:
            os.close(os.open(each, os.O_RDONLY | os.O_CLOEXEC))
            if each.is_dir():
                raise IsADirectoryError(0, "it is a folder")
        except OSError as error:
            raise ConnectorError(
                f"host {host}: the key file {each} cannot be read: {error.strerror}; {_LOOK[_INVENTORY]}"
            ) from error


def usable_key(options: SshOptions) -> paramiko.PKey:
    """The key that the inventory gives as a secret; ConnectorError, which quotes nothing of it, if it is none."""
    text = options.private_key or ""
    key = key_from_text(text, options.passphrase)
    if key is None:
        if "PRIVATE KEY-----" not in text:
            fault = "is not a private key; give all of its lines, from BEGIN to END"
        elif options.passphrase is None:
            fault = "cannot be read; if it has a passphrase, give it as `passphrase: env:NAME`"
        else:
            fault = "cannot be opened with the passphrase that is given; look at `passphrase`"
        raise ConnectorError(f"host {options.name}: the secret behind `privateKey` {fault}")
    return key


def problem(options: SshOptions) -> str | None:
    """What is wrong with the key file of the inventory, or None if it can be used or there is none."""
    if options.private_key_path is None:
        return None
    path = Path(options.private_key_path).expanduser()
    if private_key(str(path), options.passphrase or options.password) is not None:
        return None
    return _problem(_key_of(path), options.passphrase, _INVENTORY)


def problems(paths: Iterable[str], options: SshOptions | None) -> list[str]:
    """Problems of key files in the SSH configuration; ``options`` are those of the host, not of a gateway."""
    passphrase = None if options is None else options.passphrase
    opener = passphrase if options is None else passphrase or options.password
    unusable = dict.fromkeys(_key_of(Path(path)) for path in paths if private_key(path, opener) is None)
    return [_problem(name, passphrase, _CONFIG) for name in unusable]


def _problem(name: str, passphrase: str | None, by: str) -> str:
    try:
        content = Path(name).read_bytes().strip()
    except OSError as error:
        return f"the key file {name} cannot be read: {error.strerror}; {_LOOK[by]}"
    return f"the key file {name} {_fault(name, content, passphrase, by)}"


def _key_of(path: Path) -> str:
    return str(path).removesuffix(CERTIFICATE)


def _fault(name: str, content: bytes, passphrase: str | None, by: str) -> str:
    look = _LOOK[by]
    if not content:
        return f"is empty; {look}"
    if content.startswith(_PUBLIC):
        return f"holds a public key; name the private one as `{by}`, most often {name.removesuffix('.pub')}"
    if not content.startswith(_KNOWN):
        if b"PRIVATE KEY-----" in content or content.startswith(b"PuTTY"):
            return f"is of a kind that is not supported; `ssh-keygen -p -f {name}` may write it anew, or {look}"
        return f"is not a private key; {look}"
    if not _is_locked(name):
        return f"is damaged, or its certificate {name}{CERTIFICATE} is not for this key; {look}"
    if passphrase is None:
        return "has a passphrase; give it as `passphrase: env:NAME`, or add the key to the agent with `ssh-add`"
    return "cannot be opened with the passphrase that is given; look at `passphrase`"


def _is_locked(name: str) -> bool:
    import paramiko

    for kind in (paramiko.Ed25519Key, paramiko.RSAKey, paramiko.ECDSAKey):
        try:
            kind.from_private_key_file(name)
        except paramiko.PasswordRequiredException:
            return True
        except (paramiko.SSHException, OSError, ValueError, IndexError, struct.error):
            continue
    return False


def private_key(path: str, passphrase: str | None) -> paramiko.PKey | None:
    """The key in a file with its certificate, read once for all hosts; None if it cannot be used."""
    name = path.removesuffix(CERTIFICATE)
    try:
        found = Path(name).stat()
        certificate = Path(name + CERTIFICATE)
        stamp = (found.st_mtime_ns, found.st_size, certificate.stat().st_mtime_ns if certificate.is_file() else 0)
    except OSError:
        return None
    return _load(name, passphrase, stamp)


@once
def _load(name: str, passphrase: str | None, stamp: tuple[int, int, int]) -> paramiko.PKey | None:
    import paramiko

    for kind in (paramiko.Ed25519Key, paramiko.RSAKey, paramiko.ECDSAKey):
        try:
            key = kind.from_private_key_file(name, passphrase)
            if stamp[2]:
                key.load_certificate(name + CERTIFICATE)
        except (paramiko.SSHException, OSError, ValueError, IndexError, struct.error):  # of one that is cut off
            continue
        return key
    return None


@once
def key_from_text(text: str, passphrase: str | None) -> paramiko.PKey | None:
    """The key in a text; None if it cannot be used. It never touches a disk."""
    import paramiko

    if b"-----BEGIN PRIVATE KEY-----" in (raw := text.encode()) or b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in raw:
        converted = _from_pkcs8(raw, passphrase)
        if converted is None:
            return None
        text, passphrase = converted, None
    for kind in (paramiko.Ed25519Key, paramiko.RSAKey, paramiko.ECDSAKey):
        try:
            return kind.from_private_key(StringIO(text + "\n"), passphrase)
        except (paramiko.SSHException, ValueError, IndexError, struct.error):  # of one that is cut off
            continue
    return None


def _from_pkcs8(raw: bytes, passphrase: str | None) -> str | None:
    """The same key in OpenSSH's form, which paramiko reads."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form

    try:
        key = form.load_pem_private_key(raw, None if passphrase is None else passphrase.encode())
        plain = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return plain.decode("ascii")
