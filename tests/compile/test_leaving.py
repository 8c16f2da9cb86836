"""Whole specs of random shapes: a host that failed is skipped by all that comes after, however it is written."""

from __future__ import annotations

import itertools
import json
import pathlib
import tempfile
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Action, Outcome, Scheduler
from tests.compile.kit import Spec

HOSTS = ["h1", "h2", "h3", "h4"]


def random_tasks(dice: Random) -> list[list[dict[str, object]]]:
    """Modules of tasks on some of the hosts, in all the ways that a task can be run over them."""
    modules: list[list[dict[str, object]]] = []
    for _ in range(dice.randint(2, 4)):
        tasks: list[dict[str, object]] = []
        for number in range(dice.randint(1, 3)):
            task: dict[str, object] = {
                "name": f"t{number}",
                "runOn": {"hosts": dice.sample(HOSTS, dice.randint(1, 4))},
                "steps": [
                    {"name": f"s{step}", "type": "message", "with": {"text": "x"}} for step in range(dice.randint(1, 2))
                ],
            }
            task |= dice.choice([{}, {}, {"strategy": "linear"}, {"batch": 1}, {"batch": {"size": 2}}])
            task |= dice.choice([{}, {}, {"align": "host"}])
            if dice.random() < 0.3:
                task["hooks"] = {"post": [{"name": "p", "type": "message", "with": {"text": "x"}}]}
            tasks.append(task)
        modules.append(tasks)
    return modules


def play(graph: ExecutionGraph, bad: set[tuple[str, str]], dice: Random) -> dict[tuple[str, str], str]:
    """How every action ended, in an order that the dice decide."""
    scheduler = Scheduler(graph)
    record: dict[tuple[str, str], str] = {}
    running: list[Action] = []
    while not scheduler.done:
        offered = scheduler.ready()
        if offered and (not running or dice.random() < 0.5):
            action = dice.choice(offered)
            scheduler.start(action)
            running.append(action)
        else:
            action = running.pop(dice.randrange(len(running)))
            failed = (action.node, action.host) in bad
            scheduler.finish(action, Outcome(Status.FAILED if failed else Status.SUCCESS))
            record[action] = "Failed" if failed else "Success"
    for one in scheduler.drain():
        if one.host:
            record[one.node, one.host] = f"{one.status.value} {one.reason} {one.cause}"
    record["", ""] = scheduler.run_status().value
    return record


@given(seed=st.integers(0, 2**32))
def test_in_the_order_of_writing_a_host_that_failed_does_nothing_in_any_later_task(seed: int) -> None:
    dice = Random(seed)
    modules = random_tasks(dice)
    document = {
        "maxFailures": "100%",
        "inventory": {"hosts": [{"name": name} for name in HOSTS]},
        "modules": [{"name": f"m{number}", "tasks": tasks} for number, tasks in enumerate(modules)],
    }
    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join(f"{key}: {json.dumps(value)}" for key, value in document.items())
        graph = Spec(pathlib.Path(folder)).write(text).graph()
    steps = [(node.id, host) for node in graph.steps() for host in node.hosts]
    bad = {key for key in steps if dice.random() < 0.15}
    record = play(graph, bad, Random(seed + 1))
    assert record == play(graph, bad, Random(seed + 2)), "the interleaving decides"
    order = {f"m{number}/{task['name']}": at for at, (number, task) in enumerate(
        itertools.chain.from_iterable([(number, task) for task in tasks] for number, tasks in enumerate(modules))
    )}  # fmt: skip
    task_of = {node.id: f"{node.module}/{node.task}" for node in graph.steps()}
    left: dict[str, int] = {}
    for (node, host), end in record.items():
        if host and end == "Failed":
            left[host] = min(left.get(host, 99), order[task_of[node]])
    for node, host in steps:
        if order[task_of[node]] > left.get(host, 99):
            assert record[node, host].startswith("Skipped dependency"), (node, host)
        elif host not in left:
            assert record[node, host] == "Success", (node, host)
    assert record["", ""] == "Success"
