"""Handlers that are due in the journal: lists them, drops them by name, and says which ones a graph cannot serve."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kubexm_exec.engine.resume import matches
from kubexm_exec.journal import leases
from kubexm_exec.journal.notifications import targets
from kubexm_exec.service.requests import DueHandler, NotificationsRequest
from kubexm_spec.diagnostics import Diagnostics, some

if TYPE_CHECKING:
    from kubexm_exec.engine.notifications import Notification
    from kubexm_exec.journal.store import Store
    from kubexm_exec.model.graph import ExecutionGraph


def due(store: Store, request: NotificationsRequest) -> list[DueHandler]:
    """The handlers that are due, on the targets and hosts that were asked for."""
    with store.looking() as door:
        known = targets(door)
    return [
        each
        for target in known
        if request.target in ("", target)
        for each in by_handler(target, store.notifications(target))
        if _is_meant(each, request)
    ]


def _is_meant(each: DueHandler, request: NotificationsRequest) -> bool:
    named = each.handler.rpartition("handlers/")[2]
    wanted = [request.handler]
    return (not request.handler or matches(named, wanted) or matches(each.handler, wanted)) and (
        not request.host or each.host == request.host
    )


def by_handler(target: str, pending: Iterable[Notification]) -> list[DueHandler]:
    """Notifications of a target, those of a handler on a host together."""
    found: dict[tuple[str, str], list[Notification]] = {}
    for each in pending:
        found.setdefault((each.handler, each.host), []).append(each)
    return [DueHandler(target, handler, host, tuple(by)) for (handler, host), by in found.items()]


def drop(store: Store, several: Sequence[DueHandler]) -> int:
    """Forget that handlers are due; raises HeldError if a run works on one of their targets."""
    with store.writing() as door:
        leases.check_free(door, {each.target for each in several})
        return sum(
            bool(door.do("notification.drop", target=each.target, handler=each.handler, host=each.host))
            for each in several
        )


def served_by(graph: ExecutionGraph, several: Sequence[DueHandler], *, limited: bool) -> list[DueHandler]:
    """Those of the handlers that are in the graph, on the hosts that they have there.

    ``limited``: the run leaves out hosts, on which the next one can serve them.
    """
    hosts: dict[str, frozenset[str]] = {}
    for each in several:
        if each.handler not in hosts:
            node = graph.nodes.get(each.handler)
            there = () if node is None else graph.hosts if limited else node.may_run_on
            hosts[each.handler] = frozenset(there)
    return [each for each in several if each.host in hosts[each.handler]]


def unserved(graph: ExecutionGraph, several: Sequence[DueHandler], spec: str, *, limited: bool) -> Diagnostics:
    """Warnings of handlers that are due, and that a run of the spec cannot run.

    What a run of another spec left is that one's to serve. ``limited``: the run leaves out hosts, which is no news.
    """
    served = {(each.handler, each.host) for each in served_by(graph, several, limited=limited)}
    lost: dict[tuple[str, str], list[str]] = {}
    for each in several:
        if (each.handler, each.host) in served:
            continue
        if each.handler not in graph.nodes:
            if any(one.spec == spec for one in each.by):
                lost.setdefault((each.handler, "there is no such handler any more"), []).append(each.host)
        elif each.host not in graph.hosts:
            lost.setdefault((each.handler, "the inventory does not have the host any more"), []).append(each.host)
        else:
            lost.setdefault((each.handler, "it does not run there any more"), []).append(each.host)
    found = Diagnostics()
    for (handler, why), hosts in lost.items():
        summary = f'handler "{handler}" is due on {some(hosts)}, but {why}'
        hint = f"it stays due; if it is not needed: kubexm notifications drop {shlex.quote(handler)}"
        found.warning("lost-handler", summary, hint=hint)
    return found
