"""Random graphs are undone in an order that respects every dependency and, on each host, the order of the run."""

from __future__ import annotations

import dataclasses
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import given
from msgspec.structs import replace

from kubexm_exec.engine.entries import Undo
from kubexm_exec.engine.undo import Saved, earlier, undo_all
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.model.events import ACTION_FINISHED, ACTION_UNDONE, Event
from kubexm_exec.model.graph import ExecutionGraph, FailurePolicy
from tests.journal.chance import Host, case_of, runtime_of
from tests.scheduler.graphs import decisions


def before(graph: ExecutionGraph) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """What every action waited for, near and far."""
    waits: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for node in graph.nodes.values():
        for dep in node.dependencies:
            other = graph.nodes[dep.node]
            for host in node.hosts if not node.is_gate else ("",):
                if dep.hosts is not None and not node.is_gate and host not in dep.hosts:
                    continue
                if other.is_gate:
                    waits[node.id, host].add((other.id, ""))
                elif node.is_gate:
                    chosen = other.hosts if dep.hosts is None else dep.hosts
                    waits[node.id, ""] |= {(other.id, each) for each in chosen if each in other.hosts}
                elif host in other.hosts:
                    waits[node.id, host].add((other.id, host))
    far: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def all_before(key: tuple[str, str]) -> set[tuple[str, str]]:
        if key not in far:
            near = waits.get(key, set())
            far[key] = near.union(*map(all_before, near))
        return far[key]

    return {key: all_before(key) for key in list(waits)}


@given(data=decisions)
def test_undo_respects_every_dependency_and_the_order_of_each_host(data: bytes) -> None:
    case = case_of(data)
    case = dataclasses.replace(case, graph=replace(case.graph, failure_policy=FailurePolicy.CONTINUE))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("run", "undo", "done", "half"):
            (folder / part).mkdir()
        runtime = runtime_of(case, folder)
        told: list[Event] = []
        runtime.bus.subscribe(told.append)
        result = ConcurrentExecutor().execute(runtime)
        finished = [(event.node, event.host) for event in told if event.kind == ACTION_FINISHED]
        results = {
            (node, host): each for node, of in result.node_results.items() for host, each in of.host_results.items()
        }
        done = [key for key in finished if results[key].changed]
        saved = []
        for node, host in done:
            of = runtime.nodes[node]
            undo = Undo(node, host, {}, of.become, place=of.place(host))
            saved.append(Saved(of, host, results[node, host], earlier(of, host, [undo], runtime)))
        assert undo_all(runtime, saved) == []
        assert not {f"{node} {host}" for node, host in done} & Host(folder).done()
    undone = [(event.node, event.host) for event in told if event.kind == ACTION_UNDONE]
    assert sorted(undone) == sorted(done)
    place = {(node, host): runtime.nodes[node].place(host) for node, host in done}
    for host in set(place.values()):
        assert [key for key in undone if place[key] == host] == [key for key in reversed(done) if place[key] == host]
    at = {key: number for number, key in enumerate(undone)}
    for key, earlier_ones in before(runtime.graph).items():
        for other in earlier_ones:
            # The gate of a fragment that hosts of several batches returned did not wait for those of a later one.
            if key in at and other in at and done.index(other) < done.index(key):
                assert at[key] < at[other], f"{other} was undone before {key}, which depended on it"
