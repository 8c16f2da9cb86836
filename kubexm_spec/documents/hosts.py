"""Expands the hosts of a document: each name of a range with its own address."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.hostnames import HOST_RULE, is_host_name
from kubexm_spec.models import HostSpec
from kubexm_spec.ranges import expand_pair, expand_range, is_range
from kubexm_spec.yaml.source import Place


class ExpandedHost(Struct, frozen=True):
    """One host of an entry, with the entry's number."""

    spec: HostSpec
    index: int
    place: Place
    address: str
    internal_address: str


def expand_hosts(
    hosts: Sequence[HostSpec], place: Place, diagnostics: Diagnostics
) -> tuple[dict[str, ExpandedHost], bool]:
    """The hosts by name, and whether all names are known: a range that is wrong stands for unknown ones."""
    expanded: dict[str, ExpandedHost] = {}
    whole = True
    for index, spec in enumerate(hosts):
        entry = place.child(index)
        where = entry.child("name")
        try:
            names = expand_range(spec.name)
            addresses = _addresses(spec.name, names, spec.address)
            internal = _addresses(spec.name, names, spec.internal_address)
        except ValueError as error:
            diagnostics.error("bad-range", f'host "{spec.name}": {error}', where)
            whole = False
            continue
        for name, address, inner in zip(names, addresses, internal, strict=True):
            if name in expanded:
                hint = f"also at {expanded[name].place.child('name').file_line}"
                diagnostics.error("duplicate-host", f'host "{name}" is defined twice', where, hint=hint)
            elif not is_host_name(name):
                summary = f"{quoted(name)} cannot be the name of a host"
                diagnostics.error("bad-host-name", summary, where, hint=f"allowed are {HOST_RULE}")
            else:
                expanded[name] = ExpandedHost(spec, index, entry, address, inner)
    return expanded, whole


def quoted(text: str) -> str:
    """For a message: with escapes for what a terminal would obey."""
    return f'"{text}"' if text.isprintable() else repr(text)


def _addresses(name: str, names: list[str], address: str | None) -> list[str]:
    if address is None or not is_range(address):
        return [address or ""] * len(names)
    # Of two addresses with a comma between them (IPv4 and IPv6) each is a range of its own.
    each = [[expanded for _, expanded in expand_pair(name, part)] for part in address.split(",")]
    return [",".join(parts) for parts in zip(*each, strict=True)]
