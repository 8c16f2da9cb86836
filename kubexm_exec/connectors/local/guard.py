"""Ends what commands have left on this machine if the program itself is killed."""

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
"""It reads until nobody can write any more: we have gone, whatever became of us. Nobody has to wait for its end."""


class Guard:
    """A process that knows the groups of the commands that run, and kills them when this one is gone.

    Without it what a killed run was doing would go on, beside the run that is begun in its place. It is started with
    the first command, and shared by all hosts that are this machine.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._close: Callable[[], object] = _nothing
        self._hosts = 0

    def enter(self) -> None:
        """One more host uses it."""
        with self._lock:
            self._hosts += 1

    def leave(self) -> None:
        """A host does not need it any more; with the last one it ends, and with it what is still left."""
        with self._lock:
            self._hosts -= 1
            if self._hosts <= 0:
                self._close()
                self._pipe = None

    def ready(self) -> None:
        """A command is about to be started."""
        self._say("")

    def watch(self, group: int) -> None:
        """A command runs."""
        self._say(f"+ {group}\n")

    def forget(self, group: int) -> None:
        """It has ended; what it started in the background is nobody's business."""
        self._say(f"- {group}\n")

    def _say(self, line: str) -> None:
        # It may not start, or somebody may have killed it; then nobody guards, which is no reason not to run a command.
        with self._lock, contextlib.suppress(OSError, subprocess.SubprocessError):
            if self._pipe is None:
                self._pipe = _start()
                self._close = weakref.finalize(self, os.close, self._pipe)
            if line:
                os.write(self._pipe, line.encode())


def _nothing() -> None:
    """It was never started."""


def _start() -> int:
    """A new one; gives the end of the pipe that it listens to."""
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
