"""How the input of a command gets to a channel."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubexm_exec.connectors.base import Cancel, Deadline
from kubexm_exec.connectors.sshshell import raise_if_over

if TYPE_CHECKING:
    import paramiko

_PIECE: Final = 1 << 15

Feed = Callable[["paramiko.Channel"], None]
"""Writes a command's input to its channel."""


def feed_bytes(data: bytes) -> Feed:
    """A feed of bytes that are there already; a large one is written while the output is read."""

    def feed(channel: paramiko.Channel) -> None:
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


def send(channel: paramiko.Channel, data: bytes, deadline: Deadline, cancel: Cancel) -> bool:
    """Send it all while the other side takes it; False if that has gone."""
    at = 0
    channel.settimeout(0.5)
    while at < len(data):
        try:
            sent = channel.send(data[at : at + _PIECE])
        except TimeoutError:
            raise_if_over(deadline, cancel)
            if channel.closed or channel.eof_received:
                return False
            continue
        except OSError:
            return False
        if sent == 0:
            return False
        at += sent
    return True
