"""Removes old runs that are of no use any more, and frees their space."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubexm_exec.journal import leases
from kubexm_exec.journal.results import is_alive
from kubexm_exec.journal.store import RunRow, Store, folder_of
from kubexm_exec.ownership import remove_folder
from kubexm_exec.service.documents import sweep
from kubexm_exec.service.past import NEEDS_ALL, info
from kubexm_exec.service.requests import PruneRequest, RunInfo


def prunable(store: Store, request: PruneRequest) -> list[RunInfo]:
    """The runs that are old enough, and of no use any more."""
    rows, before = store.runs(limit=NEEDS_ALL), time.time() - request.age
    found = old(store, rows, request.keep, before, everything=request.everything)
    return [info(store, row) for row in found]


def old(store: Store, rows: Sequence[RunRow], keep: int, before: float, *, everything: bool) -> Iterator[RunRow]:
    """Those of the runs (given newest first) that can be removed."""
    good: set[tuple[str, str]] = set()
    for number, row in enumerate(rows):
        of = (row.spec, row.target)
        # The newest success is needed by drift; what left something to do and has had no success since, by a resume.
        needed = of not in good and row.status != "RolledBack"
        if row.status == "Success" and not (row.counts.get("failed") or row.counts.get("unreachable")):
            good.add(of)
        if number < keep or row.created > before or (needed and not everything) or is_alive(store, row):
            continue
        yield row


def prune(store: Store, state: Path, runs: Sequence[str]) -> int:
    """Forget runs; says how many are left. Raises UnknownRunError, or HeldError for one that goes on by now."""
    sweep(state)
    rows = {row.id: row for row in map(store.run, runs)}
    try:
        for row in rows.values():
            # The journal first: a folder without a run is only lost space. One at a time: others want to write, too.
            leases.remove(store, row)
            remove_folder(folder_of(state, row.id))
    finally:
        store.give_back()
    return len(store.runs(limit=NEEDS_ALL))
