"""An opening in a firewall, whatever kind of firewall it is."""

from __future__ import annotations

from msgspec import Struct


class Opening(Struct, frozen=True):
    """Packets that may come in."""

    port: str
    """``80``, or ``30000-32767``."""
    protocol: str
    source: str = ""
    """Network that they come from; empty for any."""
    zone: str = ""

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}" + (f" from {self.source}" if self.source else "")

    @property
    def is_v6(self) -> bool:
        """Whether the source is an IPv6 network."""
        return ":" in self.source

    def firewalld(self) -> tuple[str, str]:
        """Kind and value, as in ``--add-KIND=VALUE``."""
        if not self.source:
            return "port", f"{self.port}/{self.protocol}"
        family = "ipv6" if self.is_v6 else "ipv4"
        source = f'rule family="{family}" source address="{self.source}"'
        return "rich-rule", f'{source} port port="{self.port}" protocol="{self.protocol}" accept'

    def ufw(self) -> list[str]:
        """The words after ``ufw``, as ``ufw show added`` would show them too."""
        port = self.port.replace("-", ":")
        if not self.source:
            return ["allow", f"{port}/{self.protocol}"]
        return ["allow", "from", self.source, "to", "any", "port", port, "proto", self.protocol]
