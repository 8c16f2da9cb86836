"""A terminal on this machine for one command: nobody types on it, and it changes nothing of what is written to it."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Sequence
from typing import Final

_SIZE: Final = struct.pack("HHHH", 50, 200, 0, 0)
_END_OF_INPUT: Final = b"\x04"
# The first terminal that the leader of a session opens becomes the session's.
_TAKE: Final = 'exec 0<>"$0" 1>&0 2>&0; exec "$@"'


def open_terminal() -> tuple[int, int]:
    """The two ends of a new terminal: ours, and the command's. Whoever reads from it finds the end of its input."""
    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, _SIZE)
    os.write(ours, _END_OF_INPUT)
    return ours, theirs


def in_terminal(theirs: int, argv: Sequence[str]) -> list[str]:
    """The command line that makes a terminal that of its own session, and then runs a command."""
    return ["/bin/sh", "-c", _TAKE, os.ttyname(theirs), *argv]
