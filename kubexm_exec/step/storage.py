"""Mounted file systems, swap space, and the table of both."""

from __future__ import annotations

from kubexm_exec.runner.system.mounts import FstabLine, Mounted, Mounts, appended, edited, fstab_lines, is_at, mounts_at
from kubexm_exec.runner.system.swap import Swaps

__all__ = ["FstabLine", "Mounted", "Mounts", "Swaps", "appended", "edited", "fstab_lines", "is_at", "mounts_at"]
