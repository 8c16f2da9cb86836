"""Files that a host fetches itself."""

from __future__ import annotations

from kubexm_exec.runner.files.downloads import Download

__all__ = ["Download"]
