"""Archives: what is in them, and how they are unpacked."""

from __future__ import annotations

from kubexm_exec.runner.files.archives import (
    Entry,
    EntryKind,
    Format,
    Unpacking,
    checked,
    format_of,
    special_bits,
    unpacked,
)

__all__ = ["Entry", "EntryKind", "Format", "Unpacking", "checked", "format_of", "special_bits", "unpacked"]
