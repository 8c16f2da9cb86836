"""Environment variables of commands: written at four levels, the inner one wins name by name."""

from __future__ import annotations

import pytest

from tests.compile.kit import Spec

SPEC = """
params: {{level: {{default: outer}}}}
env: {{A: pipeline, B: pipeline, C: pipeline, D: pipeline}}
hooks: {{pre: [{{name: first, type: message, with: {{text: x}}, env: {{A: hook}}}}]}}
modules:
  - name: m
    env: {{B: module, C: module, D: module}}
    tasks:
      - name: t
        env: {{C: task, D: task}}
        steps:
          - {{name: s, type: message, with: {{text: x}}, env: {{D: step, A: null}}, notify: h}}
          - name: plain
            type: message
            with: {{text: x}}
            onFailure: [{{name: f, type: message, with: {{text: x}}}}]
        handlers: [{{name: h, type: message, with: {{text: x}}, env: {{D: handler}}}}]
      - {{name: used, uses: u.yaml, with: {{level: inner}}, env: {{THERE: "{{{{ params.level }}}}", E: use}}}}
  - name: bare
    tasks: [{{name: t, env: {{A: null}}, steps: [{{name: s, type: message, with: {{text: x}}, env: {{A: {again}}}}}]}}]
"""
USED = """\
apiVersion: kubexm.io/v1
kind: Task
metadata: {name: u}
params: {level: {}}
env: {HERE: "{{ params.level }}", E: document, F: document}
steps: [{name: s, type: message, with: {text: x}}]
"""


@pytest.fixture
def written(spec: Spec) -> Spec:
    return spec.write(SPEC.format(again="again"), u__yaml=USED)


def test_the_inner_value_wins_name_by_name_and_null_takes_one_away(written: Spec) -> None:
    nodes = written.graph().nodes
    values = {name: {key: value for key, (_, value) in node.env.items()} for name, node in nodes.items()}
    of_task = {"A": "pipeline", "B": "module", "C": "task", "D": "task"}
    assert values["m/t/s"] == {"B": "module", "C": "task", "D": "step"}
    assert values["m/t/plain"] == values["m/t/plain/hooks/onFailure/f"] == of_task
    assert values["m/t/handlers/h"] == {**of_task, "D": "handler"}
    assert values["hooks/pre/first"] == {**dict.fromkeys("BCD", "pipeline"), "A": "hook"}
    assert values["bare/t/s"] == {**dict.fromkeys("BCD", "pipeline"), "A": "again"}
    assert values["m/t#end"] == {}


def test_a_value_sees_what_is_around_the_place_where_it_is_written(written: Spec) -> None:
    node = written.graph().nodes["m/used/s"]
    assert node.env["THERE"] == ("m", "{{ params.level }}"), "of the one that uses the document"
    assert node.env["HERE"] == ("m/used", "{{ params.level }}"), "of the document"
    assert (node.env["E"][1], node.env["F"][1]) == ("use", "document")


def test_a_changed_value_changes_the_nodes_that_have_it_and_no_others(spec: Spec) -> None:
    before = spec.write(SPEC.format(again="again"), u__yaml=USED).graph()
    after = spec.write(SPEC.format(again="other"), u__yaml=USED).graph()
    changed = [name for name, node in after.nodes.items() if node.content_hash() != before.nodes[name].content_hash()]
    assert changed == ["bare/t/s"]
    given = spec.graph(texts={"level": "deep"})
    changed = [name for name, node in given.nodes.items() if node.content_hash() != after.nodes[name].content_hash()]
    assert changed == ["m/used/s"], "the value that an expression refers to counts, too"
    assert given.nodes["m/used/s"].inputs() != after.nodes["m/used/s"].inputs()


def test_numbers_and_truth_values_are_texts(spec: Spec) -> None:
    text = "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: message, with: {text: x}, env: ENV}]}]}]"
    graph = spec.write(text.replace("ENV", "{A: 1, B: true, C: 1.5, D: ''}")).graph()
    assert [value for _, value in graph.nodes["m/t/s"].env.values()] == ["1", "true", "1.5", ""]
