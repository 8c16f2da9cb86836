"""The graph as networkx has it, and the fragments that it is linked from."""

from __future__ import annotations

import subprocess
import sys

import networkx as nx
import pytest

from kubexm_exec.compile import compile_pipeline
from kubexm_exec.model.graph import ExecutionFragment
from tests.compile.kit import Spec
from tests.compile.running import run_to_the_end
from tests.compile.test_golden import GOLDEN, NAMES

SPEC = """
inventory: {hosts: [{name: "n[1:2]", connector: local}]}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: a, type: message, with: {text: a}}
          - {name: b, type: message, with: {text: b}}
          - {name: c, type: message, needs: [a], with: {text: c}}
      - {name: u, steps: [{name: d, type: message, with: {text: d}}]}
"""


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_a_dag_in_which_the_scheduler_keeps_to_every_edge(name: str) -> None:
    graph = compile_pipeline(GOLDEN / name / "main.yaml")
    order = graph.digraph()
    assert nx.is_directed_acyclic_graph(order)
    assert {(node, host) for node, host in order if host} == {
        (node.id, host) for node in graph.steps() for host in node.hosts
    }
    place = {action: number for number, action in enumerate(run_to_the_end(graph))}
    for action in place:
        for before in nx.ancestors(order, action):
            assert before not in place or place[before] < place[action]


def test_networkx_tells_what_comes_before_and_after_an_action(spec: Spec) -> None:
    graph = spec.write(SPEC).compile().graph
    assert graph is not None
    order = graph.digraph()
    assert nx.ancestors(order, ("m/t/c", "n1")) == {("m/t/a", "n1")}
    assert {each for each in nx.descendants(order, ("m/t/b", "n1")) if each[1]} == {("m/u/d", "n1"), ("m/u/d", "n2")}
    assert nx.dag_longest_path(order)[-1] == ("#end", "")


def test_fragment_knows_where_it_begins_and_ends(spec: Spec) -> None:
    graph = spec.write(SPEC).compile().graph
    assert graph is not None
    steps = ExecutionFragment.of(node for node in graph.steps() if node.task == "t")
    assert steps.entry_nodes == ("m/t/a",)
    assert steps.exit_nodes == ("m/t/b", "m/t/c")
    assert [node.id for node in steps.exits] == ["m/t/b", "m/t/c"]
    task = ExecutionFragment.of(node for node in graph.nodes.values() if node.task == "t")
    assert task.exit_nodes == ("m/t#end",)
    assert ExecutionFragment.of([]) == ExecutionFragment()


def test_compiling_and_scheduling_load_no_networkx() -> None:
    code = (
        "import sys\n"
        "from kubexm_exec.compile import compile_pipeline\n"
        "from kubexm_exec.scheduler import Scheduler\n"
        "Scheduler(compile_pipeline(sys.argv[1]), forks=2).ready()\n"
        "print('networkx' in sys.modules)\n"
    )
    path = str(GOLDEN / NAMES[0] / "main.yaml")
    assert subprocess.check_output([sys.executable, "-c", code, path], text=True) == "False\n"
