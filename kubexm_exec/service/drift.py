"""Asks hosts what is no longer as the last successful run of a spec left it; nothing is changed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.history import RunHistory, tell, whole_graph
from kubexm_exec.engine.lifecycle import skipped
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.model.result import BLOCKED, ForecastState, GraphExecutionResult, HostResult, Status, column
from kubexm_exec.scheduler import Action
from kubexm_exec.service.errors import Invalid, Refused
from kubexm_exec.service.live import LiveRun, Watcher
from kubexm_exec.service.past import NEEDS_ALL, Past, changes_since, chosen_hosts, info, load_past
from kubexm_exec.service.requests import SHIPPED, Documents, Drift, DriftRequest
from kubexm_exec.step import AnyStep, Forecast
from kubexm_spec.paths import exists

if TYPE_CHECKING:
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.journal.store import RunRow, Store


class DriftExecutor(CheckExecutor):
    """Like check, but with the outputs of the run, so that more can be checked."""

    def __init__(self, history: RunHistory, hosts: frozenset[str]) -> None:
        """``hosts``: those that are checked."""
        self._history = history
        self._hosts = hosts

    def begin(self) -> None:
        """Nothing is fetched or changed, not even on the control node."""
        super().begin()
        self.runtime.looks_only = "drift fetches nothing; `kubexm resources fetch` does"

    def perform(self, attempt: Attempt) -> ActionOutcome:
        """Check it; a host that is not checked is assumed to be unchanged. A handler leaves nothing to be checked."""
        if attempt.node.handler:
            return self.lifecycle.done(attempt, skipped(attempt, "handlers are not checked for drift"))
        told = self._history.actions.get(Action(attempt.node.id, attempt.host))
        if told is not None and told.result is not None and told.result.rescued:
            # What its rescue did is there to be checked.
            return self.lifecycle.done(attempt, ActionOutcome(replace(told.result, rescued=False, ignored=False)))
        # A host that does not answer says so itself, and keeps nobody from looking at the others.
        if attempt.host in self._hosts and not attempt.node.every_session:
            return super().perform(attempt)
        result = HostResult(host_name=attempt.host, status=Status.SUCCESS)
        return self.lifecycle.done(attempt, ActionOutcome(result, self._outputs(attempt)))

    def found(self, attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> ActionOutcome:
        """The outcome for a forecast, with the outputs of the run."""
        outcome = super().found(attempt, step, forecast)
        outputs = self._outputs(attempt)
        if outcome.unknown and outputs is not None:
            outcome.outputs, outcome.unknown = outputs or None, ""
        return outcome

    def _outputs(self, attempt: Attempt) -> Mapping[str, Any] | None:
        """What the step returned in the run; None if that is not known."""
        told = self._history.actions.get(Action(attempt.node.id, attempt.host))
        return None if told is None or told.result is None or told.hidden else told.result.outputs

    def excuses(self, forecast: Forecast[Any]) -> bool:
        """Only what differs can make later steps fail: all was done once."""
        return forecast.state is ForecastState.CHANGE


def drift(store: Store, request: DriftRequest, watcher: Watcher) -> Drift:
    """What differs; raises Refused if there was no success, or JournalError."""
    row = _last_success(store, request)
    past = load_past(store, row.id)
    history = tell(store, row.id)
    graph = past.graph
    hosts = frozenset(graph.hosts) if request.limit is None else chosen_hosts(graph.hosts, request.limit)
    documents = past.documents()
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
    hint = f"kubexm-run {'--plan ' if _is_plan(place) else ''}{shlex.quote(request.spec)}"
    if rows:
        last = info(store, rows[0])
        hint = f"the last one is {last.state.value}: kubexm runs show {last.row.id}"
    elif not place.startswith(SHIPPED) and not exists(place):
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
            if each.rescued:
                where = found.unseen
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
