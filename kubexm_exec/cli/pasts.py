"""What the commands share that look at one run of the journal: finding it, reading it, and watching it go on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubexm_exec.cli.common import fail
from kubexm_exec.cli.journaled import open_store, refuse

if TYPE_CHECKING:
    from kubexm_exec.cli.resuming import Past
    from kubexm_exec.journal.results import PastRun
    from kubexm_exec.journal.store import RunRow, Store
    from kubexm_exec.model.graph import GraphHost

LOOK: Final = 0.3
"""Seconds between two looks at a run that is followed."""


def open_past(journal: str | None, wanted: str, output: str) -> tuple[Store, Past]:
    """The journal, and the run in it that is meant; ends the program if there is none."""
    from kubexm_exec.cli.resuming import load_past

    store = open_store(journal, output, reading=True)
    return store, load_past(store, wanted, output)


def read_past(store: Store, past: Past, output: str) -> PastRun:
    """All that the journal knows of the run now."""
    from kubexm_exec.engine.history import tell
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.journal.results import PastRun, state_of

    try:
        # First the state: what a run that is over has told is all there.
        row = store.run(past.row.id)
        state = state_of(store, row)
        return PastRun(row, state, past.graph, tell(store, row.id), time.time())
    except JournalError as error:
        refuse(error, output)


def row_json(store: Store, row: RunRow) -> dict[str, Any]:
    """A run as data, as the list of runs has it."""
    from kubexm_exec.journal.results import state_of
    from kubexm_exec.model.result import timestamp

    return {
        "id": row.id, "name": row.name, "status": state_of(store, row).value, "message": row.message, "spec": row.spec,
        "target": row.target, "executor": row.executor, "startTime": timestamp(row.created),
        "endTime": timestamp(row.ended), "holder": str(row.holder), "counts": dict(row.counts),
    }  # fmt: skip


def looks(store: Store, run: str, *, follow: bool, output: str) -> Iterator[bool]:
    """Once, or while the run goes on, again and again; each time whether somebody works on it.

    The last time comes after the end of the run, so that nothing is missed.
    """
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.journal.results import is_alive

    try:
        while True:
            alive = is_alive(store, store.run(run))
            yield alive
            if not alive or not follow:
                return
            time.sleep(LOOK)
    except JournalError as error:
        refuse(error, output)


def chosen_hosts(known: Mapping[str, GraphHost], text: str, form: str) -> frozenset[str]:
    """The hosts of a run that patterns mean; ends the program if one of them means none."""
    from kubexm_exec.compile.hostpatterns import PatternError, choose
    from kubexm_exec.compile.state import CONTROL_NODE

    try:
        return frozenset(choose(known, [text], CONTROL_NODE))
    except PatternError as error:
        fail(f"hosts of the run: {error.message}", error.hint, output=form)


def check_nodes(nodes: list[str], globs: tuple[str, ...], run: str, form: str) -> None:
    """End the program if a glob of nodes means none."""
    from kubexm_exec.engine.resume import matches
    from kubexm_spec.diagnostics import did_you_mean

    for glob in globs:
        if not any(matches(node, [glob]) for node in nodes):
            fail(f'there is no node "{glob}" in run {run}', did_you_mean(glob, nodes), output=form)
