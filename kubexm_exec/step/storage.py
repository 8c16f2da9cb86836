"""Mounted file systems, swap space, and the table of both."""

from __future__ import annotations

from kubexm_exec.runner.system.fstab import FstabLine, appended, edited, fstab_lines, is_at, mounts_at
from kubexm_exec.runner.system.mounts import Mounted, Mounts
from kubexm_exec.runner.system.swap import Swaps

__all__ = ["FstabLine", "Mounted", "Mounts", "Swaps", "appended", "edited", "fstab_lines", "is_at", "mounts_at"]
