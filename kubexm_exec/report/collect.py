"""Remembers of a run's events what a report adds to its result, and no more than that."""

from __future__ import annotations

from typing import Final

from kubexm_exec.model.events import ACTION_FORECAST, ACTION_RETRY, GRAPH_EXTENDED, LOG, RUN_STOPPING, Event

MOST: Final = 20_000
_WANTED: Final = frozenset({ACTION_FORECAST, ACTION_RETRY, GRAPH_EXTENDED, LOG, RUN_STOPPING})


class ReportEvents:
    """A subscriber; hand its ``events`` to ``render_report``."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep it, if a report tells something of it and there are not too many yet."""
        if event.kind not in _WANTED or len(self.events) >= MOST:
            return
        # Only a dry run's forecasts say more than the result does.
        if event.kind != ACTION_FORECAST or "params" in event.data:
            self.events.append(event)
