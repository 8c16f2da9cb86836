"""Runs a server and reaps all that it leaves, so that what they cost is known: ``python keeper.py ARGV...``."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(argv: list[str]) -> int:
    """Until the server ends; a TERM ends it, and so does the end of whoever started this, however that came."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    # A shell that outlives its connection would be the system's, and what it has done nobody's.
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    # Nobody is to find a server that lets people in long after a benchmark was killed.
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    while True:
        pid, status = os.wait()
        if pid == server.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
