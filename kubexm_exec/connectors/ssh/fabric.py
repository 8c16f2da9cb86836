"""fabric's connections without what made them cost more than logging in does, and keys that are read once."""

from __future__ import annotations

import importlib
import struct
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from kubexm_exec.control import once

if TYPE_CHECKING:
    import paramiko

CERTIFICATE: Final = "-cert.pub"
"""How the name of a key's certificate ends, after that of the key."""
_MOCK: Final = "unittest.mock"
_UNUSED: Final = (_MOCK, "invoke.vendor.yaml")


@once
def load_libraries() -> None:
    """Load paramiko and fabric.

    invoke loads ``unittest.mock`` with them, and that asyncio, for what it has for tests, and YAML for files of its own
    that are not read here: a third of the time of it all. Each is loaded when somebody asks for it.
    """
    later = [_Later(name) for name in _UNUSED if name not in sys.modules]
    for module in later:
        sys.modules[module.__name__] = module
    try:
        import fabric  # noqa: F401
    finally:
        for module in later:
            module.leave()


class _Later(ModuleType):
    """In the place of a module until somebody needs that."""

    def leave(self) -> None:
        """Let the next one who imports it have the real one."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        """What is in the real one; a step that runs meanwhile may want it too."""
        if name.startswith("__"):
            raise AttributeError(name)
        if (self.__name__, name) == (_MOCK, "Mock"):
            return _mock
        self.leave()
        return getattr(importlib.import_module(self.__name__), name)


def _mock(*arguments: Any, **named: Any) -> Any:
    """What invoke takes at once, and calls when one of its mock contexts is made."""
    from unittest.mock import Mock

    return Mock(*arguments, **named)


def make_connection(host: str, ssh_config: Any, **arguments: Any) -> Any:
    """A fabric Connection that is not open yet."""
    # What is given here is not looked up in the Config, and it is the only thing that fabric would write to there.
    known = {"look_for_keys": False}
    config = _config(ssh_config)
    connection = _connection_class()(
        host,
        config=config,
        gateway=False,
        forward_agent=False,
        connect_timeout=1,
        connect_kwargs=known,
        inline_ssh_env=False,
        **arguments,
    )
    connection.authentication = config.authentication
    return connection


@once
def _connection_class() -> Any:
    from fabric import Connection

    class PlainConnection(Connection):  # type: ignore[misc]
        """One whose attributes are attributes: invoke looks through all there are whenever one is set."""

        __setattr__ = object.__setattr__

    return PlainConnection


@once
def _config(ssh_config: Any) -> Any:
    """Only read from, so that all threads may share it, and what each connection reads is looked up once."""
    from fabric import Config

    config = Config(ssh_config=ssh_config, lazy=True)
    for name in ("user", "port", "connect_kwargs"):
        object.__setattr__(config, name, getattr(config, name))
    strategy = SimpleNamespace(strategy_class=config.authentication.strategy_class)
    object.__setattr__(config, "authentication", strategy)
    return config


def private_key(path: str, passphrase: str | None) -> paramiko.PKey | None:
    """The key in a file, with its certificate if there is one; None if it cannot be used.

    Without this each host would read the file, three times over, and if there is a passphrase, work it out each time.
    """
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
