"""Whatever is deleted, renamed or retyped in a valid spec: there is a graph, or findings that point somewhere."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubexm_exec.compile import Compilation, CompileOptions, compile_file
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.plugins import connector_registry, step_registry
from kubexm_spec.diagnostics import SpecError
from kubexm_spec.excerpt import render
from kubexm_spec.yaml.source import Path, SourceFile
from tests.compile import specs
from tests.compile.kit import Spec
from tests.compile.running import run_to_the_end

STEPS, CONNECTORS = step_registry(), connector_registry()
VALUES = [
    "5", "-1", "0", "1.5", "true", "null", "~", "''", "text", "[]", "{}", "[1, a]", "{a: 1}", "[[]]", "[{}]", "[null]",
    "'{{ x }}'", "'{{ vars.nope.x }}'", "'{{ host.name }}'", "'{{'", "'{% for %}'", "'{{ vars }}'", "'{{ 1/0 }}'",
    "'{{ steps.up.outputs.x }}'", "'{{ facts.os }}'", "'{{ secret(\"env:X\") }}'", "'{{ item }}'", "'{{ params }}'",
    "'node[1:3]'", "'node['", "'*'", "'100%'", "'1h'", "'../../x'", "'#x'", "'kubexm:x'", "'web.yaml'", "'x#y'", "'²'",
    "'a/b'", "'all'", "'env:X'", "99999999999999999999", ".nan", ".inf", "'\U0001f600'", "'{{ [1,2] }}'", "'\\0'",
    "n" * 300,
]  # fmt: skip
NAMES = ["name", "with", "uses", "steps", "tasks", "needs", "forEach", "x", "type", "runOn", "items", "vars", "hosts"]
# Findings about a document as a whole, or about what is not in a file.
AT_THE_TOP = {
    "missing-kind", "missing-api-version", "missing-key", "not-a-document", "no-pipeline", "yaml-syntax", "empty-file",
}  # fmt: skip


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a document."""
    children: list[tuple[str | int, Any]] = []
    if isinstance(data, dict):
        children = list(data.items())
    elif isinstance(data, list):
        children = list(enumerate(data))
    for key, inner in children:
        yield (*path, key)
        yield from paths(inner, (*path, key))


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, str]:
    """The files of a valid spec with a few changes in them."""
    files = dict(specs.FILES)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(["main.yaml", "main.yaml", "main.yaml", "web.yaml", "start.yaml"]))
        try:
            source = SourceFile.from_text(files[name], name)
        except SpecError:
            break
        found = list(paths(source.documents[0]))
        path = draw(st.sampled_from(found))
        key_range = source.range_of(0, path, True)
        value_range = source.range_of(0, path, False)
        kind = draw(st.sampled_from(["delete", "rename", "retype", "retype", "cut"]))
        text = source.text
        if kind == "rename" and isinstance(path[-1], str):
            start, end = key_range
            files[name] = text[:start] + draw(st.sampled_from(NAMES)) + text[end:]
        elif kind == "delete":
            start, end = (min(key_range[0], value_range[0]), value_range[1])
            files[name] = text[:start] + text[end:].removeprefix(",").removeprefix(" ")
        elif kind == "cut":
            start, end = value_range
            files[name] = text[:start] + text[end:]
        else:
            start, end = value_range
            files[name] = text[:start] + draw(st.sampled_from(VALUES)) + text[end:]
    return files


def compiled(files: dict[str, str], options: CompileOptions | None = None) -> Compilation:
    with tempfile.TemporaryDirectory() as folder:
        spec = specs.write(pathlib.Path(folder), files)
        return compile_file(spec, options, steps=STEPS, connectors=CONNECTORS)


@given(mutated())
@example(dict(specs.FILES))
def test_a_broken_spec_gives_findings_with_places(files: dict[str, str]) -> None:
    result = compiled(files)
    errors = result.diagnostics.errors
    assert (result.graph is None) == bool(errors)
    for finding in result.diagnostics:
        span = finding.span
        assert span is not None, finding
        name = next(name for name in files if span.file.endswith(f"/{name}"))
        lines = files[name].splitlines()
        assert 1 <= span.line <= max(len(lines), 1), finding
        assert 1 <= span.column <= len(lines[span.line - 1]) + 1 if lines else True, finding
        changed = lines[:1] != specs.FILES[name].splitlines()[:1]
        assert (span.line, span.column) != (1, 1) or changed or finding.code in AT_THE_TOP, finding
        assert finding.summary
        assert "Traceback" not in finding.summary
    assert render(result.diagnostics, sources=result.sources) or not len(result.diagnostics)
    if result.graph is not None:
        check_graph(result.graph)


def check_graph(graph: ExecutionGraph) -> None:
    """The graph can be saved, and run to its end."""
    data = graph.to_json()
    assert ExecutionGraph.from_json(data).to_json() == data
    run_to_the_end(graph)


@given(
    texts=st.dictionaries(
        st.sampled_from(["version", "count", "extra", "token", "x"]), st.text(max_size=12), max_size=3
    ),
    values=st.dictionaries(
        st.sampled_from(["version", "count", "extra", "token", "x"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.lists(st.integers())),
        max_size=3,
    ),
    limit=st.lists(st.sampled_from(["web1", "web*", "db[1:2]", "[", "nope", "", "control-node"]), max_size=2),
    tags=st.frozensets(st.sampled_from(["files", "x"])),
)
def test_values_from_outside_give_findings_or_a_graph(
    texts: dict[str, str], values: dict[str, Any], limit: list[str], tags: frozenset[str]
) -> None:
    options = CompileOptions(values=values, texts=texts, limit=tuple(limit), tags=tags)
    result = compiled(specs.FILES, options)
    assert (result.graph is None) == result.diagnostics.has_errors
    if result.graph is not None:
        check_graph(result.graph)


STEP = "modules: [{name: m, tasks: [{name: t, steps: [{name: s, type: TYPE}]}]}]"
SOME = STEP.replace("TYPE", "command, with: {argv: [id]}")


@pytest.mark.parametrize("name", ["n" * 300, "a/" * 2500 + "b"], ids=["long", "deep"])
@pytest.mark.parametrize(
    "body",
    [
        "modules: [{name: m, uses: NAME}]",
        f"inventory: NAME\n{SOME}",
        f"varsFiles: [NAME]\n{SOME}",
        STEP.replace("TYPE", "template, with: {src: NAME, path: /x}"),
        STEP.replace("TYPE", "copy, with: {src: NAME, path: /x}"),
        STEP.replace("TYPE", "archive, with: {localSrc: NAME, format: tar, path: /x}"),
    ],
)
def test_a_name_that_no_file_can_have_is_a_finding(spec: Spec, body: str, name: str) -> None:
    spec.write(f"{body}\n".replace("NAME", name))
    [finding] = compile_file(spec.path, steps=STEPS, connectors=CONNECTORS).diagnostics.errors
    assert finding.span is not None
