"""What paramiko reads from and writes to: a socket that needs one system call where it would need four."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from typing import Final

from paramiko.packet import Packetizer

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
        try:
            return self.plain.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            room = select.poll()
            room.register(self.plain, select.POLLOUT)
            if not room.poll(None if self._timeout is None else self._timeout * 1000):
                raise TimeoutError("timed out") from None
            return self.plain.send(data, socket.MSG_DONTWAIT)

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


class HostPacketizer(Packetizer):
    """One that looks at the clock instead of starting a thread that does nothing but wait for the handshake's end."""

    _until: float | None = None

    def start_handshake(self, timeout: float) -> None:
        """The handshake has begun and may take so long."""
        self._until = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        """Whether it has taken too long."""
        return self._until is not None and time.monotonic() >= self._until

    def complete_handshake(self) -> None:
        """It is over."""
        self._until = None
