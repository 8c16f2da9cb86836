"""What paramiko reads from and writes to: a socket that needs one system call where it would need four."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

_AT_ONCE: Final = 1 << 13
"""Bytes that are taken at once, if there are so many: most packets are much smaller."""


class EagerSocket:
    """A connected socket that takes all that has come, and lets the kernel watch the time.

    paramiko asks for a packet in two pieces, and Python's own timeouts ask whether anything is there before each. Every
    one of these calls lets go of the interpreter, for which all threads of a run stand in line.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.plain = sock
        self._receive = sock.recv
        self._held = b""
        self._at = 0
        self._timeout: float | None = None
        self._lock = threading.Lock()
        self._gathering = False
        self._gathered: list[bytes] = []
        sock.settimeout(None)

    def recv(self, size: int) -> bytes:
        """At most so many bytes, none at the end; only one thread reads."""
        at, held = self._at, self._held
        if at == len(held):
            try:
                held = self._receive(max(size, _AT_ONCE))
            except BlockingIOError:
                raise TimeoutError("timed out") from None
            if len(held) <= size:
                return held
            self._held, at = held, 0
        self._at = end = min(at + size, len(held))
        return held[at:end]

    def send(self, data: bytes) -> int:
        """As many of the bytes as there is room for; waits for room. A call that waits for room for all is slower."""
        with self._lock:
            if self._gathering:
                self._gathered.append(data)
                return len(data)
        try:
            return self.plain.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if not self._wait_for_room():
                raise TimeoutError("timed out") from None
            return self.plain.send(data, socket.MSG_DONTWAIT)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write all that is sent meanwhile, by whomever, with one call at the end; EOFError if it cannot be written.

        Only one thread does this at a time, and whoever sends takes turns with the others.
        """
        self._gathering = True
        try:
            yield
        finally:
            try:
                # What others send while it is written comes after it.
                while pieces := self._gathered_so_far():
                    self._write(pieces)
            except OSError as error:
                raise EOFError from error
            finally:
                self._gathering = False

    def _gathered_so_far(self) -> list[bytes]:
        with self._lock:
            pieces, self._gathered = self._gathered, []
            self._gathering = bool(pieces)
            return pieces

    def _write(self, pieces: Sequence[bytes]) -> None:
        left = deque(memoryview(piece) for piece in pieces)
        while left:
            try:
                sent = self.plain.sendmsg(left, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                # Somebody who gives up on a host that takes nothing closes the socket.
                self._wait_for_room()
                continue
            while left and sent >= len(left[0]):
                sent -= len(left.popleft())
            if sent:
                left[0] = left[0][sent:]

    def _wait_for_room(self) -> bool:
        room = select.poll()
        room.register(self.plain, select.POLLOUT)
        return bool(room.poll(None if self._timeout is None else self._timeout * 1000))

    def settimeout(self, seconds: float) -> None:
        """How long a call waits: it then raises TimeoutError."""
        self._timeout = seconds
        # None at all would mean for ever.
        value = struct.pack("ll", *divmod(max(1, int(seconds * 1_000_000)), 1_000_000))
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)

    def gettimeout(self) -> float | None:
        """How long a call waits."""
        return self._timeout

    def getpeername(self) -> object:
        """Who is at the other end."""
        return self.plain.getpeername()

    @property
    def _closed(self) -> bool:
        """Asked for by paramiko, of every socket."""
        return self.plain.fileno() < 0

    def close(self) -> None:
        """Close it; whoever waits in the kernel would not notice that alone."""
        with contextlib.suppress(OSError):
            self.plain.shutdown(socket.SHUT_RDWR)
        self.plain.close()
