"""What ``maxFailures`` of a batch means: how many hosts may fail before the next batch does not start any more."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import Status
from kubexm_exec.scheduler import Outcome, Scheduler
from tests.compile.kit import Spec

SPEC = """
inventory: {{hosts: [{{name: "n[1:6]"}}]}}
{pipeline}
modules:
  - name: m
    {module}
    tasks:
      - name: t
        {task}
        batch: {{size: {size}, maxFailures: {budget}}}
        steps:
          - {{name: a, type: message, with: {{text: a}}}}
          - {{name: b, type: message, with: {{text: b}} {step}}}
"""


def run(graph: ExecutionGraph, bad: Collection[str]) -> tuple[set[str], str]:
    """The hosts on which the task was begun when all of ``bad`` fail in one of its steps, and what the run came to."""
    scheduler = Scheduler(graph)
    begun: set[str] = set()
    while not scheduler.done:
        for action in scheduler.ready():
            scheduler.start(action)
            begun.add(action.host)
            # One host in the first step, the next one in the second: they count together.
            failing = "m/t/b" if int(action.host[1:]) % 2 else "m/t/a"
            failed = action.host in bad and action.node == failing
            scheduler.finish(action, Outcome(Status.FAILED if failed else Status.SUCCESS))
    return begun, scheduler.run_status().value


def expected(bad: Collection[str], size: int | list[int], budget: int) -> set[str]:
    """The hosts that are begun: batch after batch as long as no more than the budget have failed."""
    left = [f"n{number}" for number in range(1, 7)]
    sizes = [size] * 6 if isinstance(size, int) else [*size, *size[-1:] * 6]
    begun: set[str] = set()
    for count in sizes:
        if len(begun & set(bad)) > budget:
            break
        begun.update(left[:count])
        del left[:count]
    return begun


@pytest.mark.parametrize(("written", "budget"), [("0", 0), ("1", 1), ("2", 2), ("17%", 1), ("16%", 0), ("50%", 3)])
@pytest.mark.parametrize("size", [1, 2, 4, [1, 2], [1, 4, 2]])
@pytest.mark.parametrize("bad", [(), ("n1",), ("n1", "n2"), ("n2", "n3"), ("n1", "n3", "n5"), ("n1", "n2", "n3", "n4")])
def test_the_next_batch_starts_as_long_as_no_more_hosts_have_failed_than_the_batch_allows(
    spec: Spec, written: str, budget: int, size: int | list[int], bad: tuple[str, ...]
) -> None:
    text = SPEC.format(pipeline="", module="", task="", step="", size=size, budget=written)
    begun, status = run(spec.write(text).graph(), bad)
    assert begun == expected(bad, size, budget)
    if len(bad) <= budget:
        assert status == "Success"
    elif len(begun) < 6:
        assert status == "Failed"


@pytest.mark.parametrize("level", ["pipeline", "module"])
@pytest.mark.parametrize("outer", ["0", "3"])
def test_what_a_batch_says_is_closer_than_what_is_said_around_its_task(spec: Spec, level: str, outer: str) -> None:
    around = {"pipeline": "", "module": "", level: f"maxFailures: {outer}"}
    graph = spec.write(SPEC.format(**around, task="", step="", size=2, budget=1)).graph()
    assert run(graph, ["n1"]) == (expected((), 2, 1), "Success")
    assert run(graph, ["n1", "n2"]) == ({"n1", "n2"}, "Failed")


@pytest.mark.parametrize("where", ["task", "step"])
def test_a_task_or_step_that_bears_less_than_the_batch_stops_at_that(spec: Spec, where: str) -> None:
    own = {"task": "", "step": "", where: "maxFailures: 0" if where == "task" else ", maxFailures: 0"}
    graph = spec.write(SPEC.format(pipeline="", module="", **own, size=2, budget=1)).graph()
    assert run(graph, ["n1"]) == ({"n1", "n2"}, "Failed"), "it fails in the step that bears none"


def test_a_task_that_bears_more_than_the_batch_stops_at_the_batch(spec: Spec) -> None:
    graph = spec.write(SPEC.format(pipeline="", module="", task="maxFailures: 3", step="", size=2, budget=1)).graph()
    assert run(graph, ["n1"]) == (expected((), 2, 1), "Success")
    assert run(graph, ["n1", "n2"]) == ({"n1", "n2"}, "Failed")


@pytest.mark.parametrize(
    ("size", "batches"),
    [
        ("[1, 2, 100%]", ["n1", "n2 n3", "n4 n5 n6"]),
        ("[1, 2]", ["n1", "n2 n3", "n4 n5", "n6"]),
        ("[1, 50%]", ["n1", "n2 n3 n4", "n5 n6"]),
        ("[1%, 16%, 34%]", ["n1", "n2", "n3 n4", "n5 n6"]),
        ("[4, 1]", ["n1 n2 n3 n4", "n5", "n6"]),
        ("[100%, 1]", ["n1 n2 n3 n4 n5 n6"]),
        ("[2]", ["n1 n2", "n3 n4", "n5 n6"]),
    ],
)
@pytest.mark.parametrize("form", ["{{size: {size}}}", "{size}"])
def test_batches_have_the_sizes_of_a_list_and_then_its_last_one(
    spec: Spec, size: str, batches: list[str], form: str
) -> None:
    hook = "{name: begin, type: message, with: {text: '{{ batch.number }} of {{ batch.count }}'}}"
    written = form.format(size=size)
    if form.startswith("{{"):
        written = written.removesuffix("}") + f", hooks: {{pre: [{hook}]}}}}"
    text = SPEC.format(pipeline="", module="", task="", step="", size=0, budget=0)
    graph = spec.write(text.replace("{size: 0, maxFailures: 0}", written)).graph()
    gates = [node for node in graph.nodes.values() if node.batch_budget is not None]
    assert [node.id for node in gates] == [f"m/t#batch{number}" for number in range(2, len(batches) + 1)]
    waits = {dep.node: dep.hosts for dep in graph.nodes["m/t/a"].dependencies}
    found = [waits[gate.id] for gate in gates]
    assert [" ".join(hosts or ()) for hosts in found] == batches[1:]
    hooks = [node for node in graph.nodes.values() if node.batch is not None]
    if form.startswith("{{"):
        assert [" ".join(node.hosts) for node in hooks] == batches
        assert [(node.batch.number, node.batch.count) for node in hooks if node.batch] == [
            (number, len(batches)) for number in range(1, len(batches) + 1)
        ]
