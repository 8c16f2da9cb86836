"""Openings in the firewall of a host: firewalld, ufw, or rules of nftables."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.probe import Held, Look, look
from kubexm_exec.runner.system.nftables import Chain, Opening, live_script, read_chains

Backend = Literal["auto", "firewalld", "ufw", "nftables"]
Found = Literal["", "firewalld", "firewalld-offline", "ufw", "nftables"]
RULES: Final = "/etc/nftables.d/kubexm.nft"
CONFIGS: Final = ("/etc/nftables.conf", "/etc/sysconfig/nftables.conf", "/etc/nftables.nft")

# firewalld and ufw are asked first: they write rules that nft shows too.
_LOOK: Final = r"""
want=$1 kind=$2 value=$3 zone=$4 found= trouble=
is() { [ "$want" = auto ] || [ "$want" = "$1" ]; }
ask() { part "$1"; shift; "$@" 2>&1; }
if is firewalld && have firewall-cmd; then
  # Each question starts a Python, so systemd is asked first; 252 means that firewalld is not running.
  said= code=252
  if [ ! -d /run/systemd/system ] || systemctl is-active -q firewalld; then
    said=$(firewall-cmd ${zone:+--zone="$zone"} --query-"$kind=$value" 2>&1); code=$?
  fi
  if [ $code != 252 ]; then
    found=firewalld
    part live; printf %s "$said"
    ask permanent firewall-cmd --permanent ${zone:+--zone="$zone"} --query-"$kind=$value"
  elif [ "$want" = firewalld ] && have firewall-offline-cmd; then
    found=firewalld-offline
    ask permanent firewall-offline-cmd ${zone:+--zone="$zone"} --query-"$kind=$value"
  fi
fi
if [ -z "$found" ] && is ufw && have ufw; then
  said=$(ufw status 2>&1)
  case $said in
    *'Status: active'*) found=ufw ;;
    *'Status: inactive'*) [ "$want" = auto ] || found=ufw ;;
    *) trouble=$said. ;;
  esac
  [ -z "$found" ] || ask added ufw show added
fi
if [ -z "$found" ] && is nftables && have nft; then
  if said=$(nft list chains 2>&1); then
    part chains
    printf '%s\n' "$said" | awk '
      $1 == "table" { family = $2; table = $3 } $1 == "chain" { chain = $2 }
      / hook input / && family ~ /^(inet|ip|ip6)$/ { print family, table, chain }' |
    while read -r family table chain; do
      nft -j list chain "$family" "$table" "$chain"
      nft -j list chain "$family" "$table" kubexm 2>/dev/null
    done
  else trouble=$said.; fi
fi
[ -z "$trouble" ] || { part trouble; printf %s "${trouble%.}"; }
part found; printf %s "$found"
"""


class Firewall(Struct, frozen=True):
    """The firewall of a host, and whether an opening is in it."""

    found: Found
    live: bool = False
    permanent: bool = False
    chains: tuple[Chain, ...] = ()
    """Chains of nftables that reject such packets."""
    iptables: bool = False
    """Whether rules of iptables reject packets."""
    rules: Held | None = None
    config: Held | None = None


class Firewalls(Operations):
    """Openings in the firewall of a host."""

    def look(self, opening: Opening, backend: Backend) -> Firewall:
        """The firewall of the host, and whether the opening is in it."""
        kind, value = opening.firewalld()
        seen = look(
            self._session, [RULES, *CONFIGS], _LOOK, backend, kind, value, opening.zone, what="look at firewalls"
        )
        if "trouble" in seen.parts:
            said = seen.text("trouble").strip().splitlines()[-1:] or ["no answer"]
            raise StepFailed(f"look at firewalls: {said[0]}", hint="only root may see them: use `become`")
        match seen.text("found"):
            case "firewalld" | "firewalld-offline" as found:
                permanent = _answer(seen, "permanent")
                live = _answer(seen, "live") if found == "firewalld" else permanent
                return Firewall(found, live, permanent)
            case "ufw":
                rule = f"ufw {' '.join(opening.ufw())}"
                there = any(line.partition(" comment ")[0].strip() == rule for line in seen.lines("added"))
                return Firewall("ufw", there, there)
        chains = read_chains(seen.lines("chains"))
        guards = tuple(chain for chain in chains if chain.filters and not chain.iptables and chain.takes(opening))
        config = next((seen.files[path] for path in CONFIGS if seen.files[path].exists), None)
        return Firewall(
            "nftables" if guards else "",
            live=bool(guards) and all(chain.has(opening) for chain in guards),
            chains=guards,
            iptables=any(chain.filters and chain.iptables for chain in chains),
            rules=seen.files[RULES],
            config=config,
        )

    def set_live(self, now: Firewall, opening: Opening, is_open: bool) -> None:
        """Open or close it in the running firewall; for ufw and a stopped firewalld also permanently."""
        match now.found:
            case "firewalld":
                self._firewalld("firewall-cmd", opening, is_open)
            case "firewalld-offline":
                self._firewalld("firewall-offline-cmd", opening, is_open)
            case "ufw":
                words = opening.ufw() if is_open else ["delete", *opening.ufw()]
                self._do(f"ufw {' '.join(words)}", 'ufw "$@"', *words)
            case "nftables":
                self._do("change nftables", "nft -f -", stdin=live_script(now.chains, opening, is_open).encode())

    def set_permanent(self, opening: Opening, is_open: bool) -> None:
        """Open or close it in the permanent configuration of firewalld."""
        self._firewalld("firewall-cmd", opening, is_open, "--permanent")

    def check(self, config: str) -> None:
        """Raise StepFailed if nftables cannot load its configuration."""
        self._do(f"check {config}", 'nft -c -f "$1"', config)

    def _firewalld(self, tool: str, opening: Opening, is_open: bool, *options: str) -> None:
        kind, value = opening.firewalld()
        change = f"--{'add' if is_open else 'remove'}-{kind}={value}"
        zone = [f"--zone={opening.zone}"] if opening.zone else []
        self._do(f"{tool} {change}", '"$@"', tool, *options, *zone, change)


def _answer(seen: Look, name: str) -> bool:
    said = seen.text(name).strip()
    if said not in ("yes", "no"):
        hint = "`firewall-cmd --get-zones` lists the zones" if "INVALID_ZONE" in said else ""
        raise StepFailed(f"firewalld: {said or 'no answer'}", hint=hint)
    return said == "yes"
