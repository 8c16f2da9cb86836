"""Runs that the journal knows: finding one, reading it, and watching it go on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, convert
from msgspec.structs import replace

from kubexm_exec.service.errors import Invalid, NotFound, Unavailable
from kubexm_exec.service.requests import Documents, RunDetails, RunInfo, RunRequest

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.engine.history import RunHistory
    from kubexm_exec.journal.results import PastRun
    from kubexm_exec.journal.store import RunRow, Store
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.graph import ExecutionGraph, GraphHost
    from kubexm_exec.service.live import Watcher

LOOK: Final = 0.3
"""Seconds between two looks at a run that is followed."""
NEEDS_ALL: Final = 1_000_000


class Past(Struct):
    """A run as the journal has it, ready to be resumed."""

    row: RunRow
    request: RunRequest
    version: str
    made_from: Mapping[str, Any]
    graph: ExecutionGraph
    """As it was compiled, without what was added while it ran."""

    def documents(self, state: Path) -> Documents:
        """What it was made from, where it was: texts are unpacked again. Raises Invalid if that folder is gone."""
        from kubexm_exec.journal.store import folder_of
        from kubexm_exec.service.documents import unpacked

        documents, run = self.request.documents, self.row.id
        if documents.files:
            documents = unpacked(documents, folder_of(state, run))
        # Anywhere else its relative paths would mean other files.
        folder = self.made_from.get("folder") or documents.folder
        if folder != documents.folder or not os.path.isdir(folder):  # noqa: PTH112
            why = "No such file or directory" if folder == documents.folder else "not in the state folder in use"
            raise Invalid(f"the folder of run {run} cannot be used: {folder}: {why}")
        return documents


def load_past(store: Store, wanted: str) -> Past:
    """The run of that name; raises JournalError, or Unavailable if it cannot be read."""
    from kubexm_exec.model.graph import ExecutionGraph

    row = store.run(wanted)
    made_from = store.made_from(row.id)
    try:
        graph = replace(ExecutionGraph.from_json(made_from["graph"]), target=made_from["target"])
        request = convert(store.asked_for(row.id), RunRequest)
    except ValueError as error:
        raise Unavailable(f"run {row.id} cannot be used by this version of kubexm: {error}", kind="journal") from None
    return Past(row, request, str(made_from.get("version", "")), made_from, graph)


def info(store: Store, row: RunRow) -> RunInfo:
    """A run, with how it stands now."""
    from kubexm_exec.journal.results import state_of

    return RunInfo(row, state_of(store, row))


def read_past(store: Store, past: Past) -> PastRun:
    """All that the journal knows of the run now."""
    from kubexm_exec.engine.history import tell
    from kubexm_exec.journal.results import PastRun, state_of

    # First the state: what a run that is over has told is all there.
    row = store.run(past.row.id)
    state = state_of(store, row)
    return PastRun(row, state, past.graph, tell(store, row.id), time.time())


def details(store: Store, wanted: str) -> RunDetails:
    """All that is known of a run."""
    past = load_past(store, wanted)
    return RunDetails(read_past(store, past), past.request, past.version)


def looks(store: Store, run: str, *, follow: bool) -> Iterator[bool]:
    """Once, or while the run goes on, repeatedly; each time whether it is alive.

    The last time comes after the end of the run, so that nothing is missed.
    """
    from kubexm_exec.journal.results import is_alive

    while True:
        alive = is_alive(store, store.run(run))
        yield alive
        if not alive or not follow:
            return
        time.sleep(LOOK)


def events(store: Store, wanted: str, *, follow: bool = False) -> Iterator[Event]:
    """What happened in a run, named as in one that goes on; what steps printed is in its log."""
    from kubexm_exec.engine import entries
    from kubexm_exec.journal.replay import Retelling

    past = load_past(store, wanted)
    retell = Retelling(past.row, past.graph, past.request.forks)
    last, alive = 0, False
    for now_alive in looks(store, past.row.id, follow=follow):
        alive = now_alive
        for seq, _, group in store.entries(past.row.id, last, read=entries.read):
            last = seq
            for entry in group:
                yield from retell(entry)
    if not alive:
        yield from retell.broke_off()


def logs(
    store: Store, state: Path, run: str, hosts: str | None, nodes: Sequence[str], *, follow: bool
) -> Iterator[Event]:
    """What steps printed, whole and in order: it is kept beside the journal, where they ran. Raises NotFound."""
    import socket

    from kubexm_exec.engine.resume import matches
    from kubexm_exec.journal.logfile import NAME, read_log
    from kubexm_exec.journal.store import folder_of
    from kubexm_exec.model.events import ACTION_OUTPUT, Event

    past = load_past(store, run)
    row = past.row
    # What was added to the graph while it ran may have printed something, too.
    check_nodes([node.id for node in read_past(store, past).whole.steps()], nodes, row.id)
    chosen = None if hosts is None else chosen_hosts(past.graph.hosts, hosts)
    folder = folder_of(state, row.id)
    offset, said = 0, False
    for alive in looks(store, row.id, follow=follow):
        for after, piece in read_log(folder, offset):
            offset, said = after, True
            if (chosen is None or piece["host"] in chosen) and (not nodes or matches(piece["node"], nodes)):
                data = {key: value for key, value in piece.items() if key not in ("time", "node", "host")}
                yield Event(ACTION_OUTPUT, row.id, piece["time"], piece["node"], piece["host"], data)
        if not said and not (folder / NAME).exists() and not (alive and follow):
            if row.holder.host == socket.gethostname():
                message = f"the steps of run {row.id} have no output (the log would be in {folder})"
                raise NotFound(message, kind="no-output")
            raise NotFound(
                f"the log of run {row.id} is not here: it was run on {row.holder.host} by {row.holder.user}",
                f"run this command there, or see the end of every output: kubexm runs report {row.id} -o FILE",
                kind="elsewhere",
            )


def chosen_hosts(known: Mapping[str, GraphHost], text: str) -> frozenset[str]:
    """The hosts of a run that patterns mean; raises Invalid if one of them means none."""
    from kubexm_exec.compile.hostpatterns import PatternError, choose
    from kubexm_exec.values.evaluate import CONTROL_NODE

    try:
        return frozenset(choose(known, [text], CONTROL_NODE))
    except PatternError as error:
        raise Invalid(f"hosts of the run: {error.message}", error.hint) from None


def check_nodes(nodes: Sequence[str], globs: Sequence[str], run: str) -> None:
    """Raise NotFound if a glob of nodes means none."""
    from kubexm_exec.engine.resume import matches
    from kubexm_spec.diagnostics import did_you_mean

    for glob in globs:
        if not any(matches(node, [glob]) for node in nodes):
            raise NotFound(f'there is no node "{glob}" in run {run}', did_you_mean(glob, nodes))


def check_broken_off(history: RunHistory, globs: Sequence[str], run: str) -> None:
    """Raise Invalid if a confirmed undo was not interrupted."""
    from kubexm_exec.executors.rollback import broken_off

    for glob in globs:
        if not broken_off(history, [glob]):
            raise Invalid(f'no undo of "{glob}" was interrupted in run {run}', f"kubexm runs show {run}")


def changes_since(past: Past, documents: Documents, watcher: Watcher) -> tuple[ExecutionGraph | None, list[NodeChange]]:
    """The graph of the spec as it is now, and what is not as it was; None for a plan of which no spec is known.

    Raises Invalid.
    """
    from kubexm_exec.compile.compare import compare
    from kubexm_exec.service.documents import compiled

    if not documents.spec:
        return None, []
    _, now = compiled(documents, watcher.found)
    return now, compare(past.graph, now)
