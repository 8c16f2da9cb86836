"""How often a broken transfer is taken up again: some times in a row without progress, and not for ever."""

from __future__ import annotations

from typing import Final

from kubexm_exec.control import backoff

MOST_ATTEMPTS: Final = 100
LEAST_PROGRESS: Final = 1 << 16
"""Bytes by which an attempt must get further to count as progress, if it brings less than a hundredth of the whole."""
LARGEST: Final = 1 << 36
"""Bytes of the largest file that is taken."""
LEAST_SPEED: Final = 1 << 10
"""Bytes that must arrive within each timeout: less is as good as silence."""
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
        """An attempt broke when so much was here: the pause before the next one, or None if there is to be none."""
        self.made += 1
        least = LEAST_PROGRESS if total is None else min(LEAST_PROGRESS, max(1, total // 100))
        progressed = size - self._furthest >= least
        self._furthest = max(self._furthest, size)
        self._vain = 1 if progressed else self._vain + 1
        if self._vain > self._retries or self.made >= MOST_ATTEMPTS:
            return None
        return backoff(self._vain, _FIRST_PAUSE, _LONGEST_PAUSE)
