"""The same work for many, side by side, in a command that an interrupt ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from kubexm_exec.cli import codes

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kubexm_exec.control import Cancel

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Sequence[T], at_once: int, cancel: Cancel) -> Iterator[R]:
    """The results in the order of the items.

    The first Ctrl-C sets ``cancel``, waits for what has begun and raises KeyboardInterrupt; the second ends the
    program. It is not raised where it happens to come: in the middle of a lock that the threads need as well nobody
    would let go of that lock, and they would never end.
    """
    from concurrent.futures import ThreadPoolExecutor

    news: SimpleQueue[Future[R] | None] = SimpleQueue()
    pressed = False

    def interrupted(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            os._exit(codes.INTERRUPTED)
        pressed = True
        news.put(None)

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with ThreadPoolExecutor(max(1, min(at_once, len(items)))) as threads:
            futures = [threads.submit(work, item) for item in items]
            for future in futures:
                future.add_done_callback(news.put)
            for future in futures:
                while not (pressed or future.done()):
                    _look(news)
                if pressed:
                    break
                yield future.result()
            if pressed:
                cancel.set()
                threads.shutdown(wait=False, cancel_futures=True)
                while not all(future.done() for future in futures):
                    _look(news)
                raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, before)


def _look(news: SimpleQueue[Any]) -> None:
    """Wait for something to happen; not for long: Python would not see an interrupt that comes just before."""
    with suppress(Empty):
        news.get(timeout=0.5)
