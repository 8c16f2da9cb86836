"""Lengths of time as people write and read them."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)", re.ASCII)
_PATTERN: Final = r"^(\d+(\.\d+)?(ms|d|h|m|s)\s*)+$|^\d+(\.\d+)?$"
_EXAMPLE: Final = "write for example 30s, 5m, 1h30m or 500ms; a number alone means seconds"
_LONGEST: Final = 10 * 365 * 86400.0


def parse_duration(value: str | int | float) -> float:
    """Seconds in "1h30m", "500ms", "2s", or in a number of seconds; ValueError says what is wrong."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"a duration is a text or a number of seconds, not {type(value).__name__}; {_EXAMPLE}")
    seconds = _parse_text(value) if isinstance(value, str) else _as_float(value)
    if math.isnan(seconds) or math.isinf(seconds):
        raise ValueError(f"{_shown(value)} is not a duration; {_EXAMPLE}")
    if seconds < 0:
        raise ValueError(f"a duration cannot be negative, and {_shown(value)} is")
    if seconds > _LONGEST:
        raise ValueError(f"{_shown(value)} is longer than ten years; {_EXAMPLE}")
    return seconds


def format_duration(seconds: float) -> str:
    """The time for people: "840ms", "18.2s", "1m 07s", "2h 03m", "3d 04h"."""
    if math.isnan(seconds) or math.isinf(seconds):
        return "?"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d {hours % 24:02d}h"


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


@lru_cache(maxsize=256)
def _parse_text(text: str) -> float:
    compact = re.sub(r"\s+", "", text)
    if not compact:
        raise ValueError(f"a duration cannot be empty; {_EXAMPLE}")
    if re.fullmatch(r"-?\d+(?:\.\d+)?", compact, re.ASCII):
        return float(compact)
    if compact.startswith("-") and _PART.match(compact, 1):
        raise ValueError(f"a duration cannot be negative, and {_shown(text)} is")
    total, at, used = 0.0, 0, list[str]()
    while at < len(compact):
        part = _PART.match(compact, at)
        if part is None:
            raise ValueError(f"{_shown(text)} is not a duration; {_EXAMPLE}")
        number, unit = part.groups()
        if unit in used:
            raise ValueError(f"{_shown(text)} has the unit {unit} twice; {_EXAMPLE}")
        used.append(unit)
        total += float(number) * _UNITS[unit]
        at = part.end()
    if used != sorted(used, key=lambda unit: -_UNITS[unit]):
        raise ValueError(f"{_shown(text)} has its units out of order: the largest comes first; {_EXAMPLE}")
    return total


def _shown(value: str | int | float) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    return str(value) if abs(value) < 1e18 or isinstance(value, float) else "this number"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration, json_schema_input_type=str | float),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": _PATTERN}, {"type": "number", "minimum": 0}],
            "description": "A length of time such as 30s, 5m, 1h30m or 500ms; a number means seconds.",
            "examples": ["30s", "1h30m", 5],
        }
    ),
]
"""A pydantic field that takes what `parse_duration` takes and holds seconds."""
