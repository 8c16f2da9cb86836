"""The console for machines: one JSON object a line for every event."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from kubexm_exec.console.writer import LineConsole
from kubexm_exec.model.events import Event

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class JsonConsole(LineConsole):
    """Writes every event as a line of JSON that any parser takes: ASCII only, no NaN, no half characters."""

    def __call__(self, event: Event) -> None:
        """Write an event."""
        self.output.write(json_line(event.to_json()))


def json_line(data: Mapping[str, Any]) -> str:
    """The data as one line of strict JSON."""
    try:
        line = json.dumps(data, allow_nan=False)
    except (ValueError, TypeError):  # a NaN, or an object that JSON does not have
        line = json.dumps(_strict(data), allow_nan=False)
    # An escape of a surrogate: most are halves of pairs, but one alone is refused by strict parsers.
    return (json.dumps(_strict(data), allow_nan=False) if "\\ud" in line else line) + "\n"


def _strict(data: Any) -> Any:
    if isinstance(data, str):
        return _SURROGATES.sub("\ufffd", data)
    if data is None or isinstance(data, (bool, int)):
        return data
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {_strict(str(key)): _strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, set, frozenset)):
        return [_strict(item) for item in data]
    if isinstance(data, (bytes, bytearray)):
        return bytes(data).decode("utf-8", "replace")
    return _strict(str(data))
