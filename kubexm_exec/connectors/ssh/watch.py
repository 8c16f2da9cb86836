"""Waiting for a channel: for data, for its end, and for a cancel."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from kubexm_exec.control import Cancel

if TYPE_CHECKING:
    import paramiko

    from kubexm_exec.connectors.ssh.transport import HostTransport

_LAST_OUTPUT: Final = 1.0
_PATIENCE: Final = 0.02


class Watch:
    """Wakes the reader of a channel when data arrives, when it closes, and on a cancel."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self.patient = False
        """Whether output does not wake the reader at once: a short command soon ends, and its end does.

        After it is cleared, read once more before the next wait.
        """
        self._event = threading.Event()
        channel.in_buffer.set_event(_OutputBell(self._event, self))  # type: ignore[arg-type]
        channel.in_stderr_buffer.set_event(_Bell(self._event))  # type: ignore[arg-type]
        self._exit = cast("HostTransport", channel.transport).exit_of(channel)
        self._exit.wake = self._event.set

    @contextlib.contextmanager
    def until(self, cancel: Cancel) -> Iterator[None]:
        """Inside, a cancel wakes the reader too."""
        remove = cancel.on_set(self._event.set)
        try:
            yield
        finally:
            remove()

    def left(self) -> float | None:
        """Seconds in which the last output of an ended process may still arrive; None while it runs."""
        seen = self._exit.seen
        return None if seen is None else max(0.0, seen + _LAST_OUTPUT - time.monotonic())

    def clear(self) -> None:
        """Clear the event, before reading."""
        self._event.clear()

    def wait(self, seconds: float | None) -> None:
        """Wait until something happens, or that long."""
        if not self.patient:
            self._event.wait(seconds)
        elif not self._event.wait(_PATIENCE if seconds is None else min(seconds, _PATIENCE)):
            self.patient = False


class _Bell:
    """The event of a buffer of paramiko; an empty buffer must not clear what the other one has set."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def set(self) -> None:
        # Setting it takes a lock, and most often it is set already.
        if not self._event.is_set():
            self._event.set()

    def clear(self) -> None:
        """Only the reader clears it."""


class _OutputBell(_Bell):
    """The event for output, which a patient watch ignores."""

    def __init__(self, event: threading.Event, watch: Watch) -> None:
        super().__init__(event)
        self._watch = watch

    def set(self) -> None:
        if not self._watch.patient:
            super().set()
