"""References: what is known where, what is forgiven, and what is found only by following others."""

from __future__ import annotations

import pytest

from tests.compile.kit import Spec

HOSTS = """
inventory:
  hosts:
    - {name: "node[1:2]", connector: local, roles: [worker], vars: {mtu: 9000}}
    - {name: db1, connector: local, roles: [db], vars: {disk: sda}}
"""


def one_step(text: str, more: str = "", *, top: str = "") -> str:
    return (
        f"{top}\nmodules:\n  - name: m\n    tasks:\n      - name: t\n        steps:\n"
        "          - {name: before, type: command, with: {argv: [ls]}}\n"
        f'          - {{name: s, type: message, {more}with: {{text: "{text}"}}}}\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "{{ host.name }} {{ host.address }} {{ host.labels.zone | default('x') }}",
        "{{ facts.os.family }} {{ facts.cpus }}",
        "{{ run.id }} {{ run.name }}",
        "{{ steps.before.outputs.stdout }} {{ steps.before.changed }} {{ steps.before.status }}",
        "{{ steps['before'].outputs['stdout'] }} {{ steps['t/before'].changed }} {{ steps['m/t/before'].changed }}",
        "{{ steps.before.hosts.node1.outputs.stdout }}",
        "{{ hosts.node1.address }} {{ hosts['db1'].roles }}",
        "{% for name, h in hosts.items() %}{{ name }}{{ h.address }}{% endfor %}",
        "{% for h in hosts.values() %}{{ h.name }}{% endfor %}",
        "{{ secret('env:X') }}",
        "{{ range(3) | join }} {{ dict(a=1).a }} {% set ns = namespace(x=1) %}{{ ns.x }}",
        "{{ vars.nope | default('x') }} {{ vars.nope.deeper | default('x') }}",
        "{% if vars.nope is defined %}{{ vars.nope }}{% endif %}",
        "{{ vars.disk if vars.disk is defined else 'none' }}",
        "{{ vars.disk | default('x') }}",
        "{{ steps.before.outputs.nope | default('x') }}",
        "{{ facts.nope | default('x') }}",
        "{{ nope | default('x') }}",
        "{{ item | default('x') }}",
        "{{ hosts.nope.address | default('x') }}",
        "{{ params | length }} {{ vars | length }}",
    ],
)
def test_what_is_there_or_may_be_missing_is_no_error(spec: Spec, text: str) -> None:
    assert spec.write(one_step(text, top=HOSTS)).codes() == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{ vars.nope }}", "unknown-var"),
        ("{{ vars.disk }}", "unknown-var"),
        ("{{ vars.nope | upper }}", "unknown-var"),
        ("{{ x | default(vars.nope) }}", "unknown-var"),
        ("{{ params.nope | default('x') }}", "unknown-param"),
        ("{{ steps.nope.outputs.x | default('x') }}", "unknown-step"),
        ("{{ steps.s.changed }}", "later-step"),
        ("{{ steps.before.hosts.node9.changed }}", "unknown-host"),
        ("{{ steps.before.nope }}", "unknown-name"),
        ("{{ steps.before.outputs.nope }}", "unknown-output"),
        ("{{ hosts.nope.address }}", "unknown-host"),
        ("{{ hosts.node1.nope }}", "unknown-name"),
        ("{{ facts.nope }}", "unknown-fact"),
        ("{{ host.nope }}", "unknown-name"),
        ("{{ nope }}", "unknown-name"),
        ("{{ item }}", "no-item"),
        ("{{ result.x }}", "unknown-name"),
        ("{{ tasks.nope.outputs.x }}", "unknown-task"),
        ("{{ tasks.t.outputs.x }}", "later-task"),
        ("{{ modules.nope.outputs.x }}", "unknown-module"),
        ("{{ modules.m.outputs.x }}", "later-module"),
        ("{{ host.name | nope }}", "bad-expression"),
    ],
)
def test_what_is_not_there_is_an_error(spec: Spec, text: str, code: str) -> None:
    assert spec.write(one_step(text, top=HOSTS)).codes() == [code]


