"""Run ids: sortable by time, unique, easy to type (ULID)."""

from __future__ import annotations

import os
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_run_id(milliseconds: int | None = None) -> str:
    """26 characters: 10 for the time in milliseconds, 16 random ones."""
    moment = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    number = (moment << 80) | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
