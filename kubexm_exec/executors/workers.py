"""Threads that perform attempts: made when they are needed, left behind when a step does not come back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from kubexm_exec.attempt import ActionOutcome, Attempt

Perform: TypeAlias = Callable[[Attempt], ActionOutcome]
"""Does what an executor does with an attempt; must not raise."""
Done: TypeAlias = tuple[Attempt, ActionOutcome]


class Workers:
    """At most ``most`` threads that take attempts and hand what they came to to ``report``."""

    def __init__(self, perform: Perform, report: Callable[[Done], None], most: int) -> None:
        self._perform = perform
        self._report = report
        self._most = most
        self._inbox: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads: dict[int, threading.Thread] = {}
        self._by_attempt: dict[int, Attempt] = {}
        self._made = 0
        self._alive = 0

    def submit(self, attempt: Attempt, busy: int) -> None:
        """Have an attempt performed; ``busy`` says how many there are now, with this one."""
        if busy > self._alive and self._alive < self._most:
            self._alive += 1
            self._made += 1
            number = self._made
            thread = threading.Thread(target=self._work, args=(number,), name=f"kubexm-worker-{number}", daemon=True)
            self._threads[number] = thread
            thread.start()
        self._inbox.put(attempt)

    def abandon(self) -> None:
        """A thread does not come back: another one may be made in its place. The attempt must be marked before."""
        self._alive -= 1

    def close(self, *, wait: bool) -> None:
        """End the threads that are idle; ``wait`` for those that will come back."""
        for _ in range(self._alive):
            self._inbox.put(None)
        for number, thread in list(self._threads.items()):
            attempt = self._by_attempt.get(number)
            if wait and not (attempt is not None and attempt.abandoned):
                thread.join()

    def _work(self, number: int) -> None:
        take, report, perform, current = self._inbox.get, self._report, self._perform, self._by_attempt
        while (attempt := take()) is not None:
            current[number] = attempt
            report((attempt, perform(attempt)))
            if attempt.abandoned:
                # Somebody else has its place already.
                return
