"""How threads of a run hold back and stop one another: cancel, deadlines, a semaphore, backoff, and a cache."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from msgspec import Struct

from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut

P = ParamSpec("P")
R = TypeVar("R")


class Cancel:
    """A flag that one thread sets and blocking calls of others look at; it can also call back, to wake them."""

    def __init__(self) -> None:
        self._is_set = False
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next = 0

    def set(self) -> None:
        """Cancel: wake and stop everybody who holds this."""
        self._is_set = True
        self._event.set()
        with self._lock:
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it was cancelled."""
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Wait that long or until cancelled; True if cancelled."""
        return self._event.wait(seconds)

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when cancelled (at once if it already is); the returned function takes the callback off again."""
        with self._lock:
            key = self._next
            self._next += 1
            self._callbacks[key] = callback
        if self._is_set:
            callback()

        def remove() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return remove


class Waker:
    """A descriptor that becomes readable when another thread calls ``wake``; calls after the end do nothing."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._lock = threading.Lock()
        self._open = True
        os.set_blocking(self._writer, False)

    def wake(self) -> None:
        """Make the reader readable."""
        with self._lock:
            # Without the lock the number could already be that of another file.
            if self._open:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._writer, b"!")

    def close(self) -> None:
        """Release both ends."""
        with self._lock:
            self._open = False
            os.close(self.reader)
            os.close(self._writer)


class Deadline(Struct, frozen=True):
    """A moment (``time.monotonic``) after which a blocking call gives up; ``None`` means never."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """The moment that many seconds from now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def left(self) -> float | None:
        """Seconds left (never negative), or None."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    def passed(self) -> bool:
        """Whether it is over."""
        return self.at is not None and time.monotonic() >= self.at

    def earlier(self, seconds: float | None) -> Deadline:
        """The earlier of this one and that many seconds from now."""
        if seconds is None:
            return self
        other = time.monotonic() + seconds
        return Deadline(other if self.at is None else min(self.at, other))


def raise_if_over(deadline: Deadline, cancel: Cancel, doing: str = "") -> None:
    """Raise CommandCancelled if nobody wants it any more, CommandTimedOut if there is no time left."""
    if cancel.is_set():
        raise CommandCancelled(doing)
    if deadline.passed():
        raise CommandTimedOut(doing)


def backoff(tries: int, first: float, longest: float) -> float:
    """Seconds to wait after so many tries: twice as long each time, and not the same for all that failed together."""
    import random

    return min(first * 2.0 ** min(tries - 1, 16), longest) * random.uniform(0.6, 1.2)


class Semaphore:
    """A number of places that are taken and given back."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition(threading.Lock())

    def take(self, deadline: Deadline, cancel: Cancel, waiting: Callable[[], object] | None = None) -> bool:
        """Take a place, False if none is free in time; ``waiting`` is called before a wait. Raises CommandCancelled."""
        with self._changed:
            if self._took():
                return True
        if waiting is not None:
            waiting()
        remove = cancel.on_set(self._wake)
        try:
            with self._changed:
                while True:
                    # First: those who are cancelled too give their places back, and nobody is to take them.
                    if cancel.is_set():
                        raise CommandCancelled
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


def once(function: Callable[P, R]) -> Callable[P, R]:
    """Remember what a function gives. Of threads that ask at the same time one makes it, and the others wait."""
    remembered = functools.lru_cache(maxsize=64)(function)
    lock = threading.Lock()

    @functools.wraps(function)
    def asked(*arguments: P.args, **named: P.kwargs) -> R:
        with lock:
            return remembered(*arguments, **named)  # type: ignore[arg-type]

    return asked
