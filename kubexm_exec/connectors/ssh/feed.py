"""The input of a command, written to its channel."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from kubexm_exec.connectors.base import Readable, chunks
from kubexm_exec.connectors.ssh.shell import Exchange
from kubexm_exec.control import Cancel, Deadline, raise_if_over

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

_LEAST: Final = 1 << 15
_MOST: Final = 1 << 19
"""Bytes per send: more is less work, less notices a stop sooner on a slow line."""
_QUICK, _SLOW = 0.05, 0.2
"""Seconds below, or above, which the next send has more bytes, or fewer."""
_STUCK: Final = 0.2
"""Seconds after which the output of a command that accepts no input is read: perhaps it waits for that."""

Feed = Callable[[Exchange], None]
"""Writes a command's input to its channel."""


def feed_bytes(data: bytes) -> Feed:
    """A feed of bytes; many are written while the output is read."""

    def feed(exchange: Exchange) -> None:
        channel = exchange.channel

        def write() -> None:
            # The command may end without reading all of it, as in a pipeline.
            with contextlib.suppress(OSError):
                channel.sendall(data)
                channel.shutdown_write()

        channel.settimeout(None)
        if len(data) < channel.out_window_size:
            write()
        else:
            # Ends with the channel at the latest.
            threading.Thread(target=write, name="kubexm-stdin", daemon=True).start()

    return feed


def feed_stream(source: bytes | Readable, deadline: Deadline, cancel: Cancel) -> Feed:
    """A feed of a stream; the output is read in between."""

    def feed(exchange: Exchange) -> None:
        exchange.channel.settimeout(_STUCK)
        pace = _Pace()
        for chunk in chunks(source, _MOST, deadline, cancel):
            if not _send(exchange, chunk, pace, deadline, cancel):
                return
        # A command that has ended does not wait for it.
        with contextlib.suppress(OSError):
            exchange.channel.shutdown_write()

    return feed


class _Pace:
    """How many bytes to send at once."""

    def __init__(self) -> None:
        self.size = _LEAST

    def took(self, seconds: float) -> None:
        """Adapt to the time that the last send has taken."""
        if seconds < _QUICK:
            self.size = min(2 * self.size, _MOST)
        elif seconds > _SLOW:
            self.size = max(self.size // 2, _LEAST)


def _send(exchange: Exchange, data: bytes, pace: _Pace, deadline: Deadline, cancel: Cancel) -> bool:
    """Send everything; False if the other side has ended."""
    channel: paramiko.Channel = exchange.channel
    transport = cast("HostTransport", channel.transport)
    left = memoryview(data)
    while left:
        begun = time.monotonic()
        try:
            sent = transport.send_some(channel, left[: pace.size])
        except TimeoutError:
            raise_if_over(deadline, cancel)
            if channel.closed or channel.eof_received:
                return False
            sent = -1
        except OSError:
            return False
        if sent == 0:
            return False
        left = left[max(sent, 0) :]
        pace.took(time.monotonic() - begun)
        if exchange.read() and exchange.over:
            return False
    return True
