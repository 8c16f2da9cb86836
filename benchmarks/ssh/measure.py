"""Runs one command and says what it and everything it started cost: ``python measure.py LOG SECONDS -- ARGV...``."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def _end_what_is_left() -> None:
    """Connections that a tool keeps open in the background belong to its cost, and not to the next one's speed."""
    while left := _children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            os.wait()


def main(log: str, seconds: float, argv: list[str]) -> int:
    """Run it and print a line of JSON."""
    # Without this, what goes into the background would be nobody's, and its cost unknown.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with Path(log).open("wb") as out:
        begun = time.perf_counter()
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        wall = time.perf_counter() - begun
    _end_what_is_left()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"code": code, "wall": wall, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss / 1024}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[at + 1 :]))
