"""Run ids: sortable by time, unique, easy to type (ULID)."""

from __future__ import annotations

import os
import re
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FORM = re.compile(f"[{_ALPHABET}]{{26}}")


def new_run_id(milliseconds: int | None = None) -> str:
    """26 characters: 10 for the time in milliseconds, 16 random ones."""
    moment = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    number = (moment << 80) | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def is_run_id(text: str) -> bool:
    """Whether a text has the form of a run id, so that it may be the name of a folder."""
    return _FORM.fullmatch(text) is not None
