"""Graphs that small specs compile to, as text: a reviewer sees what a change of the compiler does.

A case is ``golden/NAME/main.yaml``; its graph is in ``graph.txt`` beside it. UPDATE_GOLDEN=1 writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from kubexm_exec.compile import CompileOptions, compile_file, compile_pipeline
from kubexm_exec.model.graph import ExecutionGraph
from tests.compile import specs
from tests.compile.dump import dump
from tests.compile.running import run_to_the_end

GOLDEN = pathlib.Path(__file__).with_name("golden")
NAMES = sorted(path.name for path in GOLDEN.iterdir())


def check(path: pathlib.Path, text: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"{path} differs; if that is right: UPDATE_GOLDEN=1 make tests"


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_compiles_to_its_graph(name: str) -> None:
    graph = compile_pipeline(GOLDEN / name / "main.yaml")
    check(GOLDEN / name / "graph.txt", dump(graph))


@pytest.mark.parametrize("name", NAMES)
def test_every_action_of_a_graph_can_run(name: str) -> None:
    graph = compile_pipeline(GOLDEN / name / "main.yaml")
    ran = run_to_the_end(graph)
    after_failures = {
        node.id
        for node in graph.steps()
        if node.hook.value == "onFailure" or any(each.part.value == "rescue" for each in node.groups)
    }
    expected = {(node.id, host) for node in graph.steps() if node.id not in after_failures for host in node.hosts}
    assert set(ran) == expected
    assert len(ran) == len(expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_survives_being_saved(name: str) -> None:
    graph = compile_pipeline(GOLDEN / name / "main.yaml")
    data = json.loads(json.dumps(graph.to_json()))
    again = ExecutionGraph.from_json(data)
    assert dump(again) == dump(graph)
    assert again.content_hash() == graph.content_hash()


def test_the_same_spec_gives_the_same_bytes_in_every_process(tmp_path: pathlib.Path) -> None:
    """Whatever the seed of hashes, and in whatever folder it lies."""
    program = (
        "import hashlib, json, sys\n"
        "from kubexm_exec.compile import compile_pipeline\n"
        "for path in sys.argv[1:]:\n"
        "    graph = compile_pipeline(path).to_json()\n"
        "    for scope in graph['scopes']: scope['base'] = ''\n"
        "    for node in graph['nodes']: node.setdefault('origin', {})['file'] = ''\n"
        "    print(hashlib.sha256(json.dumps(graph).encode()).hexdigest())\n"
    )
    paths = [str(GOLDEN / name / "main.yaml") for name in NAMES]
    folders = [tmp_path / "a", tmp_path / "b" / "c"]
    found = []
    for seed, folder in zip(("1", "77"), folders, strict=True):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        arguments = [sys.executable, "-c", program, *paths, str(specs.write(folder))]
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=True)
        found.append(done.stdout.split())
    assert len(found[0]) == len(NAMES) + 1
    assert found[0] == found[1]


def test_compiling_twice_gives_the_same(tmp_path: pathlib.Path) -> None:
    spec = specs.write(tmp_path)
    first, second = (json.dumps(compile_pipeline(spec).to_json()) for _ in range(2))
    assert hashlib.sha256(first.encode()).digest() == hashlib.sha256(second.encode()).digest()


def test_findings_come_in_the_same_order_in_every_process() -> None:
    cases = GOLDEN.with_name("cases")
    program = (
        "import sys\n"
        "from kubexm_exec.compile import CompileOptions, compile_file\n"
        "options = CompileOptions(texts={'b': '1', 'a': '2', 'c': ''}, tags=frozenset({'x', 'y', 'z'}))\n"
        "for path in sys.argv[1:]:\n"
        "    for finding in compile_file(path, options).diagnostics: print(finding)\n"
    )
    paths = sorted(map(str, [*cases.glob("*.yaml"), *cases.glob("*/main.yaml")]))
    texts = []
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", program, *paths], capture_output=True, text=True, env=environment, check=True
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1]


def test_tags_leave_steps_out_but_not_hooks() -> None:
    graph = compile_pipeline(GOLDEN / "policy" / "main.yaml", CompileOptions(tags=frozenset({"a"})))
    assert {node.id: node.skip for node in graph.steps()} == {"m/t/a": "its tags are not selected", "m/t/own": ""}
    graph = compile_pipeline(GOLDEN / "policy" / "main.yaml", CompileOptions(skip_tags=frozenset({"b"})))
    assert {node.id: node.skip for node in graph.steps()} == {"m/t/a": "", "m/t/own": "its tag is skipped"}
    graph = compile_pipeline(GOLDEN / "uses" / "main.yaml", CompileOptions(tags=frozenset({"service"})))
    kept = [node.id for node in graph.steps() if not node.skip]
    assert kept == ["site/start/up", "site/hooks/always/inner", "site/hooks/always/outer",
                    "again/start/up", "again/hooks/always/inner", "own/start/up"]  # fmt: skip


def test_a_limit_keeps_actions_on_some_hosts_and_knowledge_of_all() -> None:
    spec = GOLDEN / "selectors" / "main.yaml"
    graph = compile_pipeline(spec, CompileOptions(limit=("node[2:3]", "racka*")))
    assert {node.task: node.hosts for node in graph.steps()} == {
        "inherited": ("node2", "node3"),
        "all": ("node2", "node3", "racka01", "racka02"),
        "here": ("control-node",),
        "once": ("node3",),
        "both": ("node3",),
        "globs": ("racka01", "racka02"),
        "asked": ("node2", "racka01", "racka02"),
    }
    assert set(graph.hosts) == set(compile_pipeline(spec).hosts)


def test_a_limit_that_empties_a_task_is_no_error(tmp_path: pathlib.Path) -> None:
    spec = specs.write(tmp_path)
    result = compile_file(spec, CompileOptions(limit=("db1",)))
    assert list(result.diagnostics) == []
    assert result.graph is not None
    assert {host for node in result.graph.steps() for host in node.hosts} == {"db1", "control-node"}
