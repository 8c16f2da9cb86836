"""How often an interrupted transfer is resumed: some times in a row without progress, and not for ever."""

from __future__ import annotations

from typing import Final

from kubexm_exec.control import backoff

MOST_ATTEMPTS: Final = 100
LEAST_PROGRESS: Final = 1 << 16
"""Bytes that count as progress of an attempt, unless a hundredth of the whole is less."""
LARGEST: Final = 1 << 36
"""Bytes of the largest file that is accepted."""
LEAST_SPEED: Final = 1 << 10
"""Bytes that must arrive within each timeout."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0


class Attempts:
    """The attempts of one transfer."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._vain = 0
        self._furthest = 0
        self.made = 0

    def broke(self, size: int, total: int | None) -> float | None:
        """Seconds before the next attempt, after one was interrupted at that size; None if there is no next one."""
        self.made += 1
        least = LEAST_PROGRESS if total is None else min(LEAST_PROGRESS, max(1, total // 100))
        progressed = size - self._furthest >= least
        self._furthest = max(self._furthest, size)
        self._vain = 1 if progressed else self._vain + 1
        if self._vain > self._retries or self.made >= MOST_ATTEMPTS:
            return None
        return backoff(self._vain, _FIRST_PAUSE, _LONGEST_PAUSE)
