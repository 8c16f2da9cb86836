"""Values: types of parameters, where values come from, which one wins, and what is data for ever."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compile.kit import Spec

PARAMS = """
params:
  text: {type: string, default: t}
  count: {type: integer, default: 1}
  ratio: {type: number, default: 1}
  on: {type: boolean, default: false}
  names: {type: list, default: []}
  opts: {type: object, default: {}}
  token: {type: secret, default: "env:TOKEN"}
  level: {enum: [low, high], default: low}
  tag: {pattern: 'v\\d+', default: v1}
  maybe: {type: integer, required: false}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - name: s
            type: set
            with:
              values:
                text: "{{ params.text }}"
                count: "{{ params.count }}"
                ratio: "{{ params.ratio }}"
                on: "{{ params.on }}"
                names: "{{ params.names }}"
                opts: "{{ params.opts }}"
                level: "{{ params.level }}"
                tag: "{{ params.tag }}"
                maybe: "{{ params.maybe }}"
"""


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "", ""),
        ("text", "5", "5"),
        ("text", "true", "true"),
        ("text", "a=b", "a=b"),
        ("text", "{{ 7 * 7 }}", "{{ 7 * 7 }}"),
        ("count", "7", 7),
        ("count", "-7", -7),
        ("count", " 7 ", 7),
        ("ratio", "7", 7),
        ("ratio", "7.5", 7.5),
        ("ratio", "1e3", 1000.0),
        ("ratio", ".5", 0.5),
        ("on", "true", True),
        ("on", "Yes", True),
        ("on", "0", False),
        ("on", "off", False),
        ("names", "a,b", ["a", "b"]),
        ("names", "a", ["a"]),
        ("names", "", []),
        ("names", "a, b ,", ["a", "b"]),
        ("names", "[1, 'x', true]", [1, "x", True]),
        ("names", '["{{ evil }}"]', ["{{ evil }}"]),
        ("opts", "{a: 1}", {"a": 1}),
        ("opts", '{"a": {"b": null}}', {"a": {"b": None}}),
        ("opts", "a: 1\nb: [2]", {"a": 1, "b": [2]}),
        ("level", "high", "high"),
        ("tag", "v22", "v22"),
        ("maybe", "3", 3),
    ],
)
def test_a_value_from_the_command_line_gets_the_type_of_its_parameter(
    spec: Spec, name: str, text: str, value: Any
) -> None:
    found = spec.write(PARAMS).params("m/t/s", texts={name: text})["values"][name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("count", "seven"),
        ("count", "7.5"),
        ("count", ""),
        ("count", "1_000"),
        ("count", "0x10"),
        ("count", "７"),
        ("count", "9" * 5000),
        ("ratio", "much"),
        ("ratio", "nan"),
        ("ratio", "inf"),
        ("on", "maybe"),
        ("on", ""),
        ("on", "2"),
        ("names", "[1"),
        ("names", "{a: 1}"),
        ("opts", "[1]"),
        ("opts", "text"),
        ("opts", "{a: 1"),
        ("opts", ""),
        ("opts", "{a: !!python/object:os.system x}"),
        ("token", "hunter2"),
        ("token", "hunter:2"),
        ("token", "evn:TOKEN"),
        ("token", ""),
        ("level", "middle"),
        ("tag", "v1x"),
        ("tag", "xv1"),
        ("tag", "v1\n"),
        ("maybe", "x"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_error_at_the_parameter(spec: Spec, name: str, text: str) -> None:
    (finding,) = spec.write(PARAMS).compile(texts={name: text}).diagnostics
    assert finding.code == "bad-param"
    assert finding.summary.startswith(f"-e {name}: ")
    assert finding.span is not None
    line = spec.path.read_text("utf-8").splitlines()[finding.span.line - 1]
    assert line.startswith(f"  {name}:")
    assert finding.span.column == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("count", "7"), ("count", True), ("count", 7.5), ("ratio", True), ("text", 5), ("on", 1), ("names", {}),
     ("opts", []), ("token", "hunter2"), ("token", 5), ("level", True), ("text", None), ("tag", ["v1"])],
)  # fmt: skip
def test_a_value_from_a_file_must_have_the_type_itself(spec: Spec, name: str, value: Any) -> None:
    (finding,) = spec.write(PARAMS).compile(values={name: value}).diagnostics
    assert finding.code == "bad-param"
    assert "(values)" in finding.summary


def test_the_command_line_wins_over_files_and_files_over_defaults(spec: Spec) -> None:
    spec.write(PARAMS)
    found = spec.params("m/t/s", values={"text": "file", "count": 5}, texts={"text": "line"})["values"]
    assert (found["text"], found["count"], found["ratio"]) == ("line", 5, 1)


def test_a_secret_is_never_in_a_message(spec: Spec) -> None:
    spec.write(PARAMS)
    for options in (
        {"texts": {"token": "hunter2"}},
        {"values": {"token": "hunter2"}},
        {"texts": {"token": "x:hunter2"}},
    ):
        assert all("hunter2" not in str(finding) for finding in spec.compile(**options).diagnostics)


EVIL = "{{ ''.__class__ }}{% for x in y %}{{ vars.secret_thing }}"


def test_values_from_outside_are_data_wherever_they_go(spec: Spec) -> None:
    """Through vars, used documents, loops, conditions and task outputs: never evaluated."""
    spec.write(
        """
        params: {evil: {type: string}, many: {type: list}}
        vars: {copy: "{{ params.evil }}", nested: ["{{ params.evil }}"]}
        modules:
          - name: m
            when: params.evil != 'x'
            tasks:
              - name: t
                steps:
                  - name: s
                    type: set
                    with:
                      values:
                        a: "{{ params.evil }}"
                        b: "{{ vars.copy }}"
                        c: "{{ vars.nested }}"
                        d: "<{{ vars.copy }}>"
                  - {name: each, type: set, forEach: "{{ params.many }}", with: {values: {a: "{{ item }}"}}}
              - {name: u, uses: used.yaml, with: {inner: "{{ params.evil }}", more: ["{{ vars.copy }}"]}}
        """,
        used__yaml="""
        apiVersion: kubexm.io/v1
        kind: Task
        metadata: {name: u}
        params: {inner: {type: string}, more: {type: list}}
        vars: {again: "{{ params.inner }}"}
        steps:
          - name: s
            type: set
            with: {values: {a: "{{ params.inner }}", b: "{{ vars.again }}", c: "{{ params.more }}"}}
        """,
    )
    for options in ({"texts": {"evil": EVIL}, "values": {"many": [EVIL]}}, {"values": {"evil": EVIL, "many": [EVIL]}}):
        found = spec.params("m/t/s", **options)["values"]
        assert found == {"a": EVIL, "b": EVIL, "c": [EVIL], "d": f"<{EVIL}>"}
        assert spec.params("m/u/s", **options)["values"] == {"a": EVIL, "b": EVIL, "c": [EVIL]}
        (each,) = [node for node in spec.graph(**options).steps() if node.has_item]
        assert spec.params(each.id, **options)["values"] == {"a": EVIL}


PRECEDENCE = """
vars: {a: pipeline, b: pipeline, c: pipeline, d: pipeline, e: pipeline, f: pipeline, g: pipeline}
inventory:
  vars: {d: inventory, e: inventory, f: inventory, g: inventory}
  roles: {web: {vars: {e: role, f: role, g: role}}}
  groups: {front: {hosts: [n1], vars: {f: group, g: group}}}
  hosts:
    - {name: n1, connector: local, roles: [web], vars: {g: host}}
    - {name: n2, connector: local, roles: [web]}
