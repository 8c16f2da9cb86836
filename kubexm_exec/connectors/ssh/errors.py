"""Messages for connection errors that say what to do."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from kubexm_exec.connectors.ssh.hostkeys import host_pattern
from kubexm_exec.connectors.ssh.keyfiles import problem, problems
from kubexm_exec.connectors.ssh.options import SshOptions
from kubexm_exec.connectors.ssh.proxy import ProxyFailed
from kubexm_exec.model.errors import ConnectorError

SILENT: Final = "no answer in time; is it up, and is there a firewall or another port?"


class NotBegun(ConnectorError):
    """The connection dropped before the host was asked for anything, so that it can be asked again."""


def may_pass(error: Exception) -> bool:
    """Whether to retry."""
    if is_refused_login(error):
        return False
    said = str(error).lower()
    return (
        (not isinstance(error, OSError) and not said)
        or any(word in said for word in ("banner", "eof", "reset", "closed", "negotiation", "no existing session"))
        or isinstance(error, EOFError | ConnectionError)
    )


def where(options: SshOptions) -> str:
    """The host and its address."""
    address = host_pattern(options.address, options.port or 22)
    return (
        f"host {options.name} cannot be reached at {address}"
        if address != options.name
        else f"host {options.name} cannot be reached"
    )


def reason(error: Exception) -> str:
    """Why a connection failed, and what to check."""
    import paramiko

    if isinstance(error, ProxyFailed):
        return str(error)
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        causes = {getattr(cause, "strerror", None) or str(cause) for cause in error.errors.values()}
        return f"{' and '.join(sorted(causes)).lower()}; does sshd run there, and is the port right?"
    if isinstance(error, socket.gaierror):
        return f"its name is not known ({error.strerror}); look at `address`, DNS and ~/.ssh/config"
    if isinstance(error, TimeoutError) or "timed out" in str(error).lower():
        return SILENT
    if isinstance(error, paramiko.ChannelException):
        return f"its gateway cannot get there ({error.text.lower()})"
    if is_refused_login(error):
        return f"it refused the login ({text(error)})"
    if "banner" in str(error).lower() or isinstance(error, EOFError | ConnectionError):
        return f"it closes the connection ({text(error)}); is it an SSH server? Do too many log in (MaxStartups)?"
    return text(error)


def is_refused_login(error: Exception) -> bool:
    """Whether the connection was established and the login refused."""
    import paramiko

    return isinstance(error, paramiko.AuthenticationException) or "No authentication methods" in str(error)


def login_refused(options: SshOptions, error: Exception, configured: Sequence[str]) -> str:
    """The message for a refused login: user, methods tried, and configured keys that could not be used."""
    return _refused(options, error) + not_tried(configured, options)


def not_tried(configured: Sequence[str], options: SshOptions | None = None) -> str:
    """Which of the SSH configuration's keys could not be tried, and why; ``options`` are those of the host itself."""
    return "".join(f". Not tried: {fault}" for fault in problems(configured, options))


def _refused(options: SshOptions, error: Exception) -> str:
    import paramiko

    who = f" as {options.user}" if options.user else ""
    fault = problem(options)
    if fault is not None:
        too = ". The host refused the password too: look at `password`" if options.password is not None else ""
        return f"host {options.name}: no login{who}: {fault}{too}"
    head = f"host {options.name} refused the login{who} ({text(error)})"
    if isinstance(error, paramiko.PasswordRequiredException):
        return f"{head}; give the key's `passphrase: env:NAME`, or add the key to the agent with `ssh-add`"
    tried, look = _tried(options)
    return f"{head}; tried: {tried}. Look at {look}"


def _tried(options: SshOptions) -> tuple[str, str]:
    """The methods that were tried, and what to check."""
    key = options.private_key_path or ("the key of `privateKey`" if options.private_key is not None else None)
    if options.password is None:
        return key or "keys of the agent and of ~/.ssh", "`user`, `privateKeyPath` and the host's authorized_keys"
    if key is None:
        return "password", "`user` and `password`, and whether the host takes passwords (PasswordAuthentication)"
    return f"{key} and password", "`user`, `privateKeyPath`, `password` and the host's authorized_keys"


def text(error: BaseException) -> str:
    """The error in its own words."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().rstrip(".")
