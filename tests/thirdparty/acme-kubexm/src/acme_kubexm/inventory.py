"""A source of inventories: as many local hosts as the argument says."""

from __future__ import annotations


def hosts(argument: str) -> dict[str, object]:
    """The hosts acme1 to acmeN."""
    return {"defaults": {"connector": "local"}, "hosts": [{"name": f"acme[1:{int(argument)}]", "roles": ["acme"]}]}
