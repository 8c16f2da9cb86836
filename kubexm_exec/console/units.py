"""Sizes and progress in units that people read."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_ITEMS: Final = 10_000
"""Progress with a smaller total counts items, with a larger one bytes: few things are done in that many pieces."""


def format_size(size: float) -> str:
    """``512 B``, ``18.4 MB``, ``1.2 GB``: powers of 1000, as disks and networks are sold."""
    number, unit = _scaled(size, _unit(size))
    return f"{number} {unit}"


def format_progress(done: float | None, total: float | None) -> str:
    """``12.1/18.4 MB``, ``3/12``, or how much is done where the end is not known; empty if nothing is known."""
    if total is None or total <= 0:
        return "" if not done or done < 0 else (f"{done:g}" if done < _ITEMS else format_size(done))
    done = min(max(done or 0.0, 0.0), total)
    if total < _ITEMS:
        return f"{done:g}/{total:g}"
    power = _unit(total)
    return f"{_scaled(done, power)[0]}/{format_size(total)}"


def _unit(size: float) -> int:
    power = 0
    # 999.95 kB would be shown as 1000.0 kB.
    while abs(size) >= (999.5 if power == 0 else 999.95) and power < len(_UNITS) - 1:
        size /= 1000
        power += 1
    return power


def _scaled(size: float, power: int) -> tuple[str, str]:
    return (f"{size:.0f}" if power == 0 else f"{size / 1000**power:.1f}"), _UNITS[power]
