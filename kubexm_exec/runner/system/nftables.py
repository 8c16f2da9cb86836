"""Rules of nftables: which chains reject packets, and the rules of our own chain that accept some."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct, field

from kubexm_exec.model.errors import StepFailed

OWN: Final = "kubexm"
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_HEADER: Final = "# Written by kubexm: what its firewall-port steps have opened. Loaded at the end of the main file.\n"


class Opening(Struct, frozen=True):
    """An opening in a firewall, of any kind: packets that are accepted."""

    port: str
    """``80``, or ``30000-32767``."""
    protocol: str
    source: str = ""
    """The network that they come from; empty for any."""
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
        """The arguments of ``ufw``, in the form that ``ufw show added`` prints."""
        port = self.port.replace("-", ":")
        if not self.source:
            return ["allow", f"{port}/{self.protocol}"]
        return ["allow", "from", self.source, "to", "any", "port", port, "proto", self.protocol]


class Chain(Struct):
    """A chain of incoming packets, and our own chain in the same table."""

    family: str
    table: str
    name: str
    policy: str
    filters: bool = False
    """Whether its policy or a rule rejects packets."""
    jump: int | None = None
    """Handle of the rule that jumps to our own chain."""
    own: bool = False
    """Whether our own chain exists."""
    rules: dict[str, int] = field(default_factory=dict)
    """Handles of the rules of our own chain, by their comments."""

    @property
    def iptables(self) -> bool:
        """Whether it belongs to iptables, whose rules nft must not change."""
        return self.family in ("ip", "ip6") and self.table == "filter" and self.name == "INPUT"

    def takes(self, opening: Opening) -> bool:
        """Whether such packets pass this chain."""
        return not opening.source or self.family in ("inet", "ip6" if opening.is_v6 else "ip")

    def has(self, opening: Opening) -> bool:
        """Whether it is open here."""
        return self.jump is not None and comment(opening) in self.rules


def comment(opening: Opening) -> str:
    """The comment that identifies a rule."""
    return f"{OWN} {opening}"


def read_chains(documents: Iterable[str]) -> list[Chain]:
    """The chains in the output of ``nft -j list chain``, which has our own chain after that of its table."""
    chains: list[Chain] = []
    for document in documents:
        for item in json.loads(document).get("nftables", ()):
            _take(chains, item)
    return chains


def _take(chains: list[Chain], item: dict[str, Any]) -> None:
    match item:
        case {"chain": {"name": name, "family": family, "table": table, "hook": "input", **rest}}:
            policy = str(rest.get("policy", "accept"))
            chains.append(Chain(family, table, name, policy, filters=policy == "drop"))
        case {"chain": {"name": "kubexm"}} if chains:
            chains[-1].own = True
        case {"rule": {"chain": "kubexm", "handle": handle, "comment": said}} if chains:
            chains[-1].rules[said] = handle
        case {"rule": {"chain": name, "handle": handle, "expr": expressions}} if chains and chains[-1].name == name:
            for expression in expressions:
                if expression.keys() & {"drop", "reject"}:
                    chains[-1].filters = True
                if expression.get("jump", {}) == {"target": OWN}:
                    chains[-1].jump = handle


def live_script(chains: Sequence[Chain], opening: Opening, is_open: bool) -> str:
    """Commands for nft that open or close it now, all at once."""
    lines: list[str] = []
    for chain in chains:
        where = _where(chain)
        if is_open:
            if not chain.own:
                lines.append(f"add chain {where} {OWN}")
            if chain.jump is None:
                lines.append(_jump(chain))
            if comment(opening) not in chain.rules:
                lines.append(_rule(chain, opening))
            continue
        handle = chain.rules.get(comment(opening))
        if handle is None:
            continue
        if len(chain.rules) > 1:
            lines.append(f"delete rule {where} {OWN} handle {handle}")
            continue
        if chain.jump is not None:
            lines.append(f"delete rule {where} {chain.name} handle {chain.jump}")
        lines += [f"flush chain {where} {OWN}", f"delete chain {where} {OWN}"]
    return "".join(f"{line}\n" for line in lines)


def rules_text(text: str, chains: Sequence[Chain], opening: Opening, is_open: bool) -> str | None:
    """The file of our rules with the port open or closed, and the tables it needs; None if no rule is left."""
    mark = f'comment "{comment(opening)}"'
    wanted = {_rule(chain, opening) for chain in chains} if is_open else set()
    lines = text.splitlines()
    kept = [line for line in lines if not line.endswith(mark) or line in wanted]
    for chain in chains:
        if not is_open or _rule(chain, opening) in kept:
            continue
        where = _where(chain)
        if f"add chain {where} {OWN}" not in kept:
            kept += [f"add table {where}", f"add chain {where} {chain.name}", f"add chain {where} {OWN}"]
            kept += [f"flush chain {where} {OWN}", _jump(chain)]
        kept.append(_rule(chain, opening))
    if not any(line.startswith("add rule ") for line in kept):
        return None
    if kept == lines:
        return text
    return ("" if kept[0].startswith("#") else _HEADER) + "".join(f"{line}\n" for line in kept)


def config_text(text: str, path: str, included: bool) -> str:
    """The main file with our file included at its end, or not."""
    line = f'include "{path}"'
    folder = path.rpartition("/")[0]
    says = [each.strip() for each in text.splitlines()]
    if included:
        if line in says or f'include "{folder}/*.nft"' in says:
            return text
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n"
    return "".join(each for each in text.splitlines(keepends=True) if each.strip() != line)


def _jump(chain: Chain) -> str:
    return f'insert rule {_where(chain)} {chain.name} jump {OWN} comment "{OWN}"'


def _rule(chain: Chain, opening: Opening) -> str:
    source = f"{'ip6' if opening.is_v6 else 'ip'} saddr {opening.source} " if opening.source else ""
    match = f"{source}{opening.protocol} dport {opening.port}"
    return f'add rule {_where(chain)} {OWN} {match} accept comment "{comment(opening)}"'


def _where(chain: Chain) -> str:
    """Family and table for a command; names that would need quoting are refused."""
    if _WORD.fullmatch(chain.table) is None or _WORD.fullmatch(chain.name) is None:
        raise StepFailed(
            f"nftables: the table {chain.table!r} or its chain {chain.name!r} has a name that is not a plain word",
            hint="open the port with a command step",
        )
    return f"{chain.family} {chain.table}"
