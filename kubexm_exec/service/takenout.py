"""What other runs of a target mean for hosts that a run took out of service: put back since, or still out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import ValidationError, convert

from kubexm_exec.engine.history import Elsewhere, RunHistory, tell, whole_graph
from kubexm_exec.engine.ports import JournalError
from kubexm_exec.engine.resume import end_hooks, owed
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Action
from kubexm_exec.service.errors import Unavailable
from kubexm_exec.service.past import load_past
from kubexm_exec.service.requests import RunRequest
from kubexm_spec.diagnostics import Diagnostics, some

if TYPE_CHECKING:
    from kubexm_exec.journal.store import RunRow, Store

_NEWEST: Final = 1000
_READ: Final = 5
"""So many runs without a success after them are read when another one begins: that one waits for it."""


def by_others(store: Store, row: RunRow, graph: ExecutionGraph) -> Mapping[Action, Elsewhere]:
    """The hooks at the ends of the graph's scopes that other runs of the target began after this one began."""
    hooks = set(end_hooks(graph))
    found: dict[Action, Elsewhere] = {}
    for other in store.runs(limit=_NEWEST, target=row.target) if hooks else ():
        if other.id != row.id and (other.ended is None or other.ended > row.created):
            _add(found, tell(store, other.id), hooks)
    return found


def _add(found: dict[Action, Elsewhere], history: RunHistory, hooks: set[Action] | None = None) -> None:
    for action, told in history.actions.items():
        if told.attempts and (hooks is None or action in hooks):
            known = found.get(action)
            if known is None or told.started > known.began:
                found[action] = Elsewhere(told.started, told.done)


def still_out(store: Store, rows: Sequence[RunRow], graph: ExecutionGraph) -> Diagnostics:
    """Warnings of hosts that runs of the target (given newest first) took out and that nobody has put back since.

    ``graph``: that of the run that begins now.
    """
    found = Diagnostics()
    for row, hook, hosts in _left_out(store, rows):
        node = graph.nodes.get(hook)
        own = node is not None and set(hosts) <= set(node.may_run_on)
        summary = f'{some(hosts)} may still be out of service: run {row.id} ended before "{hook}" was done'
        by_hand = f"kubexm runs resume {row.id} --only {shlex.quote(hook)}"
        found.warning("host-left-out", summary, hint="this run does it after its own work there" if own else by_hand)
    return found


def dropped(before: ExecutionGraph, now: ExecutionGraph, history: RunHistory) -> Diagnostics:
    """Warnings of hooks that have to follow what began on hosts, and that a changed spec does not run there."""
    lost: dict[str, list[str]] = {}
    for action in owed(whole_graph(before, history), history):
        node = now.nodes.get(action.node)
        if node is None or action.host not in node.may_run_on:
            lost.setdefault(action.node, []).append(action.host)
    found = Diagnostics()
    for hook, hosts in lost.items():
        summary = f'"{hook}" had to follow what began on {some(hosts)}, and the changed spec does not run it there'
        hint = "do it by hand, or restore it in the spec and resume again"
        found.warning("owed-hook-dropped", summary, hint=hint)
    return found


def _left_out(store: Store, rows: Sequence[RunRow]) -> Iterator[tuple[RunRow, str, list[str]]]:
    later: dict[Action, Elsewhere] = {}
    complete: set[str] = set()
    read = 0
    for row in rows:
        if row.spec in complete:
            continue
        try:
            if _is_complete(store, row):
                complete.add(row.spec)
                continue
            past = load_past(store, row.id)
        except (ValidationError, JournalError, Unavailable):
            continue  # it is of another version of kubexm: that is said to whoever wants to resume it
        history = tell(store, row.id)
        history.elsewhere = dict(later)
        by_hook: dict[str, list[str]] = {}
        for action in owed(whole_graph(past.graph, history), history):
            by_hook.setdefault(action.node, []).append(action.host)
        yield from ((row, hook, hosts) for hook, hosts in by_hook.items())
        _add(later, history)
        read += 1
        if read == _READ:
            return


def _is_complete(store: Store, row: RunRow) -> bool:
    """Whether a run has done everything in its spec, on all its hosts: who was out is in service again."""
    if row.status != Status.SUCCESS.value or row.counts.get("failed") or row.counts.get("unreachable"):
        return False
    documents = convert(store.asked_for(row.id), RunRequest).documents
    return not (documents.limit or documents.tags or documents.skip_tags)
