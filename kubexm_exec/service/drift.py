"""Asks hosts what is no longer as the last successful run of a spec left it; nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kubexm_exec.engine.history import tell, whole_graph
from kubexm_exec.executors.drift import DriftExecutor
from kubexm_exec.model.result import BLOCKED, GraphExecutionResult, Status, column
from kubexm_exec.service.errors import Invalid, Refused
from kubexm_exec.service.live import LiveRun, Watcher
from kubexm_exec.service.past import NEEDS_ALL, Past, changes_since, chosen_hosts, info, load_past
from kubexm_exec.service.requests import SHIPPED, Documents, Drift, DriftRequest

if TYPE_CHECKING:
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.journal.store import RunRow, Store


def drift(store: Store, state: Path, request: DriftRequest, watcher: Watcher) -> Drift:
    """What differs; raises Refused if there was no success, or JournalError."""
    row = _last_success(store, request)
    past = load_past(store, row.id)
    history = tell(store, row.id)
    graph = past.graph
    hosts = frozenset(graph.hosts) if request.limit is None else chosen_hosts(graph.hosts, request.limit)
    documents = past.documents(state)
    forks = past.request.forks if request.forks is None else request.forks
    asked = replace(past.request, documents=documents, executor=DriftExecutor.name, forks=forks)
    live = LiveRun(whole_graph(graph, history), asked)
    live.make_executor = lambda: DriftExecutor(history, hosts)
    watcher.attach(live)
    found = Drift(row=row, request=past.request, hosts=list(graph.hosts))
    _sort(found, live.execute(watcher).result, hosts)
    later = [each for each in store.runs(limit=NEEDS_ALL, spec=row.spec) if each.id > row.id]
    found.later = next((info(store, each) for each in later if each.target == row.target), None)
    found.changes = _changes(past, documents)
    return found


def _last_success(store: Store, request: DriftRequest) -> RunRow:
    place, target = Documents(folder=request.folder, spec=request.spec).place, request.target
    rows = store.runs(limit=NEEDS_ALL, spec=place) or _runs_of_plan(store, place)
    rows = [row for row in rows if target in (None, row.target)]
    good = next((row for row in rows if row.status == Status.SUCCESS.value), None)
    if good is not None:
        return good
    hint = f"kubexm-run {'--plan ' if _is_plan(place) else ''}{request.spec}"
    if rows:
        last = info(store, rows[0])
        hint = f"the last one is {last.state.value}: kubexm runs show {last.row.id}"
    elif not place.startswith(SHIPPED) and not Path(place).exists():
        raise Invalid(f"there is no spec {request.spec}, and no run of it")
    on = f' on "{target}"' if target is not None else ""
    raise Refused(f"there is no successful run of {request.spec}{on}", hint, kind="no-run")


def _is_plan(place: str) -> bool:
    from kubexm_exec.compile.plan import PlanError, load_plan

    try:
        load_plan(place)
    except PlanError:
        return False
    return True


def _runs_of_plan(store: Store, place: str) -> list[RunRow]:
    """The runs that were made from a saved plan; the journal lists them as runs of its spec."""
    found = []
    for row in store.runs(limit=NEEDS_ALL):
        asked = store.asked_for(row.id).get("documents", {})
        if asked.get("plan") and Documents(folder=asked.get("folder", ""), plan=asked["plan"]).place == place:
            found.append(row)
    return found


def _sort(found: Drift, result: GraphExecutionResult, hosts: frozenset[str]) -> None:
    lists = {
        "failed": found.failed, "unreachable": found.failed, "wouldChange": found.differs, "unknown": found.unknown,
        "notLookedAt": found.unseen,
    }  # fmt: skip
    found.cancelled = result.status is Status.CANCELLED
    for name, node in result.node_results.items():
        for each in node.host_results.values():
            if each.host_name not in hosts:
                continue
            found.seen.add(each.host_name)
            where = found.unknown if each.reason in BLOCKED else lists.get(column(each))
            if where is None:
                found.same += 1
            else:
                where.append((name, each))


def _changes(past: Past, documents: Documents) -> list[NodeChange] | None:
    """What is not as it was in the spec; None if that cannot be said."""
    try:
        return changes_since(past, documents, Watcher())[1]
    except Invalid:
        return None
