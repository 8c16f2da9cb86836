"""Resumes a run: compares the spec with what it was, and runs what is not done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kubexm_exec.engine import entries
from kubexm_exec.engine.entries import Entry, Repeat
from kubexm_exec.engine.history import Known, RunHistory, staying, tell, whole_graph, with_earlier
from kubexm_exec.engine.notifications import Notification, Notifications
from kubexm_exec.engine.resume import Selection, in_doubt, known_actions, seen_done, to_repeat
from kubexm_exec.executors.rollback import ResumedExecutor, RollbackExecutor, broken_off, remaining, was_undone
from kubexm_exec.journal.session import Session
from kubexm_exec.journal.store import RunRow, Store
from kubexm_exec.model.events import RUN_RESUMED
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import DEFAULT_EXECUTOR, GraphExecutionResult, RunMode, Status
from kubexm_exec.plugins import RegistryError, step_registry
from kubexm_exec.scheduler import Action
from kubexm_exec.service.errors import Changed, Invalid, said_changes
from kubexm_exec.service.live import LiveRun, Watcher, begun, patience
from kubexm_exec.service.past import Past, changes_since, check_broken_off, check_nodes, chosen_hosts, info, load_past
from kubexm_exec.service.requests import Documents, Outcome, ResumeRequest, RollbackRequest, Undoable
from kubexm_exec.service.takenout import by_others, dropped
from kubexm_exec.step import Step

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
    nodes = whole_graph(past.graph, history).nodes
    withheld = [key for key in can if any(each.withheld for each in history.actions[key].undo)]

    def named(actions: Iterable[Action]) -> list[tuple[str, str]]:
        return [(key.node, nodes[key.node].where(key.host) if key.node in nodes else key.host) for key in actions]

    return Undoable(
        info(store, past.row), can, named(cannot), list(_blind(past, can)), _later(store, past.row), named(withheld)
    )


def roll_back(store: Store, state: Path, request: RollbackRequest, watcher: Watcher) -> Outcome:
    """Undo what a run has done; raises Invalid, NotFound or JournalError."""
    # `last` may mean another run in a moment.
    run = undoable(store, request).info.row.id
    past = load_past(store, run)
    # An undo uses no resources: their bundle may be gone.
    asked = replace(
        past.request, documents=replace(past.documents(undo=True), bundle=None), executor=DEFAULT_EXECUTOR,
        verbose=request.verbose, overwrite=request.overwrite,
    )  # fmt: skip
    with begun(Session.go_on(store, state, run, "rollback", wait=patience(watcher, request.wait))) as session:
        for key in broken_off(tell(store, run), request.undone):
            session.recorder.write(was_undone(key))
        history = tell(store, run)
        # What a changed spec has no more was done all the same.
        before = (ExecutionGraph.from_json(each["graph"]) for each in store.all_made_from(run))
        graph = whole_graph(with_earlier(past.graph, before), history, dropped=True)
        live = LiveRun(graph, asked, run_id=run)
        live.make_executor = lambda: RollbackExecutor(history, request.again)
        live.success = Status.ROLLED_BACK.value
        live.left = frozenset(remaining(history)[0]).__contains__
        watcher.attach(live)
        live.keep(session, history)
    return live.execute(watcher)


def _blind(past: Past, actions: Sequence[Action]) -> Iterator[str]:
    """The nodes whose step types do not check for later changes before they undo something."""
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
    newer = (each for each in store.runs(limit=_NEWEST, target=row.target) if each.id > row.id)
    # An interrupted run has no counts.
    return [each for each in newer if each.counts.get("changed", 1) and each.status != Status.ROLLED_BACK.value]


def resume(store: Store, state: Path, request: ResumeRequest, watcher: Watcher) -> Outcome:
    """Resume a run; raises Changed, Invalid, NotFound or JournalError."""
    past = load_past(store, request.run)
    run = past.row.id
    history = tell(store, run)
    # Also what was added to the graph while it ran: steps of fragments, and items of loops over outputs.
    nodes = [node.id for node in whole_graph(past.graph, history).steps()]
    check_nodes(nodes, (*request.begin, *request.only), run)
    hosts = None if request.hosts is None else chosen_hosts(past.graph.hosts, request.hosts)
    if request.accept_changes and (request.only or hosts is not None):
        raise Invalid("changes are accepted for the whole run", "do not select nodes or hosts")
    selection = Selection(begin=request.begin, only=request.only, hosts=hosts, done=request.done)
    documents = past.documents()
    graph, selection, changed = _graph_now(past, documents, selection, request, watcher)
    for glob in selection.done:
        if not in_doubt(history, [glob]):
            raise Invalid(f'no outcome of "{glob}" is unknown in run {run}', f"kubexm runs show {run}")
    check_broken_off(history, (*request.again, *request.undone), run)
    made_from = {**past.made_from, "graph": graph.to_json()} if changed else None
    taken_on = Session.go_on(
        store, state, run, "resume", made_from, wait=patience(watcher, request.wait),
        first=lambda: _first(
            graph, _with_others(store, past), selection, request.undone, store.notifications(past.row.target)
        ),
    )  # fmt: skip
    with begun(taken_on) as session:
        history = _with_others(store, past)
        graph = staying(graph, history, selection.begins)
        whole = whole_graph(graph, history)
        asked_for = _asked_for(whole, run, selection)
        due = _due(whole, run, [*asked_for, *store.notifications(past.row.target)])
        known = known_actions(whole, history, selection, due)
        asked = replace(
            past.request, documents=documents, forks=past.request.forks if request.forks is None else request.forks,
            verbose=request.verbose, overwrite=request.overwrite, patient=request.patient or past.request.patient,
        )  # fmt: skip
        live = LiveRun(graph, asked, run_id=run)
        live.runtime.prior, live.runtime.pending = known, asked_for
        live.left = lambda action: action not in known or known[action].outcome is None
        chosen = live.make_executor
        live.make_executor = lambda: ResumedExecutor(chosen, request.again)
        live.sessions = history.sessions
        watcher.attach(live)
        live.check_connectors()
        live.keep(session, history)
        _tell_done(live, whole.actions(), list(known.values()))
        live.tell_unserved(watcher)
        if changed and len(found := dropped(past.graph, whole, history)):
            watcher.found(found, {})
    return live.execute(watcher, lambda result: _is_well(result, known))


def _with_others(store: Store, past: Past) -> RunHistory:
    """The history of a run, with the hooks that other runs of its target have begun since."""
    history = tell(store, past.row.id)
    history.elsewhere = by_others(store, past.row, past.graph)
    return history


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


def _asked_for(graph: ExecutionGraph, run: str, selection: Selection) -> list[Notification]:
    """The handlers that were chosen to run again: each once on a host, at the first chosen place."""
    found: dict[tuple[str, str], Notification] = {}
    for node in graph.steps():
        for host in node.may_run_on if node.handler else ():
            if selection.begins(node.id, host):
                found.setdefault((node.handler, host), Notification(node.handler, host, node.id, run))
    return list(found.values())


def _due(graph: ExecutionGraph, run: str, pending: Sequence[Notification]) -> set[Action]:
    """The actions of handlers that are due."""
    return Notifications(graph.nodes, pending, run, RunMode.ACT).actions()


def _first(
    graph: ExecutionGraph,
    history: RunHistory,
    selection: Selection,
    undone: tuple[str, ...],
    pending: Sequence[Notification],
) -> tuple[list[Entry], list[Repeat]]:
    """What was confirmed as done or undone, and what is to run again: also of the former, if it has changed."""
    whole = whole_graph(graph, history)
    notifications = Notifications(whole.nodes, pending, "", RunMode.ACT)
    done: list[Entry] = []
    for each in in_doubt(history, selection.done):
        outcome, node = seen_done(each), whole.nodes.get(each.node)
        if node is not None:
            outcome.notifies, outcome.handler = notifications.of(node, each.host), node.handler
            outcome.served = tuple(
                sorted({one.node for one in pending if (one.handler, one.host) == (node.handler, each.host)})
            )
        done.append(entries.end(each.node, outcome, confirmed=True))
    done += [was_undone(action) for action in broken_off(history, undone)]
    return done, to_repeat(whole, history, selection, notifications.actions())


def _is_well(result: GraphExecutionResult, known: Mapping[Action, Known]) -> bool:
    """Whether all that was chosen is done, and the rest merely remains."""
    if result.status is not Status.PARTIAL:
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
