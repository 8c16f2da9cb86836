"""The entry points: an interrupt is understood before what they need is loaded, and they end at once when done."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from kubexm_exec.cli import codes
from kubexm_exec.cli.interrupts import Presses, interruptible

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Standard output takes no more; code that writes files of its own reports its own errors."""


def leave_after(work: Callable[[], object]) -> None:
    """Do the work and end the program with its exit code.

    The interpreter would take apart all that is in memory, piece by piece, which is a twentieth of the time of a small
    run; the system does it at once. What others want to do at the end is done, and the usual way is taken if there is
    anything that it would wait for, or have to say.
    """
    code: object = 0
    unwritten: OSError | None = None
    presses = Presses()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # A program in the background of a script ignores Ctrl-C, and keeps ignoring it.
        signal.signal(signal.SIGINT, presses)
    try:
        with interruptible():
            work()
    except SystemExit as end:
        # Where words are taken apart, click calls an interrupt a failure.
        code = codes.INTERRUPTED if presses.times and end.code == codes.FAILED else end.code or 0
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
            raise
        code, unwritten = codes.FAILED, error
    if not isinstance(code, int) or any(map(_is_waited_for, threading.enumerate())):
        raise SystemExit(code)
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as error:
        code, unwritten = code or codes.FAILED, error
    except ValueError:
        raise SystemExit(code) from None
    if unwritten is not None:
        os.write(2, f"error: the output cannot be written: {unwritten.strerror}\n".encode())
    os._exit(code & 0xFF)


def _is_waited_for(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.main_thread()


def kubexm() -> None:
    """``kubexm``."""

    def work() -> None:
        from kubexm_exec.cli.main import main

        main(prog_name="kubexm")

    leave_after(work)


def kubexm_run() -> None:
    """``kubexm-run``."""

    def work() -> None:
        from kubexm_exec.cli.run import command

        command(prog_name="kubexm-run")

    leave_after(work)
