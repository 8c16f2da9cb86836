"""Fragments: steps that come during a run are held to the same rules as those of a spec."""

from __future__ import annotations

from typing import Any

import pytest

from kubexm_exec.compile.fragment import compile_fragment
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode
from kubexm_exec.plugins import step_registry
from kubexm_spec.diagnostics import SpecError
from tests.compile.kit import Spec

SPEC = """
params: {p: {default: x}}
vars: {v: "{{ params.p }}", later: "{{ steps.before.outputs.stdout }}"}
inventory: {hosts: [{name: "n[1:3]", connector: local, roles: [web]}]}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: before, type: command, with: {argv: [ls]}}
          - {name: more, type: fragment, with: {steps: []}}
      - {name: other, steps: [{name: x, type: message, with: {text: x}}]}
"""


class Fragments:
    """Compiles what (m/t/more, n1) returns."""

    def __init__(self, spec: Spec) -> None:
        result = spec.write(
            SPEC.replace("{steps: []}", "{steps: [{name: a, type: message, with: {text: a}}]}")
        ).compile()
        assert result.graph is not None
        assert result.expressions is not None
        self.graph: ExecutionGraph = result.graph
        self.expressions = result.expressions

    def compile(self, *steps: Any, host: str = "n1") -> list[ExecutionNode]:
        return list(self.fragment(*steps, host=host).nodes)

    def fragment(self, *steps: Any, host: str = "n1") -> ExecutionFragment:
        return compile_fragment(
            self.graph, self.graph.nodes["m/t/more"], host, list(steps),
            registry=step_registry(), expressions=self.expressions,
        )  # fmt: skip

    def errors(self, *steps: Any) -> list[str]:
        with pytest.raises(SpecError) as caught:
            self.compile(*steps)
        assert all(finding.span is not None for finding in caught.value.diagnostics)
        return [finding.code for finding in caught.value.diagnostics.sorted()]


@pytest.fixture
def fragments(spec: Spec) -> Fragments:
    return Fragments(spec)


def message(name: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "message", "with": {"text": text}, **more}


def order(nodes: list[ExecutionNode]) -> dict[str, list[str]]:
    return {node.id: [dep.node for dep in node.dependencies] for node in nodes}


def test_steps_follow_one_another_under_the_node_that_returned_them(fragments: Fragments) -> None:
    nodes = fragments.compile(message("a"), message("b"))
    assert order(nodes) == {"m/t/more+a": ["m/t/more"], "m/t/more+b": ["m/t/more+a"]}
    assert {node.hosts for node in nodes} == {("n1",)}


def test_needs_may_name_steps_further_down(fragments: Fragments) -> None:
    nodes = fragments.compile(message("a", needs=["c"]), message("b", needs=[]), message("c", needs=["b"]))
    assert order(nodes) == {
        "m/t/more+a": ["m/t/more+c"],
        "m/t/more+b": ["m/t/more"],
        "m/t/more+c": ["m/t/more+b"],
    }


def test_an_empty_loop_does_not_break_the_chain(fragments: Fragments) -> None:
    nodes = fragments.compile(message("a"), message("none", forEach=[]), message("b"))
    assert order(nodes)["m/t/more+b"] == ["m/t/more+a"]


def test_steps_elsewhere_wait_and_are_waited_for_as_a_whole(fragments: Fragments) -> None:
    nodes = fragments.compile(message("a", runOn={"roles": ["web"]}), message("b"))
    assert order(nodes) == {
        "m/t/more+a#begin": ["m/t/more"],
        "m/t/more+a": ["m/t/more+a#begin"],
        "m/t/more+b#begin": ["m/t/more+a"],
        "m/t/more+b": ["m/t/more+b#begin"],
        "m/t/more+#end": ["m/t/more+a", "m/t/more+b"],
    }


def test_a_fragment_sees_what_ran_before_and_the_values_of_its_task(fragments: Fragments) -> None:
    text = "{{ steps.before.outputs.stdout }} {{ vars.v }} {{ vars.later }} {{ params.p }}"
    (node,) = fragments.compile(message("a", text + " {{ steps['m/other/x'].changed }}"))
    assert node.scope == "m/t"


@pytest.mark.parametrize(
    ("steps", "codes"),
    [
        ([message("a"), message("a")], ["duplicate-name"]),
        ([message("a", needs=["b"]), message("b", needs=["a"])], ["cycle"]),
        ([message("a", needs=["a"])], ["cycle"]),
        ([message("a", needs=["nope"])], ["unknown-need"]),
        ([{"name": "a", "type": "mesage"}], ["unknown-step-type"]),
        ([{"name": "a", "type": "message", "with": {"txt": 1}}], ["unknown-key"]),
        ([{"name": "a"}], ["missing-key"]),
        ([{}], ["missing-key", "missing-key"]),
        (["text"], ["wrong-type"]),
        ([message("a", "{{ vars.nope }}")], ["unknown-var"]),
        ([message("a", "{{ steps.b.changed }}"), message("b")], ["later-step"]),
        ([message("a", "{{ 1 + }}")], ["bad-expression"]),
        ([message("a", runOn={"roles": ["nobody"]})], ["unknown-role"]),
        ([message("a", runOn="nowhere")], ["unknown-host"]),
        ([message("a", onFailure=[message("b")])], ["no-hooks"]),
        ([message("a", forEach="{{ facts.x }}")], ["unknown-fact"]),
        ([{"name": "a", "type": "script", "with": {"src": "nope.sh"}}], ["file-not-found"]),
    ],
)
def test_a_wrong_fragment_is_told_with_its_places(fragments: Fragments, steps: list[Any], codes: list[str]) -> None:
    assert fragments.errors(*steps) == codes


def test_texts_that_yaml_does_not_take_are_no_trouble(fragments: Fragments) -> None:
    text = "a\u2028b\x7f\ufeff\t'\"\\ {% raw %}{{{% endraw %} \U0001f600"
    (node,) = fragments.compile(message("a", text))
    assert node.with_ == {"text": text}


def test_fragment_begins_with_what_waits_for_its_node_alone_and_ends_with_what_nobody_in_it_waits_for(
    fragments: Fragments,
) -> None:
    made = fragments.fragment(message("one"), message("two"), message("three", needs=["one"]))
    assert made.entry_nodes == ("m/t/more+one",)
    assert made.exit_nodes == ("m/t/more+two", "m/t/more+three")


def test_a_loop_over_what_only_the_run_knows_is_left_to_it(fragments: Fragments) -> None:
    [node] = fragments.compile(message("a", "{{ item }}", forEach="{{ facts.hostname.split('.') }}"))
    assert node.loop is not None
    assert (node.loop.items, node.has_item) == ("{{ facts.hostname.split('.') }}", False)
