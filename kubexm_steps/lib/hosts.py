"""The text of a hosts file: addresses with their names, changed line by line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kubexm_steps.lib.lines import joined, split

_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_LOCAL: Final = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def check_name(name: str) -> str:
    """The name, if a host can have it; ValueError says what is wrong."""
    if len(name) > 253 or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name of a host: letters, digits, `-` and dots")
    return name


def check_address(text: str) -> str:
    """The address in its usual spelling; ValueError says what is wrong."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None


class HostsLine(Struct, frozen=True):
    """What one line says."""

    address: str
    names: tuple[str, ...]
    comment: str = ""
    """With its ``#``."""

    def text(self) -> str:
        """The line."""
        return "  ".join(part for part in (f"{self.address} {' '.join(self.names)}", self.comment) if part)


def parse_line(line: str) -> HostsLine | None:
    """What a line says; None for comments, empty lines and what is none."""
    said, mark, comment = line.partition("#")
    fields = said.split()
    if len(fields) < 2:
        return None
    try:
        address = str(ipaddress.ip_address(fields[0].partition("%")[0]))
    except ValueError:
        return None
    zone = fields[0].partition("%")[2]
    return HostsLine(f"{address}%{zone}" if zone else address, tuple(fields[1:]), f"{mark}{comment}")


def is_local(line: HostsLine) -> bool:
    """Whether it is about the host itself: such a line loses no name."""
    return line.address == "::1" or line.address.startswith("127.") or bool(set(_LOCAL) & set(line.names))


def with_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """The text in which each address has just these names; lines of the host itself keep all of theirs."""
    lines, end = split(text)
    owner = {(_family(address), name.lower()): address for address, names in entries.items() for name in names}
    done: set[str] = set()
    new: list[str] = []
    for raw in lines:
        said = parse_line(raw)
        if said is None:
            new.append(raw)
            continue
        wanted = entries.get(said.address)
        if wanted is not None and said.address not in done:
            done.add(said.address)
            kept = [name for name in said.names if name not in wanted] if is_local(said) else []
            names = (*kept, *wanted) if is_local(said) else tuple(wanted)
            right = set(wanted) <= set(said.names) if is_local(said) else said.names == names
            new.append(raw if right else HostsLine(said.address, names, said.comment).text())
            continue
        if is_local(said):
            new.append(raw)
            continue
        # A second line of an address, or one that has a name which belongs to another address now.
        kept = [name for name in said.names if (_family(said.address), name.lower()) not in owner]
        if len(kept) == len(said.names) and wanted is None:
            new.append(raw)
        elif kept and wanted is None:
            new.append(HostsLine(said.address, tuple(kept), said.comment).text())
    new += [HostsLine(address, tuple(names)).text() for address, names in entries.items() if address not in done]
    if new == lines:
        return text
    return end.join(new) + end


def without_entries(text: str, entries: Mapping[str, Sequence[str]]) -> str:
    """The text in which these addresses do not have these names; a line without any name left goes."""
    lines, end = split(text)
    new: list[str] = []
    for raw in lines:
        said = parse_line(raw)
        unwanted = entries.get(said.address) if said is not None else None
        if said is None or unwanted is None:
            new.append(raw)
            continue
        gone = {name.lower() for name in unwanted} - set(_LOCAL)
        kept = tuple(name for name in said.names if name.lower() not in gone)
        if kept == said.names:
            new.append(raw)
        elif kept:
            new.append(HostsLine(said.address, kept, said.comment).text())
    return text if new == lines else joined(new, end, text)


def _family(address: str) -> int:
    return 6 if ":" in address else 4
