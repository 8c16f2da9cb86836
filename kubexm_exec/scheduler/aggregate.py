"""Aggregates outcomes: evaluates a gate when its dependencies have ended, and the status of a node as a whole."""

from __future__ import annotations

from collections.abc import Collection

from kubexm_exec.model.graph import Policy
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.scheduler.state import (
    BAD,
    CANCELLED,
    DEPENDENCY,
    FAILED,
    ON_BEGUN,
    ON_DONE,
    ON_FAILURE,
    ON_SUCCESS,
    PENDING,
    Act,
    Blame,
    Gate,
    Node,
    Watch,
    further,
)


def judge(gate: Gate) -> None:
    """Evaluate a gate; a pure function of the outcomes of its dependencies.

    failed: a node it waits for (``on: success``) has more failures than it allows, a gate it waits for has failed, or
    it is a batch gate and more hosts failed so far than the task allows. closed: failed, or something it waits for was
    skipped because of a closed gate, or was cancelled. Hosts that failed within the budget are out: they stay behind,
    also behind what runs on other hosts only.
    """
    hopes: list[bool] = []
    _add_up_failures(gate)
    for watch in gate.watches:
        if watch.on == ON_BEGUN:
            hopes.append(any(act.begun for act in _watched(watch)))
        elif watch.node.bad or watch.on == ON_FAILURE or gate.node.spec.groups:
            _judge_watch(gate, watch, hopes)
        if watch.node.passes and watch.on == ON_SUCCESS:
            _pass_on(gate.out, watch, gate.node)
    for source, on in gate.sources:
        if on == ON_SUCCESS:
            gate.failed |= source.failed
            if source.blame is not None:
                _close(gate, further(source.blame))
            for host, blame in source.out.items():
                _leave(gate.out, host, further(blame))
        elif on != ON_DONE:
            hopes.append(on == ON_FAILURE and source.failed)
    if gate.batch:
        _judge_batch(gate)
    if gate.relay or gate.node.spec.candidates:
        # A node without hosts, or one that looks for a host, has not failed: it passes on that there is no way through.
        gate.failed = False
    gate.unmet = gate.blame is None and bool(hopes) and not any(hopes)


def gone(gate: Gate) -> dict[str, Blame]:
    """The hosts that have left the run before a gate, whichever outcome it waits for."""
    found = dict(gate.out)
    for watch in gate.watches:
        if watch.on != ON_SUCCESS:
            for act in _bad(watch):
                if act.blame is not None and not act.shut:
                    _leave(found, act.host, further(act.blame))
            if watch.node.passes:
                _pass_on(found, watch, gate.node)
    for source, on in gate.sources:
        if on != ON_SUCCESS:
            for host, blame in source.out.items():
                _leave(found, host, further(blame))
    return found


def lets_go(gate: Gate) -> bool:
    """Whether anything that waits for the open gate can still run."""
    return any(
        act.state == PENDING and not act.node.spec.skip and (on == ON_DONE or act.host not in gate.out)
        for acts, on in gate.targets
        if on == ON_DONE or (on == ON_SUCCESS and not gate.unmet)
        for act in acts
    )


def sum_up(node: Node) -> tuple[Status, SkipReason | None, str]:
    """Status, reason and cause of a node, once all its actions or gates have ended."""
    if node.gate:
        return _sum_up_gate(node.parts)
    # Of those that it could run on once only the chosen one counts.
    bad, hosts = node.bad, bool(node.host) if node.spec.once else len(node.at)
    if not hosts:
        return Status.SKIPPED, None, ""
    if not bad and len(node.spared) == hosts:
        return Status.SKIPPED, SkipReason.DEPENDENCY, min(node.spared)[2]
    if not bad:
        return Status.SUCCESS, None, ""
    if node.over_budget(node.fails, hosts):
        return Status.FAILED, None, ""
    codes = {act.state for act in bad}
    if CANCELLED in codes:
        return Status.CANCELLED, None, ""
    if len(bad) + len(node.spared) == hosts and FAILED not in codes:
        reason = SkipReason.DEPENDENCY if DEPENDENCY in codes else SkipReason.LIMIT
        return Status.SKIPPED, reason, min(act.blame for act in bad if act.blame)[2]
    return Status.SUCCESS, None, ""


