"""What paramiko reads from and writes to: a socket that needs one system call where it would need four."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

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


class HostPacketizer(Packetizer):
    """One that looks at the clock instead of starting a thread that does nothing but wait for the handshake's end.

    It also copies what is sent less often.
    """

    _until: float | None = None
    _block = 0
    """Of the cipher that is used, if it is one that leaves the length of a packet as it is."""

    def set_outbound_cipher(self, *arguments: Any, **named: Any) -> None:
        """Use this cipher from now on."""
        super().set_outbound_cipher(*arguments, **named)
        self._block = named["block_size"] if named.get("aead") else 0

    def _build_packet(self, payload: bytes) -> bytes:
        if not self._block:
            return cast(bytes, super()._build_packet(payload))  # type: ignore[misc]
        padding = 3 + self._block - (len(payload) + 4) % self._block
        head = struct.pack(">IB", len(payload) + padding + 1, padding)
        return b"".join((head, payload, os.urandom(padding)))

    def start_handshake(self, timeout: float) -> None:
        """The handshake has begun and may take so long."""
        self._until = time.monotonic() + timeout

    def handshake_timed_out(self) -> bool:
        """Whether it has taken too long."""
        return self._until is not None and time.monotonic() >= self._until

    def complete_handshake(self) -> None:
        """It is over."""
        self._until = None
