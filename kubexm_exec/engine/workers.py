"""Threads that perform attempts: made when they are needed, left behind when a step does not come back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.failures import failed
from kubexm_exec.engine.ports import Done, Perform


def never_raising(perform: Perform) -> Perform:
    """A thread that dies of an executor's mistake would leave the run waiting for ever."""

    def guarded(attempt: Attempt) -> ActionOutcome:
        try:
            return perform(attempt)
        except BaseException as error:  # noqa: BLE001  it is reported as the action's failure, with its traceback
            return ActionOutcome(failed(attempt, error))

    return guarded


class Threads:
    """At most ``most`` threads that take attempts and hand what they came to to ``report``."""

    def __init__(self, perform: Perform, report: Callable[[Done], None], most: int) -> None:
        self._perform = perform
        self._report = report
        self._most = most
        self._todo: deque[Attempt] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._rung = False
        self._threads: dict[int, threading.Thread] = {}
        self._by_attempt: dict[int, Attempt] = {}
        self._made = 0
        self._alive = 0

    def submit(self, attempts: Sequence[Attempt], busy: int) -> None:
        """Have attempts performed; ``busy`` says how many there are now, with these."""
        while self._alive < min(busy, self._most):
            self._alive += 1
            self._made += 1
            number = self._made
            thread = threading.Thread(target=self._work, args=(number,), name=f"kubexm-worker-{number}", daemon=True)
            self._threads[number] = thread
            thread.start()
        self._todo.extend(attempts)
        self._ring()

    def _ring(self) -> None:
        """Wake one thread, unless one is on its way already: it wakes the next one before it begins.

        Waking a thread for every attempt would cost more than a short attempt itself; a thread that is through at once
        takes the next ones along.
        """
        if not self._rung:
            self._rung = True
            self._bell.put(True)

    def abandon(self) -> None:
        """A thread does not come back: another one may be made in its place. The attempt must be marked before."""
        self._alive -= 1

    def close(self, *, wait: bool) -> None:
        """End the threads that are idle; ``wait`` for those that will come back."""
        for _ in range(self._alive):
            self._bell.put(False)
        for number, thread in list(self._threads.items()):
            attempt = self._by_attempt.get(number)
            if wait and not (attempt is not None and attempt.abandoned):
                thread.join()

    def _work(self, number: int) -> None:
        todo, report, perform, current = self._todo, self._report, self._perform, self._by_attempt
        while self._bell.get():
            # From here on a new attempt rings again, or is seen below.
            self._rung = False
            while todo:
                try:
                    attempt = todo.popleft()
                except IndexError:
                    break  # another thread was faster
                if todo:
                    self._ring()
                current[number] = attempt
                report((attempt, perform(attempt)))
                if attempt.abandoned:
                    # Somebody else has its place already.
                    return
