"""The way to a host: which others are gone through, and the program that makes the first connection, if any."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.ssh.config import bare, expanded, ssh_config
from kubexm_exec.connectors.ssh.options import SshOptions
from kubexm_exec.model.errors import ConnectorError
from kubexm_spec.models.hops import parse_hops

_MOST_HOPS: Final = 8


class Route(Struct, frozen=True):
    """Hops in the order they are gone through; the command connects to the first of them, or to the host itself."""

    hops: tuple[str, ...] = ()
    command: str | None = None


def route_to(options: SshOptions) -> Route:
    """The way that the inventory says, or else ~/.ssh/config."""
    return _route(options, options.address, options.proxy_jump, options.proxy_command, depth=0)


def _route(options: SshOptions, host: str, jump: str | None, command: str | None, depth: int) -> Route:
    if depth > _MOST_HOPS:
        raise ConnectorError(f"host {options.name}: ProxyJump goes round in circles at {host}")
    found = ssh_config().lookup(bare(host))
    setting = "look at `proxyJump` in the inventory"
    if jump is None and command is None:
        # As in ssh: whichever was written first would win, but one entry seldom has both.
        jump, command = found.get("proxyjump"), found.get("proxycommand")
        command = None if jump is not None else command
        setting = f"look at what ~/.ssh/config and /etc/ssh/ssh_config say as ProxyJump for {bare(host)}"
    elif command is not None:
        command = expanded(command, host, options, found)
    if command is not None and command.lower() != "none":
        return Route(command=command)
    try:
        hops = () if jump is None else parse_hops(jump)
    except ValueError as error:
        raise ConnectorError(f"host {options.name}: {error}; {setting}") from error
    if not hops:
        return Route()
    first, *more = hops
    before = _route(options, first, None, None, depth + 1) if bare(first) != bare(host) else Route()
    return Route((*before.hops, first, *more), before.command)
