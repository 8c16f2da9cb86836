"""Things that all hosts of a run share, made once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def once(function: Callable[P, R]) -> Callable[P, R]:
    """Remember what a function gives. Of threads that ask at the same time one makes it, and the others wait."""
    remembered = functools.lru_cache(maxsize=64)(function)
    lock = threading.Lock()

    @functools.wraps(function)
    def asked(*arguments: P.args, **named: P.kwargs) -> R:
        with lock:
            return remembered(*arguments, **named)  # type: ignore[arg-type]

    return asked
