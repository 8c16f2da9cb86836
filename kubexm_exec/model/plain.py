"""Makes plain data (what JSON can hold) of whatever steps and expressions hand out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

from pydantic import BaseModel


def plain(value: Any) -> Any:
    """The value with every mapping a dict, every sequence a list, and everything that is not data as text."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, BaseModel):
        return plain(value.model_dump(by_alias=True))
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
