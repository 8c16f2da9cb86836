"""Openings in the firewall of a host."""

from __future__ import annotations

from kubexm_exec.runner.system.firewall import RULES, Backend, Firewall
from kubexm_exec.runner.system.nftables import Opening, config_text, rules_text

__all__ = ["RULES", "Backend", "Firewall", "Opening", "config_text", "rules_text"]