def test_a_condition_that_tests_a_name_excuses_the_step_that_uses_it(spec: Spec) -> None:
    for when in ("vars.disk is defined", "vars.disk is defined and host.name != 'x'", "vars.disk | default(false)"):
        assert spec.write(one_step("{{ vars.disk }}", f'when: "{when}", ', top=HOSTS)).codes() == [], when
    text = one_step("{{ vars.disk }}", top=HOSTS).replace(
        "- name: t\n", "- name: t\n        when: vars.disk is defined\n"
    )
    assert spec.write(text).codes() == []
    assert spec.write(one_step("{{ vars.nope }}", 'when: "vars.disk is defined", ', top=HOSTS)).codes() == [
        "unknown-var"
    ]


def test_a_step_that_never_runs_on_the_first_host_is_checked_on_another(spec: Spec) -> None:
    """The value is wrong only where the step runs."""
    text = one_step("x", "when: vars.disk is defined, ", top=HOSTS) + (
        '          - {name: w, type: command, when: vars.disk is defined, with: {argv: "{{ vars.disk }}"}}\n'
    )
    (finding,) = spec.write(text).compile().diagnostics
    assert (finding.code, "argv" in finding.summary) == ("wrong-type", True)


def test_variables_are_followed_through_every_layer(spec: Spec) -> None:
    spec.write(
        one_step(
            "{{ vars.a }}",
            top='vars: {a: "{{ vars.b }}", b: "{{ vars.c }}", c: "{{ steps.before.outputs.nope }}"}',
        )
    )
    (finding,) = spec.compile().diagnostics
    assert (finding.code, finding.span and finding.span.line) == ("unknown-output", 4)


def test_a_variable_may_refer_to_a_step_where_it_is_used_after_it(spec: Spec) -> None:
    top = 'vars: {v: "{{ steps.before.outputs.stdout }}"}'
    assert spec.write(one_step("{{ vars.v }}", top=top)).codes() == []
    assert spec.write(one_step("{{ vars.v }}", "needs: [], ", top=top)).codes() == ["later-step"]


def test_what_is_in_order_for_one_step_is_not_taken_for_granted_for_another(spec: Spec) -> None:
    text = """
        vars: {found: "{{ steps.probe.outputs.stdout }}", through: "{{ vars.found }}", free: "{{ host.name }}"}
        modules:
          - name: m
            tasks:
              - name: first
                steps:
                  - {name: probe, type: command, with: {argv: [ls]}}
                  - {name: uses, type: message, with: {text: "{{ vars.free }} {{ vars.through }}"}}
              - name: second
                steps:
                  - {name: uses, type: message, with: {text: "{{ vars.free }} {{ vars.through }}"}}
        """
    assert spec.write(text).codes() == ["unknown-step"]


@pytest.mark.parametrize(
    ("needs", "reference", "codes"),
    [
        ("[b]", "a", []),
        ("[b]", "left", ["later-step"]),
        ("[left]", "b", ["later-step"]),
        ("[b, left]", "left", []),
        ("[left, b]", "a", []),
    ],
)
def test_a_step_is_before_another_only_if_that_waits_for_it(
    spec: Spec, needs: str, reference: str, codes: list[str]
) -> None:
    text = f"""
        modules:
          - name: m
            tasks:
              - name: t
                steps:
                  - {{name: a, type: command, with: {{argv: [ls]}}}}
                  - {{name: b, type: command, with: {{argv: [ls]}}}}
                  - {{name: left, needs: [a], type: command, with: {{argv: [ls]}}}}
                  - {{name: c, needs: {needs}, type: command, with: {{argv: [ls]}}}}
                  - {{name: d, type: message, with: {{text: "{{{{ steps.{reference}.outputs.stdout }}}}"}}}}
        """
    assert spec.write(text).codes() == codes


def test_inventory_variables_are_followed_on_the_hosts_that_have_them(spec: Spec) -> None:
    top = """
inventory:
  vars: {common: "{{ vars.special }}"}
  hosts:
    - {name: a, connector: local, vars: {special: 1}}
    - {name: b, connector: local}
"""
    task = one_step("{{ vars.common }}", top=top)
    assert spec.write(task).codes() == ["unknown-var"]
    assert spec.write(task.replace("- name: t\n", "- name: t\n        runOn: a\n")).codes() == []


