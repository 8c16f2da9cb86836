"""Scheduling: what an action that does nothing costs, against dask's threaded scheduler and a bare thread pool."""

from __future__ import annotations

import concurrent.futures
import graphlib
import random
import statistics
import time
from typing import Any, TypeAlias

from benchmarks.run_graph import run_graph
from benchmarks.table import Row
from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, GraphHost, Mode, Scope

LAYERS, WIDTH, WORKERS, ROUNDS = 100, 100, 50, 5
GOAL = 1.9
"""How many times as long as in a bare thread pool an action that does nothing may take."""

Edges: TypeAlias = dict[str, list[str]]
"""What each node waits for."""


def layers() -> Edges:
    """10,000 nodes in 100 layers; each waits for two of the layer before."""
    chance = random.Random(1)
    return {
        f"m/t{layer}/s{number}": [f"m/t{layer - 1}/s{n}" for n in chance.sample(range(WIDTH), 2)] if layer else []
        for layer in range(LAYERS)
        for number in range(WIDTH)
    }


def chains() -> Edges:
    """10,000 nodes in 100 chains: the least that a scheduler can have to do."""
    return {
        f"m/t{layer}/s{number}": [f"m/t{layer - 1}/s{number}"] if layer else []
        for layer in range(LAYERS)
        for number in range(WIDTH)
    }


def make_graph(edges: Edges) -> ExecutionGraph:
    """The same for us: a step a node, all on one host that bears as many at once as there are workers."""
    nodes = {
        name: ExecutionNode(
            id=name, name=name.rpartition("/")[2], step_name="noop", module="m", task=name.split("/")[1], hosts=("h",),
            dependencies=tuple(Dependency(one, Mode.HOST) for one in before),
        )
        for name, before in edges.items()
    }  # fmt: skip
    host = GraphHost(name="h", connector="local", per_host_limit=WORKERS)
    return ExecutionGraph("bench", nodes, {"h": host}, {"": Scope(id="", own_params=True)})


def _work(*_: Any) -> int:
    return 1


def time_pool(edges: Edges) -> float:
    """A topological sorter and a ThreadPoolExecutor, as the standard library has them."""
    sorter = graphlib.TopologicalSorter(edges)
    begun = time.perf_counter()
    sorter.prepare()
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        running: dict[concurrent.futures.Future[int], str] = {}
        while sorter.is_active():
            for node in sorter.get_ready():
                running[pool.submit(_work)] = node
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                sorter.done(running.pop(future))
    return time.perf_counter() - begun


def time_dask(edges: Edges) -> float:
    """dask's threaded scheduler; asked for every node that nobody waits for, so that it runs all of them."""
    import dask.threaded

    tasks = {name: (_work, *before) for name, before in edges.items()}
    waited_for = {one for before in edges.values() for one in before}
    goals = [name for name in edges if name not in waited_for]
    begun = time.perf_counter()
    dask.threaded.get(tasks, goals, num_workers=WORKERS)
    return time.perf_counter() - begun


def measure(edges: Edges) -> tuple[float, float, float, float]:
    """Microseconds a node of kubexm, the bare pool and dask, and events a node.

    The three take turns, so that a busy machine harms them alike.
    """
    graph = make_graph(edges)
    own: list[float] = []
    pool: list[float] = []
    dask: list[float] = []
    events = 0
    for _ in range(ROUNDS):
        seconds, _, events = run_graph(graph, WORKERS)
        own.append(seconds)
        pool.append(time_pool(edges))
        dask.append(time_dask(edges))
    mine, bare, other = (statistics.median(times) / len(edges) * 1e6 for times in (own, pool, dask))
    return mine, bare, other, events / len(edges)


def run() -> list[Row]:
    """The rows of the table."""
    mine, bare, other, events = measure(layers())
    rows = [
        Row(f"an action that does nothing, 10,000 nodes, two needs each ({events:.1f} events)", f"{mine:.1f} us"),
        Row("  bare ThreadPoolExecutor", f"{bare:.1f} us"),
        Row("  dask threaded", f"{other:.1f} us"),
        Row("  against dask", f"{mine / other:.2f} times", "at most 0.50", mine / other <= 0.5),
        Row("  against the bare pool", f"{mine / bare:.2f} times", f"at most {GOAL:.2f}", mine / bare <= GOAL),
    ]
    mine, bare, other, _ = measure(chains())
    return [
        *rows,
        Row("the same in 100 chains, one need each", f"{mine:.1f} us"),
        Row("  against dask", f"{mine / other:.2f} times"),
        Row("  against the bare pool", f"{mine / bare:.2f} times", f"at most {GOAL:.2f}", mine / bare <= GOAL),
    ]
