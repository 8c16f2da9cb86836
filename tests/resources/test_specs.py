"""Resources in specs: who sees them, which variant a host gets, and how plans notice that they changed."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

from kubexm_exec.compile.static import NoRecords, no_secret
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.resources.resolve import resolve
from kubexm_exec.resources.source import ResourceError, Source
from kubexm_exec.values.evaluate import Evaluator
from kubexm_exec.values.expressions import Expressions
from tests.compile.kit import Spec

ZEROS, ONES = "0" * 64, "1" * 64
STEP = "{name: get, type: download, with: {resource: tool, path: /opt/tool}}"
MODULES = f"""
modules:
  - name: m
    tasks:
      - name: t
        steps:
          - {STEP}
          - {{name: other, type: message, with: {{text: hello}}}}
"""


@pytest.fixture
def spec(tmp_path: pathlib.Path) -> Spec:
    return Spec(tmp_path)


def put(spec: Spec, text: str) -> Spec:
    """A pipeline with these resources and one step that uses `tool`."""
    return spec.write(textwrap.dedent(text) + MODULES)


def source(graph: ExecutionGraph, machine: str = "x86_64", *, node: str = "m/t/get", host: str | None = None) -> Source:
    """What a node's resource is on a host of that machine."""
    from kubexm_exec.runner.facts import ARCHITECTURES

    def facts(name: str) -> Mapping[str, Any]:
        return {"machine": machine, "architecture": ARCHITECTURES.get(machine, machine)}

    evaluator = Evaluator(graph, Expressions(), records=NoRecords(), facts=facts, secret=no_secret)
    found = graph.nodes[node]
    return resolve(evaluator, found, host or found.hosts[0], "tool")


def test_expressions_see_params_vars_facts_and_the_host(spec: Spec) -> None:
    graph = put(
        spec,
        f"""
        params: {{version: {{default: "1.2"}}}}
        vars: {{mirror: "https://example.com/{{{{ host.name }}}}"}}
        resources:
          tool:
            url: "{{{{ vars.mirror }}}}/tool-{{{{ params.version }}}}-{{{{ facts.architecture }}}}.tar.gz"
            sha256: "{ZEROS}"
        """,
    ).graph()
    found = source(graph, "aarch64")
    assert found.location == "https://example.com/control-node/tool-1.2-arm64.tar.gz"
    assert (found.filename, found.sha256, found.variant) == ("tool-1.2-arm64.tar.gz", ZEROS, "")


@pytest.mark.parametrize(
    ("names", "machine", "wanted"),
    [
        (("amd64", "arm64"), "x86_64", "amd64"),
        (("amd64", "arm64"), "aarch64", "arm64"),
        (("x86_64", "aarch64"), "aarch64", "aarch64"),
        (("amd64", "riscv64"), "riscv64", "riscv64"),
    ],
)
def test_a_host_gets_the_variant_of_its_architecture(
    spec: Spec, names: tuple[str, str], machine: str, wanted: str
) -> None:
    digests = dict(zip(names, (ZEROS, ONES), strict=True))
    graph = put(
        spec,
        f"""
        resources:
          tool:
            url: "https://example.com/tool-{{{{ variant }}}}"
            sha256: {{{names[0]}: "{ZEROS}", {names[1]}: "{ONES}"}}
        """,
    ).graph()
    found = source(graph, machine)
    assert (found.variant, found.location, found.sha256) == (
        wanted,
        f"https://example.com/tool-{wanted}",
        digests[wanted],
    )


def test_a_host_without_a_variant_is_told_which_there_are(spec: Spec) -> None:
    graph = put(
        spec,
        f"""
        resources:
          tool:
            url: {{amd64: "https://example.com/a", arm64: "https://example.com/b"}}
            sha256: {{amd64: "{ZEROS}", arm64: "{ONES}"}}
        """,
    ).graph()
    with pytest.raises(ResourceError, match=r"no variant for the architecture s390x \(s390x\)") as caught:
        source(graph, "s390x")
    assert "it has amd64, arm64" in caught.value.hint


def test_a_spec_can_say_which_variant_a_host_gets(spec: Spec) -> None:
    graph = put(
        spec,
        f"""
        inventory:
          defaults: {{connector: local}}
          hosts: [{{name: a, vars: {{edition: full}}}}, {{name: b, vars: {{edition: small}}}}]
        resources:
          tool:
            variant: "{{{{ vars.edition }}}}"
            url: "https://example.com/{{{{ variant }}}}"
            sha256: {{full: "{ZEROS}", small: "{ONES}"}}
        """,
    ).graph()
    assert [source(graph, host=host).sha256 for host in ("a", "b")] == [ZEROS, ONES]


