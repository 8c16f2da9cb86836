"""What is to be done at a later moment, by the driver's own thread."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable


class Timers:
    """Calls back when it is time; whoever owns it looks at it."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something in so many seconds."""
        heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._count), what))

    def left(self) -> float | None:
        """Seconds until the next one is due (below 0 if it is), or None."""
        return self._heap[0][0] - time.monotonic() if self._heap else None

    def run_due(self) -> None:
        """Do what it is time for."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2]()
