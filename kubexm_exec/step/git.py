"""Checkouts of git repositories."""

from __future__ import annotations

from kubexm_exec.runner.system.git import EMPTY, Access, Checkout

__all__ = ["EMPTY", "Access", "Checkout"]