def test_the_nearest_declaration_counts_and_a_used_document_sees_those_around_it(spec: Spec) -> None:
    task = f"""
        apiVersion: kubexm.io/v1
        kind: Task
        metadata: {{name: fetch}}
        steps:
          - {STEP}
        """
    module = f"""
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {{name: own}}
        params: {{version: {{}}}}
        resources: {{tool: {{url: "https://example.com/own/{{{{ params.version }}}}", sha256: "{ONES}"}}}}
        tasks:
          - {{name: t, steps: [{STEP}]}}
          - {{name: used, uses: ../task.yaml}}
        """
    graph = spec.write(
        f"""
        resources: {{tool: {{url: "https://example.com/outer", sha256: "{ZEROS}"}}}}
        modules:
          - {{name: plain, tasks: [{{name: t, uses: task.yaml}}]}}
          - {{name: own, uses: lib/own.yaml, with: {{version: "7"}}}}
          - name: inline
            resources: {{tool: {{url: "https://example.com/inline", sha256: "{ONES}"}}}}
            tasks: [{{name: t, steps: [{STEP}]}}]
        """,
        task__yaml=task,
        lib_S_own__yaml=module,
    ).graph()
    nodes = ("plain/t/get", "own/t/get", "own/used/get", "inline/t/get")
    assert [source(graph, node=node).location.rpartition(".com/")[2] for node in nodes] == [
        "outer", "own/7", "own/7", "inline",
    ]  # fmt: skip


def test_paths_start_at_the_file_that_they_are_written_in(spec: Spec) -> None:
    module = f"""
        apiVersion: kubexm.io/v1
        kind: Module
        metadata: {{name: own}}
        resources: {{tool: files/tool.bin}}
        tasks: [{{name: t, steps: [{STEP}]}}]
        """
    graph = spec.write(
        "modules: [{name: m, uses: lib/own.yaml}]", lib_S_own__yaml=module, lib_S_files_S_tool__bin="x"
    ).graph()
    assert source(graph).location == str(spec.folder / "lib" / "files" / "tool.bin")
    assert "lib/files/tool.bin" in graph.sources


def test_a_module_that_uses_a_document_has_no_resources_of_its_own(spec: Spec) -> None:
    spec.write("modules: [{name: m, uses: own.yaml, resources: {tool: {url: 'https://example.com/x'}}}]")
    assert "wrong-value" in spec.codes()


def changed(spec: Spec, before: str, after: str, **options: Any) -> set[str]:
    """The nodes whose hash changes."""
    first = spec.graph(**options)
    text = spec.path.read_text()
    assert before in text
    spec.path.write_text(text.replace(before, after))
    second = spec.graph(**options)
    return {name for name in first.nodes if first.nodes[name].content_hash() != second.nodes[name].content_hash()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ZEROS, ONES),
        ("https://example.com/", "https://example.org/"),
        ('default: "1.2"', 'default: "1.3"'),
        ("team: blue", "team: red"),
    ],
    ids=["digest", "source", "parameter", "variable"],
)
def test_a_change_of_source_or_digest_changes_the_nodes_that_use_it(spec: Spec, before: str, after: str) -> None:
    put(
        spec,
        f"""
        params: {{version: {{default: "1.2"}}}}
        vars: {{team: blue}}
        resources:
          tool:
            url: "https://example.com/{{{{ vars.team }}}}/{{{{ params.version }}}}"
            sha256: "{ZEROS}"
            timeout: 10s
        """,
    )
    assert changed(spec, before, after) == {"m/t/get"}


def test_how_it_is_asked_for_is_no_part_of_what_it_is(spec: Spec) -> None:
    put(
        spec,
        f"""
        resources:
          tool: {{url: "https://example.com/tool", sha256: "{ZEROS}", timeout: 10s}}
        """,
    )
    assert changed(spec, "timeout: 10s", "timeout: 20s") == set()


def test_a_changed_file_of_this_machine_changes_the_nodes_that_use_it(spec: Spec) -> None:
    spec.write(f"resources: {{tool: tool.bin}}\n{MODULES}", tool__bin="one")
    first = spec.graph()
    spec.file("tool.bin", "two")
    second = spec.graph()
    assert first.nodes["m/t/get"].content_hash() != second.nodes["m/t/get"].content_hash()
    assert first.nodes["m/t/other"].content_hash() == second.nodes["m/t/other"].content_hash()


def test_a_resource_used_as_a_local_file_changes_its_node_too(spec: Spec) -> None:
    spec.write(
        f"""
        resources: {{tool: {{url: "https://example.com/tool", sha256: "{ZEROS}"}}}}
        modules:
          - name: m
            tasks: [{{name: t, steps: [{{name: put, type: copy, with: {{src: "resource:tool", path: /x}}}}]}}]
        """,
    )
    assert changed(spec, ZEROS, ONES) == {"m/t/put"}


def test_a_graph_keeps_its_resources_on_its_way_through_json(spec: Spec) -> None:
    text = f'resources: {{tool: {{url: "https://example.com/tool", sha256: "{ZEROS}"}}}}'
    graph = put(spec, text + "\n").graph()
    assert source(ExecutionGraph.from_json(graph.to_json())) == source(graph)


def test_the_header_of_a_resource_may_be_a_secret_that_compiling_never_asks_for(spec: Spec) -> None:
    put(
        spec,
        f"""
        resources:
          tool:
            url: "https://example.com/tool"
            sha256: "{ZEROS}"
            headers: {{Authorization: "Bearer {{{{ secret('env:NOT_SET_ANYWHERE') }}}}"}}
        """,
    )
    assert spec.codes() == []
