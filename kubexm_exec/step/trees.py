"""Folders with all that is in them: how they are looked at and changed in one go."""

from __future__ import annotations

from kubexm_exec.runner.files.trees import NewFile, TreeChange, TreeLook, is_transient

__all__ = ["NewFile", "TreeChange", "TreeLook", "is_transient"]
