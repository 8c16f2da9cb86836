"""Ctrl-C outside of a run, where there is nothing that would have to be ended first."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from kubexm_exec.cli import codes


class Presses:
    """The handler: Ctrl-C is raised, and the second time the program ends.

    It is also noted: where Python happens to be, what is raised may be lost.
    """

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, number: int, frame: Any) -> None:
        """Ctrl-C was pressed."""
        self.times += 1
        if self.times > 1:
            os._exit(codes.INTERRUPTED)
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends the program as interrupted; click would call it a failure."""
    try:
        yield
    except KeyboardInterrupt:
        _end()
    except RuntimeError as error:
        # What click makes of it if somebody was just asked something, and Python in the middle of making a class.
        # The end of the input is another matter.
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        _end()


def _end() -> NoReturn:
    # The terminal has shown ^C at the beginning of this line.
    sys.stderr.write("\ninterrupted\n")
    raise SystemExit(codes.INTERRUPTED)