def test_a_circle_of_variables_is_told_with_the_place_of_every_edge(spec: Spec) -> None:
    spec.write(one_step("x", "when: vars.a == 1, ", top='vars:\n  a: "{{ vars.b }}"\n  b: "<{{ vars.a }}>"'))
    (finding,) = spec.compile().diagnostics
    assert finding.code == "cycle"
    assert finding.summary == "values refer to each other: vars.a -> vars.b -> vars.a"
    assert [(note.message, note.span and (note.span.line, note.span.column)) for note in finding.notes] == [
        ("vars.a refers to vars.b", (5, 10)),
        ("vars.b refers to vars.a", (6, 11)),
    ]


def test_a_circle_through_a_used_document_is_found(spec: Spec) -> None:
    spec.write(
        """
        vars: {a: "{{ modules.m.outputs.x }}"}
        modules: [{name: m, uses: u.yaml, with: {p: "{{ vars.b }}"}}]
        """,
        u__yaml="""
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {name: u}
        params: {p: {}}
        vars: {own: "{{ params.p }}", self: "{{ vars.self }}"}
        tasks: [{name: t, steps: [{name: s, type: message, with: {text: "{{ vars.own }}"}}]}]
        """,
    )
    # In the order of places: what the used document does, and what it is given.
    assert sorted(spec.codes()) == ["cycle", "unknown-output", "unknown-var"]


@pytest.mark.parametrize(
    ("where", "reference", "code"),
    [
        ("m1/t1", "steps['m1/t0/s'].changed", ""),
        ("m1/t1", "steps['t0/s'].changed", ""),
        ("m1/t0", "steps['t1/s'].changed", "later-step"),
        ("m2/t2", "steps['m1/t0/s'].changed", ""),
        ("m1/t1", "steps['m2/t2/s'].changed", "later-step"),
        ("m3/t3", "steps['m1/t0/s'].changed", "later-step"),
        ("m3/t3", "modules.m1.outputs.o", "later-module"),
        ("m2/t2", "modules.m1.outputs.o", ""),
        ("m1/t1", "tasks.t0.outputs.o", ""),
        ("m1/t0", "tasks.t1.outputs.o", "later-task"),
        ("m1/hooks/pre", "tasks.t0.outputs.o", "later-task"),
        ("m1/hooks/post", "tasks.t0.outputs.o", ""),
        ("m1/hooks/always", "steps['t1/s'].changed", ""),
        ("m2/hooks/pre", "modules.m1.outputs.o", ""),
        ("hooks/pre", "modules.m1.outputs.o", "later-module"),
        ("hooks/always", "modules.m1.outputs.o", ""),
        ("hooks/always", "steps['m3/t3/s'].changed", ""),
    ],
)
def test_outputs_are_known_after_what_makes_them(spec: Spec, where: str, reference: str, code: str) -> None:
    texts = dict.fromkeys(
        ("m1/t0", "m1/t1", "m2/t2", "m3/t3", "m1/hooks/pre", "m1/hooks/post", "m1/hooks/always", "m2/hooks/pre",
         "hooks/pre", "hooks/always"), "x",
    )  # fmt: skip
    texts[where] = "{{ " + reference + " }}"

    def step(place: str) -> str:
        return f'{{name: s, type: message, with: {{text: "{texts[place]}"}}}}'

    spec.write(
        f"""
        hooks: {{pre: [{step("hooks/pre")}], always: [{step("hooks/always")}]}}
        modules:
          - name: m1
            outputs: {{o: 1}}
            hooks:
              pre: [{step("m1/hooks/pre")}]
              post: [{step("m1/hooks/post")}]
              always: [{step("m1/hooks/always")}]
            tasks:
              - {{name: t0, outputs: {{o: 1}}, steps: [{step("m1/t0")}]}}
              - {{name: t1, outputs: {{o: 1}}, steps: [{step("m1/t1")}]}}
          - name: m2
            hooks: {{pre: [{step("m2/hooks/pre")}]}}
            tasks: [{{name: t2, steps: [{step("m2/t2")}]}}]
          - name: m3
            needs: []
            tasks: [{{name: t3, steps: [{step("m3/t3")}]}}]
        """
    )
    assert spec.codes() == ([code] if code else [])


def test_outputs_of_tasks_see_their_steps_and_the_variables_of_their_hosts(spec: Spec) -> None:
    spec.write(
        HOSTS
        + """
modules:
  - name: m
    outputs: {all: "{{ tasks.t.outputs.a }}", bad: "{{ tasks.t.outputs.nope }}"}
    tasks:
      - name: t
        runOn: {roles: [db]}
        outputs:
          a: "{{ steps.s.changed }}"
          disk: "{{ vars.disk }}"
          bad: "{{ vars.mtu }}"
          worse: "{{ steps.x.changed }}"
        steps: [{name: s, type: message, with: {text: hi}}]
"""
    )
    assert spec.codes() == ["unknown-output", "unknown-var", "unknown-step"]


