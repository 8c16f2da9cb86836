"""The models: short forms, limits, names, and what a document must not say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from kubexm_spec.models import (
    KINDS,
    BatchSpec,
    ForEachSpec,
    HostSpec,
    InventoryBody,
    ModuleSpec,
    ParamSpec,
    PipelineDocument,
    ResourcesSpec,
    RunOnSpec,
    StepRetrySpec,
    StepSpec,
    TaskSpec,
    model_of,
)

STEP = {"name": "s", "type": "message"}


def step(**more: Any) -> StepSpec:
    return StepSpec.model_validate({**STEP, **more})


def refuses(model: type[BaseModel], data: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return str(caught.value)


def test_keys_are_camel_case_and_only_those() -> None:
    assert step(ignoreErrors=True).ignore_errors is True
    assert "ignore_errors" in refuses(StepSpec, {**STEP, "ignore_errors": True})
    assert "nope" in refuses(StepSpec, {**STEP, "nope": 1})


def test_documents_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        setattr(step(), "name", "other")  # noqa: B010 - written plainly, mypy refuses it already


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (3, StepRetrySpec(attempts=3)),
        ({"attempts": 3, "delay": "2s", "maxDelay": "1m"}, StepRetrySpec(attempts=3, delay=2.0, maxDelay=60.0)),
    ],
)
def test_retry_may_be_a_number(short: Any, long: StepRetrySpec) -> None:
    assert step(retry=short).retry == long


@pytest.mark.parametrize("value", [0, -1, 1001, True, "many", {"attempts": 1, "on": ["never"]}, {"backoff": "wild"}])
def test_a_retry_that_makes_no_sense_is_refused(value: Any) -> None:
    refuses(StepSpec, {**STEP, "retry": value})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ([1, 2], ForEachSpec(items=[1, 2])),
        ("vars.list", ForEachSpec(items="vars.list")),
        ({"items": [1], "parallel": True}, ForEachSpec(items=[1], parallel=True)),
        ({"matrix": {"a": [1], "b": "vars.b"}}, ForEachSpec(matrix={"a": [1], "b": "vars.b"})),
    ],
)
def test_a_loop_may_be_its_list(short: Any, long: ForEachSpec) -> None:
    assert step(forEach=short).for_each == long


@pytest.mark.parametrize("value", [{}, {"items": [1], "matrix": {"a": [1]}}, {"matrix": {"a-b": [1]}}, 5, None, True])
def test_a_loop_has_one_source(value: Any) -> None:
    if value is None:
        assert step(forEach=None).for_each is None
    else:
        refuses(StepSpec, {**STEP, "forEach": value})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("all", RunOnSpec(all=True)),
        ("node1", RunOnSpec(hosts=["node1"])),
        ({"roles": "web"}, RunOnSpec(roles=["web"])),
        ({"labels": {"a": 1, "b": True, "c": "x"}}, RunOnSpec(labels={"a": "1", "b": "true", "c": "x"})),
    ],
)
def test_a_selector_may_be_a_word(short: Any, long: RunOnSpec) -> None:
    task = TaskSpec.model_validate({"name": "t", "steps": [STEP], "runOn": short})
    assert task.run_on == long


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (3, "3"), ("3", "3"), ("20%", "20%"), ("100%", "100%"), (" 5 ", "5")]
)
def test_a_budget_is_a_number_or_a_percentage(value: Any, text: str) -> None:
    assert step(maxFailures=value).max_failures == text


@pytest.mark.parametrize("value", [-1, "-1", "101%", "x", "", "%", True, 1.5, "1.5", "²", "１", "9" * 20, []])
def test_what_is_no_budget_is_refused(value: Any) -> None:
    refuses(StepSpec, {**STEP, "maxFailures": value})


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (2, BatchSpec(size="2")),
        ("20%", BatchSpec(size="20%")),
        ({"size": 1, "pause": "30s"}, BatchSpec(size="1", pause=30.0)),
    ],
)
def test_a_batch_may_be_its_size(short: Any, long: BatchSpec) -> None:
    assert TaskSpec.model_validate({"name": "t", "steps": [STEP], "batch": short}).batch == long


@pytest.mark.parametrize("value", [0, "0", "0%", "00", -1, {"pause": "1s"}, [], None])
def test_a_batch_has_at_least_one_host(value: Any) -> None:
    if value is None:
        return
    refuses(TaskSpec, {"name": "t", "steps": [STEP], "batch": value})


@pytest.mark.parametrize("value", [0, -1, "x"])
def test_limits_are_at_least_one(value: Any) -> None:
    refuses(ResourcesSpec, {"globalLimit": value})
    refuses(ResourcesSpec, {"perHostLimit": value})


@pytest.mark.parametrize("name", ["a", "a-b", "a.b", "a_b", "1a", "A" * 128])
def test_names_that_are_allowed(name: str) -> None:
    assert step(name=name).name == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a[1]", "-a", ".a", "a#b", "a+b", "ä", "a\n", "A" * 129, 5, None])
def test_names_that_would_break_ids_are_refused(name: Any) -> None:
    refuses(StepSpec, {**STEP, "name": name})


@pytest.mark.parametrize("name", ["a-b", "1a", "a.b", "a b", "", "ä"])
def test_variables_and_outputs_have_names_that_expressions_can_say(name: str) -> None:
    refuses(StepSpec, {**STEP, "outputs": {name: 1}})
    refuses(HostSpec, {"name": "a", "vars": {name: 1}})


def test_a_parameter_without_a_default_is_required() -> None:
    assert ParamSpec().is_required
    assert not ParamSpec.model_validate({"default": None}).is_required
    assert not ParamSpec.model_validate({"required": False}).is_required
    assert ParamSpec.model_validate({"default": 1, "required": True}).is_required


def test_a_pattern_is_for_texts_and_must_be_one() -> None:
    ParamSpec.model_validate({"pattern": "a+"})
    assert "not a regular expression" in refuses(ParamSpec, {"pattern": "("})
    assert "pattern is for strings" in refuses(ParamSpec, {"type": "integer", "pattern": "a"})


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (TaskSpec, {"name": "t"}, "a task needs `steps`, or `uses` with a document"),
        (TaskSpec, {"name": "t", "uses": "x.yaml", "steps": [STEP]}, "has no steps of its own"),
        (TaskSpec, {"name": "t", "steps": [STEP], "with": {"a": 1}}, "this task uses none"),
        (ModuleSpec, {"name": "m"}, "a module needs `tasks`, or `uses` with a document"),
        (ModuleSpec, {"name": "m", "uses": "x", "tasks": [{"name": "t", "steps": [STEP]}]}, "has no tasks of its own"),
        (ModuleSpec, {"name": "m", "tasks": [{"name": "t", "steps": [STEP]}], "with": {"a": 1}}, "uses none"),
        (InventoryBody, {"hosts": [{"name": ""}]}, "at least 1 character"),
        (InventoryBody, {"hosts": [{"name": "a", "port": 0}]}, "greater than or equal to 1"),
        (InventoryBody, {"hosts": [{"name": "a", "port": 70000}]}, "less than or equal to 65535"),
        (PipelineDocument, {"apiVersion": "kubexm.io/v1", "kind": "Pipeline", "metadata": {"name": "p"}, "modules": []},
         "at least 1 item"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(model: type[BaseModel], data: Any, words: str) -> None:
    assert words in refuses(model, data)


def test_every_kind_has_a_model_that_says_its_name() -> None:
    for kind in KINDS:
        assert kind in str(model_of(kind).model_fields["kind"].annotation)


def test_every_key_is_described() -> None:
    """The reference of the documents is made from these."""
    seen: set[type[BaseModel]] = set()

    def look(model: type[BaseModel]) -> None:
        if model in seen:
            return
        seen.add(model)
        assert model.__doc__
        for name, info in model.model_fields.items():
            assert info.description, f"{model.__name__}.{name}"
            for inner in _models(info.annotation):
                look(inner)

    for kind in KINDS:
        look(model_of(kind))
    assert len(seen) > 15


def _models(annotation: Any) -> list[type[BaseModel]]:
    from typing import get_args

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