def _sum_up_gate(parts: tuple[Gate, ...]) -> tuple[Status, SkipReason | None, str]:
    closed = [gate for gate in parts if gate.failed] or [gate for gate in parts if gate.blame]
    if not closed:
        return Status.SUCCESS, None, ""
    reason = SkipReason.LIMIT if any(gate.limit for gate in closed) else SkipReason.DEPENDENCY
    cause = min(gate.blame for gate in closed if gate.blame)[2]
    return (Status.FAILED if closed[0].failed else Status.SKIPPED), reason, cause


def _judge_watch(gate: Gate, watch: Watch, hopes: list[bool]) -> None:
    node = watch.node
    bad = _bad(watch)
    failed = {act.host for act in bad if act.state == FAILED}
    hosts = len(node.at)
    if watch.partial:
        # Not all of the node has run: what failed before the earlier batch gates counts, too.
        failed |= gate.fails[node][1] if node in gate.fails else set()
        if node.owner is not None:
            # And other hosts may add to a fragment's node later: only what was waited for is known by now.
            hosts = len(gate.seen.get(node, set()) | (watch.members or set()))
    over = bool(failed) and node.over_budget(len(failed), hosts)
    if watch.on == ON_SUCCESS:
        if over:
            gate.failed = True
            _close(gate, (1, node.rank, node.id))
        for act in bad:
            if act.blame is not None and act.shut:
                _close(gate, further(act.blame))
            elif act.blame is not None:
                _leave(gate.out, act.host, further(act.blame))
    elif watch.on == ON_FAILURE:
        hopes.append(over)


def _pass_on(known: dict[str, Blame], watch: Watch, to: Node) -> None:
    """Hosts that had left the run before what the gate waits for are out, whichever hosts that is on."""
    seen: dict[int, tuple[dict[str, Blame], int]] = {}
    for act in _watched(watch):
        if (found := act.out_for(to)) is not None:
            out, far = found
            before = seen.get(id(out))
            if before is None or far < before[1]:
                seen[id(out)] = out, far
    for out, far in seen.values():
        for host, blame in out.items():
            _leave(known, host, further(blame, far))


def _add_up_failures(gate: Gate) -> None:
    """What failed so far: before the batch gates it waits for, and for a batch gate in all that it waits for itself."""
    for source, _ in gate.sources:
        if source.batch:
            for node, (distance, hosts) in source.fails.items():
                near, known = gate.fails.get(node, (distance + 1, set()))
                gate.fails[node] = (min(near, distance + 1), known | hosts)
            for node, acts in source.seen.items():
                gate.seen[node] = gate.seen.get(node, set()) | acts
    if gate.batch:
        for watch in gate.watches:
            node = watch.node
            if watch.members is not None and node.owner is not None:
                gate.seen[node] = gate.seen.get(node, set()) | watch.members
            failed = {act.host for act in _bad(watch) if act.state == FAILED}
            if failed:
                gate.fails[node] = (1, failed | gate.fails.get(node, (1, set()))[1])


def _judge_batch(gate: Gate) -> None:
    failed = {host for _, hosts in gate.fails.values() for host in hosts}
    if failed and len(failed) > Policy(max_failures=gate.node.spec.batch_budget or "0").budget(_hosts(gate)):
        gate.failed = gate.limit = True
        for node, (distance, _) in gate.fails.items():
            _close(gate, (distance, node.rank, node.id))


def _hosts(gate: Gate) -> int:
    """How many hosts the nodes have that it was written to wait for; what fragments added later does not count."""
    hosts: set[str] = set()
    for watch in gate.watches:
        if watch.node.owner is gate.node.owner:
            hosts.update(watch.node.at if watch.node.owner is None else (act.host for act in watch.members or ()))
    return len(hosts)


def _watched(watch: Watch) -> Collection[Act]:
    """The actions it waited for."""
    return watch.node.at.values() if not watch.partial or watch.members is None else watch.members


def _bad(watch: Watch) -> list[Act]:
    """The failed or cancelled actions among its dependencies."""
    members = watch.members
    if not watch.partial or members is None:
        return watch.node.bad
    if len(members) > len(watch.node.bad) and not watch.node.spec.groups:
        return [act for act in watch.node.bad if act in members]
    # Inside a group it is known before the rescue has ended, and the node knows.
    return [act for act in members if act.state >= BAD]


def _close(gate: Gate, blame: Blame) -> None:
    if gate.blame is None or blame < gate.blame:
        gate.blame = blame


def _leave(known: dict[str, Blame], host: str, blame: Blame) -> None:
    before = known.get(host)
    if before is None or blame < before:
        known[host] = blame
