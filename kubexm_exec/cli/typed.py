"""What was typed, as the start of what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubexm_exec.console.summary import Commands

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


def next_commands(argv: Sequence[str]) -> Commands | None:
    """What to type next after a run; None if nothing was typed for it."""
    from kubexm_exec.console.summary import Commands

    run = next_command(argv)
    if not run:
        return None
    other = f"{_without(run, '--executor')} --executor"
    limit = "" if "--plan" in run else f"{_without(run, '--limit')} --limit"
    return Commands(run, f"{other} check", f"{other} debug", limit)


def _without(command: str, option: str) -> str:
    """The same command without an option and its value."""
    words = shlex.split(command)
    while option in words:
        at = words.index(option)
        del words[at : at + 2]
    return shlex.join(word for word in words if not word.startswith(f"{option}="))
