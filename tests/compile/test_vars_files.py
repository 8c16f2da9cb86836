"""Variables in files of their own, and from outside: which value counts, that it is data, and what depends on it."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubexm_exec.compile.plan import StalePlanError, check_plan, make_plan
from kubexm_exec.plugins import step_registry
from tests.compile.kit import Spec

BODY = """
params: {env: {default: prod}}
vars: {x: pipeline, n: 1, "on": false, texts: [a], text: "1.30", made: "{{ vars.x }}!"}
varsFiles: FILES
inventory:
  defaults: {connector: local}
  vars: {INVENTORY}
  roles: {web: {vars: {ROLE}}}
  groups: {front: {hosts: [w1], vars: {GROUP}}}
  hosts:
    - {name: w1, roles: [web], vars: {HOST}}
    - {name: d1}
modules:
  - name: m
    vars: {MODULE}
    tasks:
      - name: t
        vars: {TASK}
        steps: [{name: s, type: set, with: {values: {it: "{{ vars.x }}"}}}]
  - {name: u, uses: used.yaml}
"""
USED = """\
apiVersion: kubexm.io/v1
kind: Module
metadata: {name: used}
vars: {own: document}
tasks: [{name: t, steps: [{name: s, type: set, with: {values: {it: "{{ vars.own }} {{ vars.x | default('-') }}"}}}]}]
"""
LEVELS = ("pipeline", "plain", "MODULE", "TASK", "INVENTORY", "ROLE", "by-role", "GROUP", "by-group", "HOST", "by-host")
"""From the weakest to the strongest."""
PATHS = {
    "plain": "vars/all.yaml",
    "by-role": "vars/role-{{ role }}.yaml",
    "by-group": "vars/group-{{ group }}.yaml",
    "by-host": "vars/{{ host.name }}.yaml",
}
FILES = {"plain": "all", "by-role": "role-web", "by-group": "group-front", "by-host": "w1"}


def write(folder: pathlib.Path, levels: set[str], files: str = "") -> Spec:
    """A spec in which some levels say what ``x`` is."""
    body = BODY
    for level in ("MODULE", "TASK", "INVENTORY", "ROLE", "GROUP", "HOST"):
        body = body.replace(f"{{{level}}}", f"{{x: {level}}}" if level in levels else "{}")
    body = body.replace("FILES", files or str([{"path": path, "optional": True} for path in PATHS.values()]))
    spec = Spec(folder).write(body)
    spec.file("used.yaml", USED)
    for level, name in FILES.items():
        path = folder / "vars" / f"{name}.yaml"
        path.unlink(missing_ok=True)
        if level in levels:
            spec.file(f"vars/{name}.yaml", f"x: {level}\n")
    return spec


def value(spec: Spec, node: str = "m/t/s", host: str = "w1", **options: Any) -> Any:
    return spec.params(node, host, **options)["values"]["it"]


@given(st.sets(st.sampled_from(LEVELS)))
def test_what_is_closest_to_the_host_counts(tmp_path_factory: pytest.TempPathFactory, levels: set[str]) -> None:
    spec = write(tmp_path_factory.mktemp("site"), levels)
    assert value(spec) == max(levels | {"pipeline"}, key=LEVELS.index)
    for all_hosts in ("pipeline", "plain", "MODULE", "TASK", "INVENTORY"):
        if all_hosts == max((levels | {"pipeline"}) & set(LEVELS[:5]), key=LEVELS.index):
            assert value(spec, host="d1") == all_hosts


def test_later_files_win_and_globs_are_in_the_order_of_names(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, set(), '["conf/*.yaml", "conf/a.yaml"]')
    spec.file("conf/b.yaml", "x: b\n")
    spec.file("conf/a.yaml", "x: a\n")
    assert value(spec) == "a"
    spec = write(tmp_path, set(), '["conf/a.yaml", "conf/*.yaml"]')
    assert value(spec) == "b"
    spec = write(tmp_path, set(), '["conf/**/*.yaml"]')
    spec.file("conf/z/deep.yaml", "x: deep\n")
    assert value(spec) == "deep"


def test_values_of_files_are_expressions_like_those_of_vars_and_wrong_ones_have_their_place(
    tmp_path: pathlib.Path,
) -> None:
    spec = write(tmp_path, set(), '["vars/{{ params.env }}.yaml"]')
    spec.file("vars/prod.yaml", 'x: "{{ host.name }} of {{ params.env }}"\n')
    assert value(spec) == "w1 of prod"
    spec.file("vars/prod.yaml", 'y: 1\nx: "{{ params.evn }}"\n')
    [finding] = spec.compile().diagnostics.errors
    assert (finding.code, finding.span and finding.span.file, finding.span and finding.span.line) == (
        "unknown-param", str(tmp_path / "vars/prod.yaml"), 2,
    )  # fmt: skip


def test_variables_that_refer_to_each_other_over_files_are_a_cycle(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, set(), '[vars/a.yaml, "vars/{{ host.name }}.yaml"]')
    spec.file("vars/a.yaml", 'x: "{{ vars.y }}"\n')
    spec.file("vars/w1.yaml", 'y: "{{ vars.x }}"\n')
    spec.file("vars/d1.yaml", "y: 1\n")
    assert "cycle" in spec.codes()


def test_an_empty_file_says_nothing(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, set(), "[vars/empty.yaml]")
    spec.file("vars/empty.yaml", "# nothing\n")
    assert value(spec) == "pipeline"
    assert "vars/empty.yaml" in spec.graph().sources


def test_a_used_document_sees_the_files_of_hosts_and_none_of_the_pipeline(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, {"plain"})
    assert value(spec, "u/t/s") == "document -"
    spec = write(tmp_path, {"plain", "by-host"})
    assert value(spec, "u/t/s") == "document by-host"


def test_a_changed_file_changes_the_nodes_that_use_it_and_makes_a_plan_stale(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, {"plain"})
    before = spec.graph()
    steps = step_registry()
    plan = make_plan(before, str(spec.path), steps)
    check_plan(plan, steps)
    spec.file("vars/all.yaml", "x: other\n")
    after = spec.graph()
    assert before.nodes["m/t/s"].inputs_hash != after.nodes["m/t/s"].inputs_hash
    with pytest.raises(StalePlanError, match=r"all\.yaml has changed"):
        check_plan(plan, steps)


def test_a_file_that_was_not_there_and_appears_makes_a_plan_stale(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, set())
    steps = step_registry()
    plan = make_plan(spec.graph(), str(spec.path), steps)
    check_plan(plan, steps)
    spec.file("vars/w1.yaml", "x: new\n")
    with pytest.raises(StalePlanError, match=r"w1\.yaml has changed"):
        check_plan(plan, steps)


@pytest.mark.parametrize("levels", list(itertools.combinations(LEVELS, 1)))
def test_a_value_from_outside_wins_over_every_level_and_is_data(tmp_path: pathlib.Path, levels: tuple[str]) -> None:
    spec = write(tmp_path, set(levels))
    for host in ("w1", "d1"):
        assert value(spec, host=host, texts={"x": "{{ 1 + 1 }}"}) == "{{ 1 + 1 }}"
        assert value(spec, host=host, values={"x": [1]}) == [1]
    assert value(spec, texts={"x": "text"}, values={"x": 1}) == "text"


def test_a_text_from_outside_has_the_type_of_what_it_overrides(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, {"TASK"})
    body = spec.path.read_text().replace('"{{ vars.x }}"', '"{{ vars }}"')
    spec.path.write_text(body)
    texts = {"n": "2", "on": "yes", "texts": "b,c", "text": "1.40", "made": "3"}
    seen = spec.params("m/t/s", "w1", texts=texts)["values"]["it"]
    assert {name: seen[name] for name in texts} == {
        "n": 2, "on": True, "texts": ["b", "c"], "text": "1.40", "made": "3",
    }  # fmt: skip
    [finding] = spec.compile(texts={"n": "many"}).diagnostics.errors
    assert finding.summary == '-e n: should be a whole number such as 3; got "many"'


def test_other_values_see_what_is_from_outside_and_nodes_that_use_it_change(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, set())
    spec.path.write_text(spec.path.read_text().replace('"{{ vars.x }}"', '"{{ vars.made }}"'))
    assert value(spec, texts={"x": "other"}) == "other!"
    before, after = spec.graph(), spec.graph(texts={"x": "other"})
    assert before.nodes["m/t/s"].inputs_hash != after.nodes["m/t/s"].inputs_hash
    assert before.content_hash() != after.content_hash()
    assert type(after).from_json(after.to_json()).content_hash() == after.content_hash()


def test_variables_of_used_documents_are_their_own_and_names_that_nothing_has_are_errors(
    tmp_path: pathlib.Path,
) -> None:
    spec = write(tmp_path, {"HOST"})
    assert value(spec, "u/t/s", texts={"x": "outside"}) == "document outside"
    [finding] = spec.compile(texts={"own": "mine"}).diagnostics.errors
    assert (finding.code, finding.summary) == (
        "unknown-param", 'pipeline "site" has no parameter or variable "own" (-e)',
    )  # fmt: skip


def test_a_parameter_of_that_name_is_what_is_meant(tmp_path: pathlib.Path) -> None:
    spec = write(tmp_path, set())
    spec.path.write_text(spec.path.read_text().replace("params: {env: {default: prod}}", "params: {x: {default: p}}"))
    assert value(spec, texts={"x": "given"}) == "pipeline"
