"""diff: what changes in the graph between two specs, for people and as data."""

from __future__ import annotations

import pytest

from tests.cli.kit import Folder

SPEC = """\
params: {version: {default: "1"}}
vars: {greeting: hello, unused: 1}
inventory:
  defaults: {connector: local}
  hosts:
    - {name: "node[1:3]", vars: {disk: sda}}
locks: {registry: 1}
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {name: a, type: message, with: {text: "{{ vars.greeting }} {{ params.version }}"}}
          - {name: b, type: message, with: {text: "{{ vars.disk }}"}}
          - {name: c, type: message, timeout: 5s, with: {text: plain}}
      - name: u
        batch: {size: 1, pause: 1s}
        steps: [{name: d, type: message, with: {text: d}}]
  - name: n
    needs: [m]
    tasks: [{name: t, steps: [{name: e, type: template, with: {src: x.j2, path: /nonexistent/x}}]}]
"""


@pytest.fixture
def before(folder: Folder) -> Folder:
    folder.spec(SPEC, "old.yaml")
    folder.file("x.j2", "x\n")
    return folder


def changed(folder: Folder, *replacements: tuple[str, str]) -> tuple[int, list[str]]:
    text = SPEC
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    folder.spec(text, "new.yaml")
    result = folder.run("diff", "old.yaml", "new.yaml")
    return result.exit_code, result.stdout.splitlines()


def test_the_same_graph_is_exit_code_0(before: Folder) -> None:
    assert changed(before) == (0, ["The graphs are the same."])
    assert changed(before, ("vars:", "# moved\n\nvars:"), ("unused: 1", "unused: 2")) == (
        0,
        ["The graphs are the same."],
    )


def test_added_and_removed_nodes_are_shown_with_their_hosts(before: Folder) -> None:
    code, lines = changed(before, ("name: c,", "name: other,"))
    assert code == 1
    assert lines == [
        "- m/t/c  node1, node2, node3",
        "+ m/t/other  node1, node2, node3",
        "~ m/t#end",
        "    order: -m/t/c, +m/t/other",
        "1 added, 1 removed, 0 changed.",
    ]


def test_a_changed_parameter_is_shown_with_both_values(before: Folder) -> None:
    assert changed(before, ("text: plain", "text: other"), ("timeout: 5s", "timeout: 6s")) == (
        1,
        ["~ m/t/c  node1, node2, node3", "    timeout: 5.0 -> 6.0", '    with.text: "plain" -> "other"',
         "0 added, 0 removed, 1 changed."],
    )  # fmt: skip


def test_a_changed_value_is_named_at_every_node_that_uses_it(before: Folder) -> None:
    assert changed(before, ("greeting: hello", "greeting: hi")) == (
        1,
        ["~ m/t/a  node1, node2, node3", '    vars.greeting: "hello" -> "hi"', "0 added, 0 removed, 1 changed."],
    )
    assert changed(before, ('version: {default: "1"}', 'version: {default: "2"}')) == (
        1,
        ["~ m/t/a  node1, node2, node3", '    params.version: "1" -> "2"', "0 added, 0 removed, 1 changed."],
    )
    assert changed(before, ("disk: sda", "disk: sdb")) == (
        1,
        ["~ m/t/b  node1, node2, node3", '    vars.disk: {"node1": "sda"} -> {"node1": "sdb"}',
         "0 added, 0 removed, 1 changed."],
    )  # fmt: skip


def test_a_changed_file_is_named(before: Folder) -> None:
    before.spec(SPEC.replace("x.j2", "y.j2"), "new.yaml")
    before.file("y.j2", "y\n")
    lines = before.run("diff", "old.yaml", "new.yaml").stdout.splitlines()
    assert lines[1:4] == ['    with.src: "x.j2" -> "y.j2"', "    file x.j2: it is gone", "    file y.j2: it is new"]


def test_hosts_that_come_and_go_are_shown(before: Folder) -> None:
    code, lines = changed(before, ("node[1:3]", "node[2:4]"))
    assert code == 1
    assert lines[:3] == ["~ m/t/a  node2, node3, node4", "    + on node4", "    - on node1"]


def test_how_a_host_is_reached_is_a_change(before: Folder) -> None:
    code, lines = changed(before, ('- {name: "node', '- {user: root, port: 22, name: "node'))
    assert code == 1
    assert lines[:2] == ["~ host node1: port: null -> 22", '~ host node1: user: null -> "root"']


def test_order_pauses_and_policy_are_changes(before: Folder) -> None:
    assert changed(before, ("pause: 1s", "pause: 2s")) == (
        1,
        ["~ m/u#batch2", "    pause: 1.0 -> 2.0", "~ m/u#batch3", "    pause: 1.0 -> 2.0",
         "0 added, 0 removed, 0 changed."],
    )  # fmt: skip
    assert changed(before, ("needs: [m]", "needs: []")) == (
        1,
        ["~ n/t/e  node1, node2, node3", "    order: -m#end", "0 added, 0 removed, 1 changed."],
    )
    assert changed(before, ("registry: 1", "registry: 2")) == (
        1,
        ["~ lock registry: 1 -> 2", "0 added, 0 removed, 0 changed."],
    )
    code, lines = changed(before, ("locks:", "failurePolicy: failFast\nlocks:"))
    assert (code, lines[0]) == (1, "~ failurePolicy: continue -> failFast")
    code, lines = changed(before, ("size: 1,", "size: 2,"))
    assert code == 1
    assert any("order:" in line for line in lines)


def test_the_same_as_data(before: Folder) -> None:
    before.spec(SPEC.replace("greeting: hello", "greeting: hi").replace("node[1:3]", "node[1:2]"), "new.yaml")
    data = before.data("diff", "old.yaml", "new.yaml", exit_code=1)
    assert (data["added"], data["removed"], data["changed"], data["policyChanged"]) == (0, 0, 5, False)
    (first,) = [change for change in data["changes"] if change["node"] == "m/t/a"]
    assert first == {
        "node": "m/t/a", "change": "changed", "gate": False, "hosts": ["node1", "node2"], "hostsAdded": [],
        "hostsRemoved": ["node3"], "details": ['vars.greeting: "hello" -> "hi"'],
    }  # fmt: skip


def test_a_wrong_spec_is_exit_code_2(before: Folder) -> None:
    before.spec(SPEC.replace("type: message", "type: mesage"), "new.yaml")
    assert before.run("diff", "old.yaml", "new.yaml").exit_code == 2
    assert before.run("diff", "old.yaml", "nowhere.yaml").exit_code == 2


def test_values_hold_for_both(before: Folder) -> None:
    before.spec(SPEC.replace('default: "1"', 'default: "2"'), "new.yaml")
    assert before.run("diff", "old.yaml", "new.yaml", "-e", "version=3").exit_code == 0
    assert before.run("diff", "old.yaml", "new.yaml", "--limit", "node1").exit_code == 1
