"""The SSH options of a host in the inventory, read once and validated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.connectors.ssh.hostkeys import Policy
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.graph import GraphHost
from kubexm_spec.hostnames import ADDRESS_RULE, USER_RULE, is_address, is_user

CONNECT_TIMEOUT: Final = 30.0
Method = Literal["sudo", "su", "doas"]


class Become(Struct, frozen=True):
    """The user that commands run as, and how to become that user."""

    user: str = "root"
    method: Method = "sudo"
    password: str | None = None
    """The value itself, not a reference."""
    pty: bool = False
    """Whether it wants a terminal."""

    @property
    def needs_pty(self) -> bool:
        """Whether it works only on a terminal: doas asks for passwords nowhere else."""
        return self.pty or (self.method == "doas" and self.password is not None)


class Alive(Struct, frozen=True):
    """Keepalive: the interval of requests to a silent host, and how many may go unanswered."""

    interval: float = 15.0
    """Seconds; 0: it is never asked."""
    most: int = 3


class SshOptions(Struct, frozen=True):
    """How one host is reached; None means that ~/.ssh/config or the usual default decides."""

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    private_key_path: str | None = None
    private_key: str | None = None
    """The text of the key itself."""
    passphrase: str | None = None
    password: str | None = None
    host_keys: Policy = "acceptNew"
    known_hosts: Path | None = None
    proxy_jump: str | None = None
    proxy_command: str | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    server_alive_interval: float | None = None
    server_alive_count_max: int | None = None
    become: Become | None = None
    """The user that commands run as, if not the login user."""
    becoming: Callable[[], Become] = Become
    """How to become another user; a password is resolved only then."""
    folder: str = ""
    """Where relative names begin; the working directory if it is empty."""

    @property
    def has_key(self) -> bool:
        """Whether the inventory names a key."""
        return self.private_key_path is not None or self.private_key is not None

    def as_user(self, user: bool | str) -> Become | None:
        """How to become a user: True is root, False the login user."""
        if user is False:
            return None
        return replace(self.becoming(), user="root" if user is True else user)

    def alive(self, config: Mapping[str, Any]) -> Alive:
        """The keepalive of the inventory, of ~/.ssh/config, or the default."""
        usual = Alive()
        return Alive(
            _first(self.server_alive_interval, _number(config.get("serveraliveinterval")), usual.interval),
            round(_first(self.server_alive_count_max, _number(config.get("serveralivecountmax")), usual.most)),
        )


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _number(value: Any) -> float | None:
    """A number of ~/.ssh/config; what ssh itself would refuse counts for nothing."""
    return float(value) if isinstance(value, str) and value.isdecimal() else None


def read_options(host: GraphHost, secrets: Callable[[str], str], folder: str = "") -> SshOptions:
    """The options of a host, with its secrets resolved."""
    given = host.options

    def secret(key: str) -> str | None:
        return None if given.get(key) is None else secrets(str(given[key]))

    policy = given.get("hostKeys", "acceptNew")
    if policy not in ("acceptNew", "strict", "off"):
        raise ConnectorError(f"host {host.name}: hostKeys is {policy!r}; it can be acceptNew, strict or off")

    def path(key: str) -> Path | None:
        return None if given.get(key) is None else Path(folder, Path(str(given[key])).expanduser())

    key_path = path("privateKeyPath")
    # Compiling has looked at them; a graph can come from elsewhere.
    check_address(host.address or host.name)
    if host.user is not None and not is_user(host.user):
        raise ConnectorError(f"host {host.name}: {host.user!r} cannot be the name of a user; it can have {USER_RULE}")
    becoming = functools.cache(lambda: read_become(given.get("become"), host.name, secrets))
    return SshOptions(
        name=host.name,
        address=host.address or host.name,
        port=host.port,
        user=host.user,
        private_key_path=None if key_path is None else str(key_path),
        private_key=secret("privateKey"),
        passphrase=secret("passphrase"),
        password=secret("password"),
        host_keys=policy,
        known_hosts=path("knownHosts"),
        proxy_jump=given.get("proxyJump"),
        proxy_command=given.get("proxyCommand"),
        connect_timeout=float(given.get("connectTimeout") or CONNECT_TIMEOUT),
        server_alive_interval=given.get("serverAliveInterval"),
        server_alive_count_max=given.get("serverAliveCountMax"),
        become=becoming() if host.becomes else None,
        becoming=becoming,
        folder=folder,
    )


def check_address(address: str) -> None:
    """Raise ConnectorError if an address cannot be one: command lines, log lines and known_hosts get it as it is."""
    if not is_address(address):
        raise ConnectorError(f"{address!r} is not an address; write {ADDRESS_RULE}")


def read_become(given: Any, host: str, secrets: Callable[[str], str]) -> Become:
    """How to become another user on a host, as the inventory says."""
    if not given or given is True:
        return Become()
    if isinstance(given, str):
        return Become(given)
    method = given.get("method") or "sudo"
    if method not in ("sudo", "su", "doas"):
        raise ConnectorError(f"host {host}: become by {method!r} is not known; it can be sudo, su or doas")
    reference = given.get("password")
    password = None if reference is None else secrets(str(reference))
    return Become(given.get("user") or "root", cast(Method, method), password, bool(given.get("pty")))
