"""The one loop of the engine: starts what is ready, waits for what runs, and gives up attempts that do not return."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from kubexm_exec.control import Deadline
from kubexm_exec.engine import uncertain
from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.failures import cancelled, left_behind
from kubexm_exec.engine.ports import Done, MakeWorkers, Perform, Workers
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.workers import never_raising
from kubexm_exec.scheduler import Action

_LONGEST_WAIT: Final = 0.5
"""Seconds: Python handles a signal that arrives just before a wait only after it."""
_CONNECTED_GRACE: Final = 4.0
"""Further seconds for an attempt with a connection: killing a process group may take a while."""
_ABORT_GRACE: Final = 1.0
"""Seconds for killing process groups when the run must end now."""


class Loop(ABC):
    """Performs attempts in one thread, which calls all methods but ``_wake`` and ``_later``, until none is left."""

    def __init__(self, runtime: Runtime, perform: Perform, forks: int | None, workers: MakeWorkers) -> None:
        """``forks``: how many workers, or None to perform one at a time in the caller's thread."""
        self._runtime = runtime
        self._perform = never_raising(perform)
        self._events: SimpleQueue[Done | Callable[[], None] | None] = SimpleQueue()
        self._workers: Workers | None = workers(self._perform, self._events.put, forks) if forks else None
        self._running: dict[Attempt, Action] = {}
        """What has begun, or is going to, and was not given up."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()

    # For subclasses

    @abstractmethod
    def _start_ready(self) -> bool | None:
        """Start what may start; True if some of it has ended already, None if there is nothing left to do."""

    @abstractmethod
    def _finish(self, attempt: Attempt, outcome: ActionOutcome) -> None:
        """An attempt has ended, or was given up; may be called for one that was given up before."""

    # Common to all

    def _loop(self) -> None:
        runtime = self._runtime
        removers = [token.on_set(self._wake) for token in (runtime.cancel, runtime.abort)]
        if self._workers is not None:
            runtime.later = self._later
        try:
            while not runtime.abort.is_set():
                ended = self._start_ready()
                if ended is None:
                    return
                # What has ended already may have made more ready: check at once.
                self._collect(wait=not ended)
            self._end_now()
        finally:
            for remove in removers:
                remove()

    def _begin(self, attempts: Sequence[Attempt]) -> bool:
        """Perform attempts; True if they have ended already."""
        for attempt in attempts:
            attempt.begun = True
            if self._workers is None:
                self._finish(attempt, self._perform(attempt))
            elif (timeout := attempt.node.policy.timeout) is not None:
                self._at(timeout + self._runtime.options.grace, partial(self._overdue, attempt))
        if self._workers is not None:
            self._workers.submit(attempts, len(self._running))
        return self._workers is None

    def _collect(self, *, wait: bool) -> None:
        """Handle what threads report, and timers that are due; ``wait`` until there is something."""
        events, timers = self._events, self._timers
        if wait and not events.qsize():
            if not self._running and not timers:
                raise RuntimeError("actions remain, and none can start: a bug in kubexm")
            left = timers[0][0] - time.monotonic() if timers else _LONGEST_WAIT
            if left > 0:
                with contextlib.suppress(Empty):
                    self._take(events.get(timeout=min(left, _LONGEST_WAIT)))
        for _ in range(events.qsize()):
            self._take(events.get())
        if timers:
            now = time.monotonic()
            while timers and timers[0][0] <= now:
                heapq.heappop(timers)[2]()

    def _take(self, event: Done | Callable[[], None] | None) -> None:
        if type(event) is tuple:
            self._finish(*event)
        elif callable(event):
            event()

    def _wake(self) -> None:
        self._events.put(None)

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), what))

    def _later(self, seconds: float, what: Callable[[], None], /) -> None:
        """The same for other threads: only the loop's own touches the timers."""
        self._events.put(lambda: self._at(seconds, what))

    def _overdue(self, attempt: Attempt, *, by_cancel: bool = False, patient: bool = True) -> None:
        """An attempt should have returned by now: abandon its thread and go on without it."""
        if attempt not in self._running or self._workers is None:
            return
        if not attempt.begun:
            self._finish(attempt, ActionOutcome(cancelled(attempt)))
            return
        if patient and attempt.connected:
            self._at(_CONNECTED_GRACE, partial(self._overdue, attempt, by_cancel=by_cancel, patient=False))
            return
        attempt.abandoned = True
        self._workers.abandon()
        outcome = ActionOutcome(left_behind(attempt, by_cancel=by_cancel))
        uncertain.left(attempt, outcome)
        self._finish(attempt, outcome)

    def _end_now(self) -> None:
        """Wait briefly for what is being killed."""
        deadline = Deadline.after(_ABORT_GRACE)
        while self._running and not deadline.passed():
            try:
                self._take(self._events.get(timeout=deadline.left()))
            except Empty:
                break
        for attempt in list(self._running):
            attempt.abandoned = True
            result = left_behind(attempt, by_cancel=True) if attempt.begun else cancelled(attempt)
            self._finish(attempt, ActionOutcome(result))

    def _close(self) -> None:
        """End the workers; those that still run are not waited for."""
        if self._workers is not None:
            self._workers.close(wait=not self._running)
