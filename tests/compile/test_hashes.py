"""Hashes: a changed value changes exactly the nodes that use it; a moved line changes nothing."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from kubexm_exec.model.graph import ExecutionGraph
from tests.compile.kit import Spec

SPEC = """
params:
  version: {default: "1"}
  unused: {default: "1"}
vars:
  direct: "1"
  chained: "{{ vars.base }}/x"
  base: "1"
  shadowed: "1"
  nobody: "1"
inventory:
  vars: {region: "1"}
  defaults: {connector: local}
  roles: {web: {vars: {port: 1}}}
  hosts:
    - {name: a, address: 10.0.0.1, roles: [web], labels: {zone: z1}, vars: {own: 1, shadowed: 2}}
    - {name: b, address: 10.0.0.2, vars: {own: 1, shadowed: 2}}
modules:
  - name: m
    tasks:
      - name: t
        vars: {local: "1"}
        outputs: {out: "{{ vars.direct }}"}
        steps:
          - {name: nothing, type: message, with: {text: plain}}
          - {name: param, type: message, with: {text: "{{ params.version }}"}}
          - {name: direct, type: message, with: {text: "{{ vars.direct }}"}}
          - {name: chained, type: message, with: {text: "{{ vars.chained }}"}}
          - {name: local, type: message, when: vars.local == '1', with: {text: x}}
          - {name: own, type: message, with: {text: "{{ vars.own }}"}}
          - {name: shadowed, type: message, with: {text: "{{ vars.shadowed }}"}}
          - {name: region, type: message, outputs: {o: "{{ vars.region }}"}, with: {text: x}}
          - {name: address, type: message, with: {text: "{{ host.address }}"}}
          - {name: other, type: message, with: {text: "{{ hosts.b.address }}"}}
          - {name: everyone, type: message, with: {text: "{% for h in hosts %}{{ hosts[h].address }}{% endfor %}"}}
          - {name: whole, type: set, with: {values: "{{ vars }}"}}
          - {name: file, type: script, with: {src: run.sh}}
          - {name: folder, type: copy, with: {src: files, path: /opt/files}}
          - {name: template, type: template, with: {src: a.j2, path: /etc/a}}
          - {name: asserts, type: assert, with: {that: "vars.direct == '1'"}}
      - name: after
        steps:
          - {name: uses, type: message, with: {text: "{{ tasks.t.outputs.out }}"}}
      - {name: used, uses: u.yaml, with: {p: "{{ vars.direct }}"}}
  - name: web
    tasks:
      - {name: t, runOn: {roles: [web]}, steps: [{name: port, type: message, with: {text: "{{ vars.port }}"}}]}
"""
FILES = {
    "run.sh": "echo 1\n",
    "files/one.txt": "1\n",
    "files/sub/two.txt": "2\n",
    "templates/a.j2": "{{ vars.direct }} {% include 'b.j2' %}\n",
    "templates/b.j2": "{{ params.version }}\n",
    "u.yaml": (
        "apiVersion: kubexm.io/v1\nkind: Task\nmetadata: {name: u}\nparams: {p: {}}\n"
        "steps: [{name: s, type: message, with: {text: '{{ params.p }}'}}, {name: n, type: message, with: {text: n}}]\n"
    ),
}


@pytest.fixture
def project(spec: Spec) -> Spec:
    spec.write(SPEC)
    for name, text in FILES.items():
        spec.file(name, text)
    return spec


def hashes(graph: ExecutionGraph) -> dict[str, str]:
    return {node.id: node.content_hash() for node in graph.steps()}


def changed(before: ExecutionGraph, after: ExecutionGraph) -> set[str]:
    old, new = hashes(before), hashes(after)
    assert old.keys() == new.keys()
    return {node.removeprefix("m/t/") for node in old if old[node] != new[node]}


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        ('unused: {default: "1"}', 'unused: {default: "2"}', set()),
        ('version: {default: "1"}', 'version: {default: "2"}', {"param", "template"}),
        ('nobody: "1"', 'nobody: "2"', {"whole"}),
        ('direct: "1"', 'direct: "2"',
         {"direct", "whole", "template", "asserts", "m/after/uses", "m/used/s"}),
        ('base: "1"', 'base: "2"', {"chained", "whole"}),
        ('chained: "{{ vars.base }}/x"', 'chained: "{{ vars.base }}/y"', {"chained", "whole"}),
        ('local: "1"', 'local: "2"', {"local", "whole"}),
        ('shadowed: "1"', 'shadowed: "2"', set()),
        ("own: 1, shadowed: 2}}\nmodules", "own: 5, shadowed: 2}}\nmodules", {"own", "whole"}),
        ('region: "1"', 'region: "2"', {"region", "whole"}),
        ("port: 1", "port: 2", {"whole", "web/t/port"}),
        ("10.0.0.1", "10.0.0.9", {"address", "everyone"}),
        ("10.0.0.2", "10.0.0.9", {"address", "everyone", "other"}),
        ("text: plain", "text: other", {"nothing"}),
        ("# nothing", "", set()),
    ],
)  # fmt: skip
def test_a_changed_value_changes_exactly_the_nodes_that_use_it(
    project: Spec, old: str, new: str, nodes: set[str]
) -> None:
    before = project.graph()
    text = project.path.read_text("utf-8")
    assert old in text or old.startswith("#")
    project.path.write_text(text.replace(old, new), "utf-8")
    assert changed(before, project.graph()) == nodes


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("run.sh", {"file"}),
        ("files/one.txt", {"folder"}),
        ("files/sub/two.txt", {"folder"}),
        ("templates/a.j2", {"template"}),
        ("templates/b.j2", {"template"}),
    ],
)
def test_a_changed_file_changes_exactly_the_nodes_that_use_it(project: Spec, name: str, nodes: set[str]) -> None:
    before = project.graph()
    project.file(name, FILES[name] + "# changed\n")
    after = project.graph()
    assert changed(before, after) == nodes
    assert before.sources[name] != after.sources[name]


def test_a_renamed_file_in_a_folder_changes_the_node(project: Spec) -> None:
    before = project.graph()
    (project.folder / "files/one.txt").rename(project.folder / "files/other.txt")
    assert changed(before, project.graph()) == {"folder"}


def test_a_value_from_outside_counts_as_the_value(project: Spec) -> None:
    before = project.graph()
    assert changed(before, project.graph(texts={"version": "2"})) == {"param", "template"}
    assert changed(before, project.graph(texts={"version": "1"})) == set()


def test_moved_lines_comments_and_spelling_change_nothing(project: Spec) -> None:
    before = project.graph()
    text = project.path.read_text("utf-8")
    text = "# a comment\n\n" + text.replace("vars:\n  direct", "vars:   # here\n\n  direct")
    text = text.replace("{text: plain}", '{"text":   "plain"}')
    project.path.write_text(text, "utf-8")
    after = project.graph()
    assert changed(before, after) == set()
    assert before.content_hash() == after.content_hash()
    assert before.nodes["m/t/nothing"].origin != after.nodes["m/t/nothing"].origin


def test_the_same_spec_in_another_folder_is_the_same_graph(project: Spec, tmp_path: pathlib.Path) -> None:
    before = project.graph()
    other = tmp_path / "elsewhere" / "deep"
    shutil.copytree(project.folder, other, ignore=shutil.ignore_patterns("elsewhere"))
    after = Spec(other).graph()
    assert before.content_hash() == after.content_hash()
    assert before.sources == after.sources
    assert not any(pathlib.Path(name).is_absolute() for name in after.sources)
