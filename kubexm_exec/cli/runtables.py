"""Runs as tables and texts for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubexm_exec.journal.store import RunRow


def list_runs(rows: Sequence[RunRow]) -> str:
    """The newest runs, a line each."""
    from kubexm_exec.cli.runs import state_of
    from kubexm_exec.console.text import columns
    from kubexm_spec.duration import format_duration

    if not rows:
        return "there is no run yet: kubexm-run SPEC makes one"
    cells = [["run", "name", "status", "began", "took", "what"]]
    for row in rows:
        took = format_duration(row.ended - row.created) if row.ended is not None else ""
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created))
        cells.append([row.id, row.name, state_of(row), began, took, row.message])
    return "\n".join(columns(cells, left=frozenset({0, 1, 2, 3, 5})))
