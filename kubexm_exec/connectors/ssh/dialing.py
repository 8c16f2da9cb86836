"""TCP connections to hosts; some are begun before the libraries that log in over them are loaded."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
from collections.abc import Iterable
from typing import Any, Final

from kubexm_exec.control import Cancel, Deadline

_NOBODY: Final = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)
_KEPT: Final = 5.0
"""Seconds that a connection waits to be used: an sshd has only so many places for those who do not log in."""


class Dialled:
    """Connections begun while the libraries load, each for the first caller that needs it."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], socket.socket] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def begin(self, places: Iterable[tuple[str, int]]) -> None:
        """Begin to connect to addresses in figures; names would have to be looked up, which can take long."""
        for address, port in dict.fromkeys(places):
            with contextlib.suppress(OSError):  # the caller that needs it tries again, and gets the error
                found = socket.getaddrinfo(address.encode("ascii", "ignore"), port, flags=socket.AI_NUMERICHOST)[0]
                sock = socket.socket(found[0], socket.SOCK_STREAM)
                _begin(sock, found[4])
                self._begun[address, port] = sock
        if self._begun:
            self._timer = threading.Timer(_KEPT, self.close)
            self._timer.daemon = True
            self._timer.start()

    def take(self, address: str, port: int) -> socket.socket | None:
        """The connection that was begun to that place, once; perhaps it is not established yet."""
        with self._lock:
            sock = self._begun.pop((address, port), None)
            last = sock is not None and not self._begun
        if last and self._timer is not None:
            self._timer.cancel()
        return sock

    def close(self) -> None:
        """Close those that nobody needed."""
        with self._lock:
            unused, self._begun = self._begun, {}
        for sock in unused.values():
            sock.close()


def dial(host: str, port: int, deadline: Deadline, stop: Cancel, dialled: Dialled | None = None) -> socket.socket:
    """A TCP connection to the first of a host's addresses that answers; ``stop`` ends the waiting with an OSError."""
    begun = None if dialled is None else dialled.take(host, port)
    if begun is not None:
        try:
            return _established(begun, errno.EINPROGRESS, deadline.left(), stop)
        except OSError:
            if stop.is_set():
                raise
    # Given as text, even an address in figures has Python load its tables for names in other scripts.
    name = host.encode("ascii") if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    errors: dict[tuple[Any, ...], OSError] = {}
    for number, (family, kind, protocol, _, address) in enumerate(found):
        sock = socket.socket(family, kind, protocol)
        left = deadline.left()
        try:
            # An address that swallows everything must leave some time for the next one.
            share = None if left is None else left / (len(found) - number)
            return _established(sock, _begin(sock, address), share, stop)
        except OSError as error:
            errors[address] = error
    others = [error for error in errors.values() if error.errno not in _NOBODY]
    if others:
        raise others[0]
    from paramiko.ssh_exception import NoValidConnectionsError

    raise NoValidConnectionsError(errors)


def _begin(sock: socket.socket, address: Any) -> int:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock.connect_ex(address)


def _established(sock: socket.socket, code: int, seconds: float | None, stop: Cancel) -> socket.socket:
    """The socket when it is connected; it is closed if that fails."""
    # A hang-up has no effect on a socket that does not connect yet: only from here on it ends the waiting below.
    remove = stop.on_set(lambda: hang_up(sock))
    try:
        if code == errno.EINPROGRESS and not stop.is_set():
            waiting = select.poll()
            waiting.register(sock, select.POLLOUT)
            if waiting.poll(None if seconds is None else seconds * 1000):
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == errno.EINPROGRESS or stop.is_set():
            raise TimeoutError("timed out")
        if code:
            raise OSError(code, os.strerror(code))
        sock.settimeout(seconds)
        return sock
    except BaseException:
        sock.close()
        raise
    finally:
        remove()


def hang_up(sock: Any) -> None:
    """Wake threads that read from a socket or connect it: closing alone would not."""
    if isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    else:
        sock.close()
