"""Runs that the journal knows: finding one, reading it, and watching it go on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, convert
from msgspec.structs import replace

from kubexm_exec.engine import entries
from kubexm_exec.engine.history import RunHistory, tell
from kubexm_exec.engine.resume import matches
from kubexm_exec.journal import leases
from kubexm_exec.journal.results import PastRun, is_alive, seconds_of, state_of
from kubexm_exec.journal.store import RunRow, Store, folder_of
from kubexm_exec.model.graph import ExecutionGraph, GraphHost
from kubexm_exec.ownership import remove_folder
from kubexm_exec.service.documents import compiled, sweep, unpacked
from kubexm_exec.service.errors import Invalid, NotFound, Unavailable
from kubexm_exec.service.requests import Documents, PruneRequest, RunDetails, RunInfo, RunRequest
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_spec.diagnostics import did_you_mean
from kubexm_spec.paths import exists

if TYPE_CHECKING:
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.result import PastChange
    from kubexm_exec.service.live import Watcher


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

    def documents(self, *, undo: bool = False) -> Documents:
        """What it was made from, where it was: texts are unpacked there again.

        Raises Invalid if that folder is gone, unless it is for an ``undo``: those that need it fail.
        """
        documents, kept = self.request.documents, self.made_from.get("withheld", ())
        folder = self.made_from["folder"] if documents.files else documents.folder
        here = replace(documents, folder=folder, files={})
        try:
            # Also if another state folder is in use by now: commands may have left something beside them.
            unpacked(documents, Path(folder).parent, kept)
            # Anywhere else its relative paths would mean other files.
            for path in (folder, *(os.path.join(folder, name) for name in kept)):  # noqa: PTH118
                if not exists(path):
                    raise Invalid(f"{path}: No such file or directory")
        except Invalid as error:
            if not undo:
                raise Invalid(f"the folder of run {self.row.id} cannot be used: {error.message}", error.hint) from error
        return here


def load_past(store: Store, wanted: str) -> Past:
    """The run of that name; raises JournalError, or Unavailable if it cannot be read."""
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
    state = state_of(store, row)
    return RunInfo(row, state, seconds_of(store, row, state))


def read_past(store: Store, past: Past) -> PastRun:
    """All that the journal knows of the run now."""
    # First the state: what a run that is over has told is all there.
    row = store.run(past.row.id)
    state = state_of(store, row)
    return PastRun(row, state, past.graph, tell(store, row.id), time.time())


def details(store: Store, wanted: str) -> RunDetails:
    """All that is known of a run."""
    from kubexm_exec.service.notifications import by_handler

    past = load_past(store, wanted)
    mine = [each for each in store.notifications(past.row.target) if each.run == past.row.id]
    due = by_handler(past.row.target, mine)
    return RunDetails(read_past(store, past), past.request, past.version, due=due)


def looks(store: Store, run: str, *, follow: bool) -> Iterator[bool]:
    """Whether the run is alive: once, or repeatedly until after its end, so that nothing is missed."""
    while True:
        alive = is_alive(store, store.run(run))
        yield alive
        if not alive or not follow:
            return
        time.sleep(LOOK)


def events(store: Store, wanted: str, *, follow: bool = False) -> Iterator[Event]:
    """What happened in a run, named as in one that goes on; what steps printed is in its log."""
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

    from kubexm_exec.journal.session import NAME, read_log
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
            there = chosen is None or not chosen.isdisjoint((piece["host"], piece.get("place", "")))
            if there and (not nodes or matches(piece["node"], nodes)):
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


def changes(store: Store, run: str, hosts: str | None, nodes: Sequence[str]) -> list[PastChange]:
    """What a run changed on its hosts; raises NotFound or Invalid if nothing is meant by a pattern.

    ``hosts`` selects what was changed on them, and what was changed elsewhere for them.
    """
    from kubexm_exec.engine.resume import matches

    past = load_past(store, run)
    seen = read_past(store, past)
    check_nodes([node.id for node in seen.whole.steps()], nodes, past.row.id)
    chosen = None if hosts is None else chosen_hosts(past.graph.hosts, hosts)
    return [
        each
        for each in seen.changes()
        if (chosen is None or not chosen.isdisjoint((each.host, each.place)))
        and (not nodes or matches(each.node, nodes))
    ]


def chosen_hosts(known: Mapping[str, GraphHost], text: str) -> frozenset[str]:
    """The hosts of a run that patterns mean; raises Invalid if one of them means none."""
    from kubexm_exec.compile.hostpatterns import PatternError, choose

    try:
        return frozenset(choose(known, [text], CONTROL_NODE))
    except PatternError as error:
        raise Invalid(f"hosts of the run: {error.message}", error.hint) from None


def check_nodes(nodes: Sequence[str], globs: Sequence[str], run: str) -> None:
    """Raise NotFound if a glob of nodes means none."""
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
    """The graph of the spec now, and its changes; None for a plan without a known spec. Raises Invalid."""
    from kubexm_exec.compile.compare import compare

    if not documents.spec:
        return None, []
    _, now = compiled(documents, watcher.found)
    return now, compare(past.graph, now)