modules:
  - name: m
    vars: {b: module, c: module, d: module}
    tasks:
      - name: t
        vars: {c: task, d: task}
        steps:
          - {name: s, type: set, with: {values: "{{ vars }}"}}
      - name: u
        steps:
          - {name: s, type: set, with: {values: "{{ vars }}"}}
"""


def test_what_is_closer_to_the_host_wins(spec: Spec) -> None:
    spec.write(PRECEDENCE)
    assert spec.params("m/t/s", "n1")["values"] == {
        "a": "pipeline", "b": "module", "c": "task", "d": "inventory", "e": "role", "f": "group", "g": "host",
    }  # fmt: skip
    assert spec.params("m/t/s", "n2")["values"] == {
        "a": "pipeline", "b": "module", "c": "task", "d": "inventory", "e": "role", "f": "role", "g": "role",
    }  # fmt: skip
    assert spec.params("m/u/s", "n1")["values"]["c"] == "module"


def test_a_used_document_is_closed(spec: Spec) -> None:
    """It sees its own params and vars and the inventory's, not those of who uses it."""
    used = """
    apiVersion: kubexm.io/v1
    kind: Module
    metadata: {name: u}
    params: {port: {type: integer, default: 1}}
    vars: {own: "{{ params.port }}"}
    tasks:
      - name: t
        steps:
          - {name: s, type: set, with: {values: {own: "{{ vars.own }}", region: "{{ vars.region }}"}}}
          - {name: wrong, type: message, with: {text: "{{ vars.outside }} {{ params.outer }}"}}
    """
    spec.write(
        """
        params: {outer: {default: 5, type: integer}}
        vars: {outside: 1}
        inventory: {vars: {region: eu}, hosts: [{name: n, connector: local}]}
        modules: [{name: m, uses: u.yaml, with: {port: "{{ params.outer + 1 }}"}}]
        """,
        u__yaml=used,
    )
    assert spec.codes() == ["unknown-var", "unknown-param"]
    spec.file("u.yaml", used[: used.index("          - {name: wrong")])
    assert spec.params("m/t/s")["values"] == {"own": 6, "region": "eu"}


