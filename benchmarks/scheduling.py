"""Scheduling: what an action that does nothing costs, against dask's threaded scheduler and a bare thread pool."""

from __future__ import annotations

import concurrent.futures
import graphlib
import statistics
import time
from typing import Any

from benchmarks.run_graph import run_graph
from benchmarks.table import Row
from kubexm_exec.graph import Dependency, ExecutionGraph, ExecutionNode, GraphHost, Mode, Scope

CHAINS, LENGTH, WORKERS, ROUNDS = 100, 100, 50, 5


def make_graph() -> ExecutionGraph:
    """10,000 nodes: 100 hosts, on each a chain of 100 steps."""
    nodes: dict[str, ExecutionNode] = {}
    hosts = {f"h{chain}": GraphHost(name=f"h{chain}", connector="local") for chain in range(CHAINS)}
    for chain in range(CHAINS):
        for number in range(LENGTH):
            name = f"m/c{chain}/s{number}"
            before = (Dependency(f"m/c{chain}/s{number - 1}", Mode.HOST),) if number else ()
            nodes[name] = ExecutionNode(
                id=name, name=f"s{number}", step_name="noop", module="m", task=f"c{chain}", hosts=(f"h{chain}",),
                dependencies=before,
            )  # fmt: skip
    return ExecutionGraph("bench", nodes, hosts, {"": Scope(id="", own_params=True)})


def _work(*_: Any) -> int:
    return 1


def time_pool() -> float:
    """A topological sorter and a ThreadPoolExecutor, as the standard library has them."""
    sorter: graphlib.TopologicalSorter[tuple[int, int]] = graphlib.TopologicalSorter()
    for chain in range(CHAINS):
        for number in range(LENGTH):
            sorter.add((chain, number), *([(chain, number - 1)] if number else []))
    begun = time.perf_counter()
    sorter.prepare()
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        running: dict[concurrent.futures.Future[int], tuple[int, int]] = {}
        while sorter.is_active():
            for node in sorter.get_ready():
                running[pool.submit(_work)] = node
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                sorter.done(running.pop(future))
    return time.perf_counter() - begun


def time_dask() -> float:
    """dask's threaded scheduler on the same graph."""
    import dask.threaded

    tasks: dict[Any, Any] = {}
    for chain in range(CHAINS):
        for number in range(LENGTH):
            tasks[(f"c{chain}", number)] = (_work, (f"c{chain}", number - 1)) if number else (_work,)
    goals = [(f"c{chain}", LENGTH - 1) for chain in range(CHAINS)]
    begun = time.perf_counter()
    dask.threaded.get(tasks, goals, num_workers=WORKERS)
    return time.perf_counter() - begun


def run() -> list[Row]:
    """The rows of the table; the three take turns, so that a busy machine harms them alike."""
    graph = make_graph()
    own: list[float] = []
    pool: list[float] = []
    dask: list[float] = []
    events = 0
    for _ in range(ROUNDS):
        seconds, _, events = run_graph(graph, WORKERS)
        own.append(seconds)
        pool.append(time_pool())
        dask.append(time_dask())
    count = CHAINS * LENGTH
    mine, bare, other = (statistics.median(times) / count * 1e6 for times in (own, pool, dask))
    return [
        Row(f"an action that does nothing ({events / count:.1f} events each)", f"{mine:.1f} us"),
        Row("  bare ThreadPoolExecutor", f"{bare:.1f} us"),
        Row("  dask threaded", f"{other:.1f} us"),
        Row("  against dask", f"{mine / other:.2f} times", "at most 0.50", mine / other <= 0.5),
        Row("  against the bare pool", f"{mine / bare:.2f} times", "at most 3.00", mine / bare <= 3),
    ]
