"""Gateways of a connection, in the notation of `proxyJump` and ~/.ssh/config."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator

from kubexm_spec.hostnames import is_address, is_user

_NONE: Final = "none"
_HIGHEST_PORT: Final = 65535
_EXAMPLE: Final = "write for example user@bastion:22, or several with commas between them, or none"


def parse_hops(text: str) -> tuple[str, ...]:
    """The gateways in ``user@bastion:22,inner``, in that order; none for "none". Raises ValueError."""
    if text.strip().lower() == _NONE:
        return ()
    hops = tuple(part.strip() for part in text.split(","))
    for hop in hops:
        _check(hop, text)
    return hops


def is_port(text: str) -> bool:
    """Whether it is the number of a port."""
    return text.isascii() and text.isdecimal() and 1 <= int(text) <= _HIGHEST_PORT


def _check(hop: str, text: str) -> None:
    place = hop.rpartition("@")[2]
    # Of an address of IPv6 nobody can tell where it ends and its port begins.
    host, colon, port = (place, "", "") if place.count(":") > 1 else place.partition(":")
    if not host:
        raise ValueError(f'"{text}" lacks the name of a gateway; {_EXAMPLE}')
    user, at, _ = hop.rpartition("@")
    if "/" in hop or not is_address(host) or (at and not is_user(user)):
        raise ValueError(f'"{hop}" is not a gateway; {_EXAMPLE}')
    if colon and not is_port(port):
        raise ValueError(f'"{hop}" has the port "{port}", and a port is a number from 1 to {_HIGHEST_PORT}; {_EXAMPLE}')


def _checked(text: str) -> str:
    return ",".join(parse_hops(text)) or _NONE


Hops = Annotated[str, AfterValidator(_checked)]
"""Names of gateways, without spaces."""
