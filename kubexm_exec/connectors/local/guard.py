"""Ends running commands on the control node if the program itself is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import weakref
from collections.abc import Callable
from typing import Final

_SCRIPT: Final = """
guard() {
  left=
  while read -r what group; do
    case $what in
      +) left="$left $group" ;;
      -) rest=; for one in $left; do [ "$one" = "$group" ] || rest="$rest $one"; done; left=$rest ;;
    esac
  done
  for one in $left; do kill -9 "-$one"; done
}
exec 3<&0
guard <&3 3<&- &
"""
"""It reads until its input ends: then we have ended, in whatever way. Nobody has to wait for it."""


class Guard:
    """A process that knows the groups of running commands, and kills them when this process is gone.

    Without it the commands of a killed run would go on beside the next session of the run. It is started with the first
    command, and shared by all hosts that are this machine.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._close: Callable[[], object] = _nothing
        self._hosts = 0

    def enter(self) -> None:
        """Count one more host."""
        with self._lock:
            self._hosts += 1

    def leave(self) -> None:
        """Count one host less; after the last one it ends, and with it commands that still run."""
        with self._lock:
            self._hosts -= 1
            if self._hosts <= 0:
                self._close()
                self._pipe = None

    def ready(self) -> None:
        """Start it, before a command is started."""
        self._say("")

    def watch(self, group: int) -> None:
        """Kill this group if we are killed."""
        self._say(f"+ {group}\n")

    def forget(self, group: int) -> None:
        """Leave this group alone: its command has ended, and background children may go on."""
        self._say(f"- {group}\n")

    def _say(self, line: str) -> None:
        # If it cannot start, or was killed, commands run without it.
        with self._lock, contextlib.suppress(OSError, subprocess.SubprocessError):
            if self._pipe is None:
                self._pipe = _start()
                self._close = weakref.finalize(self, os.close, self._pipe)
            if line:
                os.write(self._pipe, line.encode())


def _nothing() -> None:
    """It was never started."""


def _start() -> int:
    """Start one; returns the pipe that it reads from."""
    theirs, ours = os.pipe()
    try:
        quiet = subprocess.DEVNULL
        subprocess.run(
            ["/bin/sh", "-c", _SCRIPT],
            cwd="/",
            stdin=theirs,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
            check=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return ours
