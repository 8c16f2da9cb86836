"""So many at once: whoever waits for a turn stops waiting when the time is over or the run is cancelled."""

from __future__ import annotations

import threading

from kubexm_exec.connectors.base import Cancel, CommandCancelled, Deadline


class Turns:
    """A number of places that are taken and given back."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition(threading.Lock())

    def take(self, deadline: Deadline, cancel: Cancel) -> bool:
        """Take a place; False if none was free in time. Raises CommandCancelled."""
        with self._changed:
            if self._took():
                return True
        remove = cancel.on_set(self._wake)
        try:
            with self._changed:
                while True:
                    # First: those who are cancelled too give their places back, and nobody is to take them.
                    if cancel.is_set():
                        raise CommandCancelled("it was cancelled")
                    if self._took():
                        return True
                    if deadline.passed():
                        return False
                    self._changed.wait(deadline.left())
        finally:
            remove()

    def give_back(self) -> None:
        """Let the next one have the place."""
        with self._changed:
            self._free += 1
            self._changed.notify()

    def _took(self) -> bool:
        if self._free:
            self._free -= 1
            return True
        return False

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
