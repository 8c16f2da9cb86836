"""The program of `proxyCommand`, and its error if it failed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from typing import Final

_END_TIME: Final = 2.0
"""Seconds for it to end when it is asked to."""
_NOTICE_TIME: Final = 0.5
"""Seconds between the end of the connection and that of the program, and for its last output."""
_MOST_SAID: Final = 4096
_LONGEST_LINE: Final = 300
_CANNOT_RUN: Final = (126, 127)
"""How a shell ends that finds no such program, or may not run it."""


class ProxyFailed(ConnectionError):
    """The program ended with an error before anybody was logged in."""

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final
        """Whether it would fail in the same way again: it could not even be started."""


class Proxy:
    """The running program; ``sock`` is the connection that it makes."""

    def __init__(self, command: str, folder: str = "") -> None:
        self._command = command
        self.sock, theirs = socket.socketpair()
        self._complaints, errors = socket.socketpair()
        with theirs, errors:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=folder or None,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=errors.fileno(),
            )
        self._said = b""
        # Until it ends: a program would block if its error output was not read.
        self._listener = threading.Thread(target=self._listen, name="kubexm-proxy", daemon=True)
        self._listener.start()

    def raise_if_failed(self, error: Exception, *, wait: bool) -> None:
        """ProxyFailed instead of the error if the program is the reason for it; ``wait``: it may be about to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_NOTICE_TIME if wait else 0)
        code = self._process.poll()
        # One that ends well has only handed on that the host closed the connection.
        if code:
            self._listener.join(_NOTICE_TIME)
            raise ProxyFailed(self._failure(code), final=code in _CANNOT_RUN) from error

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(_END_TIME)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # Its children may live on and hold its error output open: that is not waited for.
        with contextlib.suppress(OSError):
            self._complaints.shutdown(socket.SHUT_RDWR)
        self._listener.join()

    def _listen(self) -> None:
        with self._complaints:
            while data := self._complaints.recv(_MOST_SAID):
                self._said = (self._said + data)[-_MOST_SAID:]

    def _failure(self, code: int) -> str:
        how = f"failed with exit code {code}" if code > 0 else f"was killed by signal {-code}"
        lines = self._said.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return (
            f"its proxyCommand {how}: {last[:_LONGEST_LINE].rstrip('.')}; look at `proxyCommand` in the inventory, or "
            f"at ProxyCommand in ~/.ssh/config: {self._command}"
        )
