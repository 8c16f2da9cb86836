"""Structs as plain data, the way msgspec writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins


def builtins(data: Any) -> Any:
    """Data with structs in it as dicts, lists, texts and numbers."""
    return to_builtins(data, enc_hook=_builtin)


def _builtin(value: Any) -> Any:
    """What msgspec does not know: a mapping or a text of a class of its own, for instance."""
    return dict(value) if isinstance(value, Mapping) else str(value)