def test_loops_are_seen_through_their_items_even_if_there_is_one_or_none(spec: Spec) -> None:
    for items in ("[]", "[a]", "[a, b]"):
        spec.write(
            f"""
            params: {{items: {{type: list, default: {items}}}}}
            modules:
              - name: m
                tasks:
                  - name: t
                    steps:
                      - {{name: loop, type: set, forEach: "{{{{ params.items }}}}", with: {{values: {{v: 1}}}}}}
                      - name: s
                        type: message
                        with: {{text: "{{{{ steps.loop.items | length }}}} {{{{ steps['loop'].items }}}}"}}
            """
        )
        assert spec.codes() == []


def test_templates_are_read_with_what_they_include(spec: Spec) -> None:
    spec.write(
        one_step("x")
        + "          - {name: tpl, type: template, with: {src: a.j2, path: /x, vars: {title: hi}}}\n"
        + "          - {name: again, type: template, with: {src: a.j2, path: /y, vars: {title: hi}}}\n",
        templates_S_a__j2="""
        {% from 'macros.j2' import line %}
        {% set local = 1 %}
        {{ title }} {{ local }} {{ line('x') }} {{ steps["before"]['outputs'].stdout }}
        {% include 'part.j2' %}
        {% include 'none.j2' ignore missing %}
        {% include ['x.j2', 'part.j2'] %}
        """,
        templates_S_macros__j2="{% macro line(text) %}{{ text }} {{ host.name }}{% endmacro %}\n",
        templates_S_part__j2="{{ local }} {{ title }} {{ vars.nope }}\n",
    )
    (finding,) = spec.compile().diagnostics
    assert (finding.code, finding.span and finding.span.file.endswith("templates/part.j2")) == ("unknown-var", True)
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (1, 28)
    # Two steps use it: it is one mistake, with the places of both.
    assert [note.message for note in finding.notes] == ["used by", "used by"]


def test_the_names_that_a_step_type_gives_to_its_expressions_are_known(spec: Spec) -> None:
    spec.write(
        """
        modules:
          - name: m
            tasks:
              - name: t
                steps:
                  - {name: a, type: command, with: {argv: [ls], changedWhen: "'x' in stdout and exitCode == 0"}}
                  - {name: b, type: assert, with: {that: ["steps.a.changed", "stdout == ''"]}}
        """
    )
    assert spec.codes() == ["unknown-name"]


def test_a_broken_inventory_does_not_make_every_selector_wrong(spec: Spec) -> None:
    spec.write(
        """
        inventory: {hosts: [{name: a, rolls: [web]}]}
        """
        + "modules: [{name: m, tasks: [{name: t, runOn: {roles: [web]}, steps: "
        "[{name: s, type: message, with: {text: x}}]}]}]\n"
    )
    assert spec.codes() == ["unknown-key"]
    spec.write(
        "inventory: i.yaml\n"
        "modules: [{name: m, tasks: [{name: t, runOn: {roles: [web], hosts: [a]}, steps: "
        "[{name: s, type: message, with: {text: '{{ vars.x }} {{ hosts.a.address }}'}}]}]}]\n",
        i__yaml="apiVersion: kubexm.io/v1\nkind: Inventory\nmetadata: {name: i}\nhsts: []\n",
    )
    assert spec.codes() == ["unknown-key"]


def test_a_broken_module_does_not_make_those_wrong_that_refer_to_it(spec: Spec) -> None:
    spec.write(
        """
        modules:
          - {name: broken, uses: b.yaml}
          - name: m
            needs: [broken/x]
            tasks:
              - name: t
                needs: [broken/y]
                steps:
                  - name: s
                    type: message
                    with: {text: "{{ modules.broken.outputs.x }} {{ steps['broken/x/s'].changed }}"}
        """,
        b__yaml="apiVersion: kubexm.io/v1\nkind: Module\nmetadata: {name: b}\ntasksx: []\n",
    )
    assert sorted(spec.codes()) == ["unknown-key"]
