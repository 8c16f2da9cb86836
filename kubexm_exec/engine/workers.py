"""Threads that perform attempts: created on demand, abandoned when a step does not return."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.failures import TRACEBACK, failed
from kubexm_exec.engine.ports import Done, Perform


def never_raising(perform: Perform) -> Perform:
    """The same, but an executor's exception is a failure: a dead thread would leave the run waiting forever."""

    def guarded(attempt: Attempt) -> ActionOutcome:
        try:
            outcome = perform(attempt)
            if not isinstance(outcome, ActionOutcome):
                raise TypeError(f"perform must return an ActionOutcome, not {type(outcome).__name__}")
        except BaseException as error:  # noqa: BLE001  it becomes the action's failure, with its traceback
            result = failed(attempt, error)
            if result.traceback:
                result.hint = f"executor {who} raised it; {TRACEBACK}"
            return ActionOutcome(result)
        return outcome

    owner = getattr(perform, "__self__", None)
    who = f"{type(owner).__module__}.{type(owner).__qualname__}" if owner is not None else perform.__qualname__
    return guarded


class Threads:
    """At most ``most`` threads that take attempts and ``report`` their outcomes."""

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
        """Perform attempts; ``busy``: how many there are now, with these."""
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
        """Wake one thread, unless one is waking up already: it wakes the next one before it begins.

        Waking a thread for every attempt would cost more than a short attempt; a thread that finishes at once takes the
        next ones, too.
        """
        if not self._rung:
            self._rung = True
            self._bell.put(True)

    def abandon(self) -> None:
        """A thread does not return: another one may be created in its place. The attempt must be marked before."""
        self._alive -= 1

    def close(self, *, wait: bool) -> None:
        """End idle threads; ``wait`` for those that will return."""
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
                    # Another thread has taken its place.
                    return
