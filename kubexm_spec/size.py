"""Sizes of memory and disks as Kubernetes and people write them."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

_UNITS: Final = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}  # fmt: skip
_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"
_EXAMPLE: Final = "write for example 8Gi, 1700Mi or 10G; a number alone means bytes"


def parse_size(value: object) -> int:
    """Bytes in "8Gi" or "10G", or in a number of bytes; ValueError says what is wrong."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = re.fullmatch(_PATTERN, text)
    if match is None or len(text) > 18:
        raise ValueError(f"should be a size; {_EXAMPLE}")
    unit = match[2] or ""
    return int(float(text.removesuffix(unit)) * _UNITS[unit])


Size = Annotated[
    int,
    BeforeValidator(parse_size, json_schema_input_type=str | int),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": _PATTERN}, {"type": "integer", "minimum": 0}],
            "description": "A size such as 8Gi, 1700Mi or 10G; a number means bytes.",
            "examples": ["8Gi", "1700Mi"],
        }
    ),
]
"""A pydantic field that takes what `parse_size` takes and holds bytes."""