def test_values_are_checked_for_each_item_and_scope_that_they_depend_on(spec: Spec) -> None:
    text = """
        vars: {mode: "{{ item }}", name: "{{ host.name }}"}
        modules:
          - name: m
            tasks:
              - name: loop
                steps:
                  - {name: s, type: file, forEach: ["600", "no"], with: {path: /x, content: x, mode: "{{ vars.mode }}"}}
              - name: own
                vars: {mode: "none"}
                steps:
                  - {name: a, type: file, with: {path: "/{{ vars.name }}", content: x, mode: "{{ vars.mode }}"}}
              - name: other
                vars: {mode: "0644"}
                steps:
                  - {name: a, type: file, with: {path: "/{{ vars.name }}", content: x, mode: "{{ vars.mode }}"}}
        """
    found = spec.write(text).compile().diagnostics.sorted()
    assert [(finding.code, finding.span.line if finding.span else 0) for finding in found] == [
        ("wrong-value", 11),
        ("wrong-value", 15),
    ]


def test_a_secret_that_is_passed_on_is_looked_up_once(spec: Spec) -> None:
    spec.write(
        """
        params: {token: {type: secret, default: "env:TOKEN"}, name: {default: X}}
        vars: {hidden: "{{ params.token }}"}
        modules:
          - {name: param, uses: u.yaml, with: {pw: "{{ params.token }}"}}
          - {name: call, uses: u.yaml, with: {pw: "{{ secret('env:OTHER') }}"}}
          - {name: var, uses: u.yaml, with: {pw: "{{ vars.hidden }}"}}
          - {name: built, uses: u.yaml, with: {pw: "env:{{ params.name }}"}}
          - {name: plain, uses: u.yaml, with: {pw: "env:PLAIN"}}
        """,
        u__yaml="""
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {name: u}
        params: {pw: {type: secret}}
        tasks: [{name: t, uses: t.yaml, with: {deep: "{{ params.pw }}"}}]
        """,
        t__yaml="""
        apiVersion: kubexm.io/v1
        kind: Task
        metadata: {name: t}
        params: {deep: {type: secret}}
        steps: [{name: s, type: set, with: {values: {pw: "{{ params.deep }}"}}}]
        """,
    )
    from kubexm_exec.compile.static import NoRecords, no_facts
    from kubexm_exec.values.evaluate import Evaluator

    result = spec.compile()
    assert result.graph is not None
    assert result.expressions is not None
    asked: list[str] = []

    def secret(reference: str) -> str:
        asked.append(reference)
        return f"value of {reference}"

    evaluator = Evaluator(result.graph, result.expressions, records=NoRecords(), facts=no_facts, secret=secret)
    for module, reference in {
        "param": "env:TOKEN", "call": "env:OTHER", "var": "env:TOKEN", "built": "env:X", "plain": "env:PLAIN",
    }.items():  # fmt: skip
        asked.clear()
        node = result.graph.nodes[f"{module}/t/s"]
        assert evaluator.params(node, "control-node")["values"] == {"pw": f"value of {reference}"}
        assert asked == [reference]


def test_values_for_used_documents_are_typed(spec: Spec) -> None:
    used = """
    apiVersion: kubexm.io/v1
    kind: Module
    metadata: {name: u}
    params: {port: {type: integer}, names: {type: list, default: [a]}, mode: {enum: [x, y], default: x}}
    tasks: [{name: t, steps: [{name: s, type: set, with: {values: {p: "{{ params.port }}"}}}]}]
    """
    for given, codes in (
        ("{port: 5}", []),
        ("{port: '5'}", ["bad-param"]),
        ("{port: '{{ 5 }}'}", []),
        ("{port: '{{ params.n }}'}", []),
        ("{port: 'x{{ params.n }}'}", ["bad-param"]),
        ("{port: 1, names: '{{ [1, 2] }}'}", []),
        ("{port: 1, names: '{{ params.n }}'}", ["bad-param"]),
        ("{port: 1, mode: '{{ \"z\" }}'}", ["bad-param"]),
        ("{port: '{{ facts.cpus }}'}", []),
        ("{}", ["missing-param"]),
        ("{port: null}", ["bad-param"]),
        ("{port: 1, x: 2}", ["unknown-param"]),
    ):
        spec.write(
            f"params: {{n: {{type: integer, default: 3}}}}\nmodules: [{{name: m, uses: u.yaml, with: {given}}}]\n",
            u__yaml=used,
        )
        assert spec.codes() == codes, given
