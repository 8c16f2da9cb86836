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


def expected(bad: Collection[str], size: int, budget: int) -> set[str]:
    """The hosts that are begun: batch after batch as long as no more than the budget have failed."""
    names = [f"n{number}" for number in range(1, 7)]
    begun: set[str] = set()
    for first in range(0, 6, size):
        if len(begun & set(bad)) > budget:
            break
        begun.update(names[first : first + size])
    return begun


@pytest.mark.parametrize(("written", "budget"), [("0", 0), ("1", 1), ("2", 2), ("17%", 1), ("16%", 0), ("50%", 3)])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("bad", [(), ("n1",), ("n1", "n2"), ("n2", "n3"), ("n1", "n3", "n5"), ("n1", "n2", "n3", "n4")])
def test_the_next_batch_starts_as_long_as_no_more_hosts_have_failed_than_the_batch_allows(
    spec: Spec, written: str, budget: int, size: int, bad: tuple[str, ...]
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
