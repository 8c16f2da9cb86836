"""Rolls a run back: says what cannot be undone, and undoes the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kubexm_exec.engine.history import tell, whole_graph, with_earlier
from kubexm_exec.executors.rollback import RollbackExecutor, broken_off, remaining, was_undone
from kubexm_exec.journal.session import Session
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import DEFAULT_EXECUTOR, Status
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.live import LiveRun, Watcher, begun, patience
from kubexm_exec.service.past import Past, check_broken_off, info, load_past
from kubexm_exec.service.requests import Outcome, RollbackRequest, Undoable

if TYPE_CHECKING:
    from kubexm_exec.journal.store import RunRow, Store
    from kubexm_exec.scheduler import Action

_NEWEST: Final = 1000
"""How many runs are looked through for later ones."""


def undoable(store: Store, request: RollbackRequest) -> Undoable:
    """What a rollback would do; raises Invalid if that is nothing."""
    past = load_past(store, request.run)
    history = tell(store, past.row.id)
    can, cannot = remaining(history)
    check_broken_off(history, (*request.again, *request.undone), past.row.id)
    if not can:
        raise Invalid(f"there is nothing to undo in run {past.row.id}", f"kubexm runs show {past.row.id}")
    return Undoable(info(store, past.row), can, cannot, list(_blind(past, can)), _later(store, past.row))


def roll_back(store: Store, state: Path, request: RollbackRequest, watcher: Watcher) -> Outcome:
    """Undo what a run has done; raises Invalid, NotFound or JournalError."""
    # `last` may mean another run in a moment.
    run = undoable(store, request).info.row.id
    past = load_past(store, run)
    # An undo uses no resources: their bundle may be gone.
    asked = replace(
        past.request, documents=replace(past.documents(state), bundle=None), executor=DEFAULT_EXECUTOR,
        verbose=request.verbose, overwrite=request.overwrite,
    )  # fmt: skip
    with begun(Session.go_on(store, state, run, "rollback", wait=patience(watcher, request.wait))) as session:
        for key in broken_off(tell(store, run), request.undone):
            session.recorder.write(was_undone(key))
        history = tell(store, run)
        # What a changed spec has no more was done all the same.
        before = (ExecutionGraph.from_json(each["graph"]) for each in store.all_made_from(run))
        graph = whole_graph(with_earlier(past.graph, before), history)
        live = LiveRun(graph, asked, run_id=run)
        live.make_executor = lambda: RollbackExecutor(history, request.again)
        live.success = Status.ROLLED_BACK.value
        live.left = frozenset(remaining(history)[0]).__contains__
        watcher.attach(live)
        live.keep(session, history)
    return live.execute(watcher)


def _blind(past: Past, actions: Sequence[Action]) -> Iterator[str]:
    """The nodes whose step types do not check for later changes before they undo something."""
    from kubexm_exec.plugins import RegistryError, step_registry
    from kubexm_exec.step import Step

    registry = step_registry()
    for node in dict.fromkeys(action.node for action in actions):
        of = past.graph.nodes.get(node)
        try:
            if of is not None and registry.load(of.step_name).standing is Step.standing:
                yield node
        except RegistryError:
            continue


def _later(store: Store, row: RunRow) -> list[RunRow]:
    """The runs that may have changed something on the same target since, the newest first, if that still stands."""
    # An id begins with the time.
    newer = (each for each in store.runs(limit=_NEWEST) if each.id > row.id and each.target == row.target)
    # An interrupted run has no counts.
    return [each for each in newer if each.counts.get("changed", 1) and each.status != Status.ROLLED_BACK.value]
