"""The one place where data is made safe for a POSIX shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from kubexm_exec.connectors.base import Command, Readable


def quote(text: str) -> str:
    """The text as one word of a POSIX shell."""
    return shlex.quote(text)


def join(words: Iterable[str]) -> str:
    """The words as one line of a POSIX shell."""
    return " ".join(quote(word) for word in words)


def script(
    body: str,
    *arguments: str,
    stdin: bytes | Readable | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    max_output: int = 1 << 20,
    question: bool = False,
) -> Command:
    """A fixed piece of shell with data as its positional arguments, so that no data is ever read as shell.

    The tools it calls speak English: their messages are told apart by their words. A ``question`` starts nothing that
    outlives it, whatever the host is like; it costs the host less.
    """
    return Command(
        argv=("sh", "-c", body, "kx", *arguments),
        env={"LC_ALL": "C", **(env or {})},
        stdin=stdin,
        cwd=cwd,
        max_output=max_output,
        question=question,
    )
