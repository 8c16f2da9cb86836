"""Stragglers: 50 hosts, 10 steps of random length; fast hosts must not wait for slow ones."""

from __future__ import annotations

import random

from benchmarks.run_graph import run_graph
from benchmarks.table import Row
from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, GraphHost, Mode, Scope

HOSTS, STEPS, SEED = 50, 10, 7


def run() -> list[Row]:
    """The rows of the table."""
    chance = random.Random(SEED)
    names = tuple(f"h{number}" for number in range(HOSTS))
    total = dict.fromkeys(names, 0.0)
    slowest_of_each_step = 0.0
    nodes: dict[str, ExecutionNode] = {}
    for number in range(STEPS):
        seconds = {name: chance.uniform(0.010, 0.200) for name in names}
        for name in names:
            total[name] += seconds[name]
        slowest_of_each_step += max(seconds.values())
        node = f"m/t/s{number}"
        before = (Dependency(f"m/t/s{number - 1}", Mode.HOST),) if number else ()
        nodes[node] = ExecutionNode(
            id=node, name=f"s{number}", step_name="nap", module="m", task="t", hosts=names, dependencies=before,
            with_={"seconds": seconds},
        )  # fmt: skip
    hosts = {name: GraphHost(name=name, connector="local") for name in names}
    graph = ExecutionGraph("stragglers", nodes, hosts, {"": Scope(id="", own_params=True)})
    wall = min(run_graph(graph, HOSTS)[0] for _ in range(3))
    path = max(total.values())
    return [
        Row("50 hosts x 10 steps of 10 to 200 ms", f"{wall:.3f} s"),
        Row("  critical path", f"{path:.3f} s"),
        Row("  over the critical path", f"{(wall / path - 1) * 100:.1f}%", "at most 10%", wall <= path * 1.10),
        Row("  step by step on all hosts it would be", f"{slowest_of_each_step:.3f} s"),
    ]
