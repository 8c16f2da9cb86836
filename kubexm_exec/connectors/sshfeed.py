"""How the input of a command gets to a channel."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubexm_exec.connectors.base import Cancel, Deadline, Readable
from kubexm_exec.connectors.sshfiles import chunks
from kubexm_exec.connectors.sshshell import Exchange, raise_if_over

if TYPE_CHECKING:
    import paramiko

_PIECE: Final = 1 << 15
_STUCK: Final = 0.2
"""Seconds after which somebody who takes no more input is looked at: perhaps they wait until their output is read."""

Feed = Callable[[Exchange], None]
"""Writes a command's input to its channel."""


def feed_bytes(data: bytes) -> Feed:
    """A feed of bytes that are there already; a large one is written while the output is read."""

    def feed(exchange: Exchange) -> None:
        channel = exchange.channel

        def write() -> None:
            # The command may end without reading all of it; that is its own business, as in a shell's pipeline.
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
    """A feed of what is read piece by piece; the output is read in between."""

    def feed(exchange: Exchange) -> None:
        exchange.channel.settimeout(_STUCK)
        for chunk in chunks(source, deadline, cancel):
            if not _send(exchange, chunk, deadline, cancel):
                return
        # Whoever has gone does not wait for an end.
        with contextlib.suppress(OSError):
            exchange.channel.shutdown_write()

    return feed


def _send(exchange: Exchange, data: bytes, deadline: Deadline, cancel: Cancel) -> bool:
    """Send it all while the other side takes it; False if that has gone."""
    channel: paramiko.Channel = exchange.channel
    at = 0
    while at < len(data):
        try:
            sent = channel.send(data[at : at + _PIECE])
        except TimeoutError:
            raise_if_over(deadline, cancel)
            if channel.closed or channel.eof_received:
                return False
            sent = -1
        except OSError:
            return False
        if sent == 0:
            return False
        at += max(sent, 0)
        if exchange.read() and exchange.over:
            return False
    return True
