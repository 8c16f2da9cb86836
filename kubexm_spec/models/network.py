"""Names, addresses, subnets and ports of networks, as documents write them."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


def is_dns_label(text: str) -> bool:
    """Whether it is a name as Kubernetes takes it: at most 63 of lower case letters, digits and ``-``."""
    return re.fullmatch(_LABEL, text) is not None


def is_node_name(text: str) -> bool:
    """Whether a node can be called so: labels of the DNS with dots between them."""
    return len(text) <= 253 and all(map(is_dns_label, text.split(".")))


def _dns_name(text: str) -> str:
    if not is_node_name(text):
        raise ValueError("should be a name of the DNS in lower case, such as api.example.org")
    return text


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("should be an IP address") from None


def _cidr(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        pass
    try:
        better = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError("should be a subnet such as 10.244.0.0/16") from None
    raise ValueError(f"has an address inside of the subnet in place of its first one; write {better}")


def _port_range(value: Any) -> Any:
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError("should be a range of ports such as 30000-32767")
    return value


DnsName = Annotated[str, AfterValidator(_dns_name)]
"""A name of the DNS."""
Ip = Annotated[str, AfterValidator(_ip)]
"""An address of IPv4 or IPv6."""
Cidr = Annotated[str, AfterValidator(_cidr)]
"""A subnet."""
Port = Annotated[int, Field(ge=1, le=65535)]
"""The number of a port."""
PortRange = Annotated[str, BeforeValidator(_port_range, json_schema_input_type=str)]
"""Two ports with ``-`` between them."""
