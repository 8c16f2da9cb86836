"""What was typed, as the start of what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence
from typing import Final

_ONE_TIME: Final = frozenset({"--executor", "--output", "--result", "--report", "--log-level", "--log-format"})
_WAYS: Final = frozenset({"concurrent", "debug", "serial-debug", "dry-run", "check"})
"""Executors that are ways to look at what is done, or the usual one."""


def next_command(argv: Sequence[str], without: Container[str] = _ONE_TIME) -> str:
    """What was typed, as the start of what to type next: without the options that were for this time."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in without:
            value = word.partition("=")[2] if equals else next(words, "")
            if name == "--executor" and value not in _WAYS:
                # A third party's executor is part of what is done, not a way to look at it.
                kept.extend([name, value])
        elif not (word.startswith("-v") and set(word[1:]) == {"v"}) and word != "--verbose":
            kept.append(word)
    return shlex.join(kept)
