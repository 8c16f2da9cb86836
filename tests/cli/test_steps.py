"""steps and schema: what is installed, documented from the classes alone."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kubexm_exec.plugins import step_registry
from kubexm_exec.step import load_step
from kubexm_exec.step.describe import describe
from kubexm_spec.yaml.source import SourceFile
from tests.cli.kit import HEAD, Folder
from tests.compile import specs

NAMES = step_registry().names()


def test_all_installed_types_are_listed_with_their_distribution(folder: Folder) -> None:
    rows = folder.data("steps")
    assert [row["name"] for row in rows] == NAMES
    assert {row["distribution"] for row in rows} >= {"kubexm"}
    assert all(row["summary"] and not row["error"] for row in rows)
    text = folder.run("steps").stdout
    assert all(any(line.startswith(f"{name} ") for line in text.splitlines()) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_documented_with_an_example_that_validates(folder: Folder, name: str) -> None:
    doc = folder.data("steps", name)
    assert doc["documentation"]
    assert all(field["description"] for field in doc["params"]), name
    assert doc["example"]
    text = folder.run("steps", name).stdout
    assert text.startswith(f"{name}  (")
    assert "Parameters" in text or not doc["params"]
    # Whatever the example refers to is made up, so that only the step itself is checked.
    steps = textwrap.indent(doc["example"], "          ")
    folder.spec(f"modules:\n  - name: m\n    tasks:\n      - name: t\n        steps:\n{steps}\n")
    data = json.loads(folder.run("validate", "main.yaml", "--output", "json").stdout)
    wrong = {finding["code"] for finding in data["diagnostics"]}
    assert not wrong & {
        "unknown-key",
        "missing-key",
        "wrong-type",
        "wrong-value",
        "unknown-step-type",
        "bad-expression",
    }


def test_an_unknown_type_gets_a_suggestion(folder: Folder) -> None:
    result = folder.run("steps", "comand")
    assert result.exit_code == 2
    assert 'did you mean "command"?' in result.stderr
    assert folder.data("steps", "comand", exit_code=2)["diagnostics"][0]["code"] == "unknown-step-type"


def test_every_type_is_described_from_its_class() -> None:
    registry = step_registry()
    for name in NAMES:
        doc = describe(name, load_step(registry, name))
        assert doc.to_json()["name"] == name


@pytest.fixture(scope="module")
def schema() -> Any:
    from click.testing import CliRunner

    from kubexm_exec.cli.main import main

    return json.loads(CliRunner().invoke(main, ["schema"]).stdout)


def validator(schema: Any) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_schema_knows_every_installed_type(schema: Any) -> None:
    validator(schema)
    assert schema["$defs"]["StepSpec"]["properties"]["type"]["enum"] == NAMES
    assert {f"with:{name}" for name in NAMES} <= schema["$defs"].keys()


def read(text: str) -> Any:
    return SourceFile.from_text(text).documents[0]


def written_steps() -> list[Any]:
    """Every example, and every case that a step type is tested with."""
    steps = [step for name in NAMES for step in read(load_step(step_registry(), name).example)]
    for path in sorted(Path(__file__).parents[1].glob("steps/*/*/*.yaml")):
        case = read(path.read_text("utf-8"))
        steps.append({"name": path.stem, "type": case["step"], "with": case["with"]})
    return steps


def test_the_schema_takes_what_the_steps_take(schema: Any) -> None:
    """Or else an editor underlines what is right."""
    check = validator({"$defs": schema["$defs"], "$ref": "#/$defs/StepSpec"})
    assert [
        (step, [e.message for e in check.iter_errors(step)]) for step in written_steps() if not check.is_valid(step)
    ] == []


def test_lengths_of_time_and_mixed_types_are_told_in_words_and_what_is_required_comes_first() -> None:
    described = {
        name: describe(name, load_step(step_registry(), name)) for name in ("service", "package", "sync", "swap")
    }
    fields = {(name, field.name): field for name, doc in described.items() for field in doc.params}
    assert (fields["service", "wait"].type, fields["service", "wait"].default) == ("duration", "1m30s")
    assert (fields["package", "update"].type, fields["package", "update"].default) == (
        "never or always or duration",
        "1d",
    )
    assert fields["swap", "size"].type == "string or integer"
    assert [field.required for field in described["sync"].params][:3] == [True, True, False]


def test_the_schema_can_be_written_to_a_file(folder: Folder, schema: Any) -> None:
    assert folder.run("schema", "-o", "kubexm.schema.json").exit_code == 0
    assert json.loads((folder.path / "kubexm.schema.json").read_text("utf-8")) == schema


def good_documents() -> list[Any]:
    texts = [text for name, text in specs.FILES.items() if name.endswith(".yaml")]
    return [document for text in texts for document in SourceFile.from_text(text).documents]


def test_the_schema_takes_good_specs(schema: Any) -> None:
    check = validator(schema)
    for document in good_documents():
        assert [error.message for error in check.iter_errors(document)] == []


STEP = "modules: [{name: m, tasks: [{name: t, steps: [%s]}]}]"


@pytest.mark.parametrize(
    "text",
    [
        "modules: []",
        "modulez: []\n" + STEP % "{name: s, type: message, with: {text: x}}",
        STEP % "{name: s, type: mesage, with: {text: x}}",
        STEP % "{name: s, type: message, with: {txt: x}}",
        STEP % "{name: s, type: message}",
        STEP % "{type: message, with: {text: x}}",
        STEP % "{name: a b, type: message, with: {text: x}}",
        STEP % "{name: s, type: message, retry: {attempts: 0}, with: {text: x}}",
        STEP % "{name: s, type: message, timeout: 5 parsecs, with: {text: x}}",
        STEP % "{name: s, type: message, maxFailures: -1, with: {text: x}}",
        STEP % "{name: s, type: wait, with: {port: many}}",
        "failurePolicy: never\n" + STEP % "{name: s, type: message, with: {text: x}}",
        "params: {x: {type: text}}\n" + STEP % "{name: s, type: message, with: {text: x}}",
        "inventory: {hosts: [{address: x}]}\n" + STEP % "{name: s, type: message, with: {text: x}}",
    ],
)
def test_the_schema_refuses_bad_specs(schema: Any, text: str) -> None:
    (document,) = SourceFile.from_text(HEAD + text + "\n").documents
    assert not validator(schema).is_valid(document)


@pytest.mark.parametrize(
    "text",
    [
        STEP % '{name: s, type: command, with: {argv: "{{ vars.list }}"}}',
        STEP % '{name: s, type: command, with: {argv: [ls, "{{ item }}"], expect: "{{ vars.codes }}"}}',
        STEP % '{name: s, type: http, with: {url: "{{ vars.url }}", expect: {status: ["{{ vars.status }}"]}}}',
        STEP % "{name: s, type: message, retry: 3, timeout: 1h30m, when: true, forEach: [1], tags: x, with: {text: x}}",
        STEP % "{name: s, type: message, forEach: {matrix: {a: [1], b: vars.x}}, maxFailures: 20%, with: {text: x}}",
        "runOn: all\n" + STEP % "{name: s, type: message, with: {text: x}}",
        "runOn: {roles: web, labels: {a: true}}\n" + STEP % "{name: s, type: message, with: {text: x}}",
        "modules: [{name: m, tasks: [{name: t, batch: 20%, uses: x.yaml, with: {a: 1}}]}]",
        "modules: [{name: m, tasks: [{name: t, batch: 1, runOn: node1, uses: x.yaml}]}]",
    ],
)
def test_the_schema_takes_short_forms_and_expressions(schema: Any, text: str) -> None:
    (document,) = SourceFile.from_text(HEAD + text + "\n").documents
    assert [error.message for error in validator(schema).iter_errors(document)] == []
