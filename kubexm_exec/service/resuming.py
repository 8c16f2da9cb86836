"""Resumes a run: compares the spec with what it was, and runs what is not done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kubexm_exec.engine.history import Known, RunHistory, staying, tell, whole_graph
from kubexm_exec.engine.resume import Selection, in_doubt, known_actions, seen_done, to_repeat
from kubexm_exec.executors.rollback import ResumedExecutor, broken_off, was_undone
from kubexm_exec.journal.session import Session
from kubexm_exec.model.events import RUN_RESUMED
from kubexm_exec.model.result import GraphExecutionResult, Status
from kubexm_exec.scheduler import Action
from kubexm_exec.service.errors import Changed, Invalid, said_changes
from kubexm_exec.service.live import LiveRun, Watcher, begun, patience
from kubexm_exec.service.past import Past, changes_since, check_broken_off, check_nodes, chosen_hosts, load_past
from kubexm_exec.service.requests import Documents, Outcome, ResumeRequest

if TYPE_CHECKING:
    from kubexm_exec.engine.entries import Entry, Repeat
    from kubexm_exec.journal.store import Store
    from kubexm_exec.model.graph import ExecutionGraph


def resume(store: Store, state: Path, request: ResumeRequest, watcher: Watcher) -> Outcome:
    """Resume a run; raises Changed, Invalid, NotFound or JournalError."""
    past = load_past(store, request.run)
    run = past.row.id
    check_nodes([node.id for node in past.graph.steps()], (*request.begin, *request.only), run)
    hosts = None if request.hosts is None else chosen_hosts(past.graph.hosts, request.hosts)
    if request.accept_changes and (request.only or hosts is not None):
        raise Invalid("changes are accepted for the whole run", "do not select nodes or hosts")
    selection = Selection(begin=request.begin, only=request.only, hosts=hosts, done=request.done)
    documents = past.documents(state)
    graph, selection, changed = _graph_now(past, documents, selection, request, watcher)
    history = tell(store, run)
    for glob in selection.done:
        if not in_doubt(history, [glob]):
            raise Invalid(f'no outcome of "{glob}" is unknown in run {run}', f"kubexm runs show {run}")
    check_broken_off(history, (*request.again, *request.undone), run)
    made_from = {**past.made_from, "graph": graph.to_json()} if changed else None
    taken_on = Session.go_on(
        store, state, run, "resume", made_from, wait=patience(watcher, request.wait),
        first=lambda: _first(graph, tell(store, run), selection, request.undone),
    )  # fmt: skip
    with begun(taken_on) as session:
        history = tell(store, run)
        graph = staying(graph, history)
        whole = whole_graph(graph, history)
        known = known_actions(whole, history, selection)
        asked = replace(
            past.request, documents=documents, forks=past.request.forks if request.forks is None else request.forks,
            verbose=request.verbose, overwrite=request.overwrite, patient=request.patient or past.request.patient,
        )  # fmt: skip
        live = LiveRun(graph, asked, run_id=run)
        live.runtime.prior = known
        live.left = lambda action: action not in known or known[action].outcome is None
        chosen = live.make_executor
        live.make_executor = lambda: ResumedExecutor(chosen, request.again)
        live.sessions = history.sessions
        watcher.attach(live)
        live.keep(session, history)
        _tell_done(live, whole.actions(), list(known.values()))
    return live.execute(watcher, lambda result: selection.partial and _is_well(live, result, known))


def _graph_now(
    past: Past, documents: Documents, selection: Selection, request: ResumeRequest, watcher: Watcher
) -> tuple[ExecutionGraph, Selection, bool]:
    """The graph to resume with, the selection of what has changed, and whether anything has; raises Changed."""
    from kubexm_exec.compile.compare import compare_hosts

    now, changes = changes_since(past, documents, watcher)
    if now is None or not (changes or compare_hosts(past.graph, now)):
        return past.graph, selection, False
    if not request.accept_changes:
        raise Changed(
            "the spec has changed since the run",
            f"kubexm runs resume {past.row.id} --accept-changes runs the changes and everything that depends on them",
            list(said_changes(past.graph, now, changes)),
            kind="changed-spec",
        )
    # On more or fewer hosts than before is no change of what was done.
    changed = frozenset(change.node for change in changes if change.change == "added" or change.details)
    return replace(now, target=past.graph.target), replace(selection, changed=changed), True


def _first(
    graph: ExecutionGraph, history: RunHistory, selection: Selection, undone: tuple[str, ...]
) -> tuple[list[Entry], list[Repeat]]:
    """What was confirmed as done or undone, and what is to run again: also of the former, if it has changed."""
    from kubexm_exec.engine import entries

    done: list[Entry] = [entries.end(each.node, seen_done(each)) for each in in_doubt(history, selection.done)]
    done += [was_undone(action) for action in broken_off(history, undone)]
    return done, to_repeat(whole_graph(graph, history), history, selection)


def _is_well(run: LiveRun, result: GraphExecutionResult, known: Mapping[Action, Known]) -> bool:
    """Whether all that was chosen is done, and the rest merely remains: it was not cancelled."""
    if result.status is not Status.CANCELLED or run.runtime.cancel.is_set():
        return False
    left = {action for action, each in known.items() if each.outcome is not None}
    return not any(
        each.status is Status.CANCELLED or each.cause
        for node, of in result.node_results.items()
        for host, each in of.host_results.items()
        if Action(node, host) not in left
    )


def _tell_done(run: LiveRun, actions: int, known: Sequence[Known]) -> None:
    """Say how much there is that need not be done again."""
    ended = [each.outcome.result.status for each in known if each.outcome is not None]
    # What was not chosen for this session is not done either.
    run.done_before = sum(status in (Status.SUCCESS, Status.SKIPPED) for status in ended)
    run.bus.emit(RUN_RESUMED, done=run.done_before, unknown=sum(1 for each in known if each.doubt), actions=actions)
