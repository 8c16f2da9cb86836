"""The JSON Schema: valid itself, with the parameters of the step types it is given."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel, ConfigDict

from kubexm_spec.schema import json_schema


class Nested(BaseModel):
    """Inside."""

    model_config = ConfigDict(extra="forbid")
    count: int


class Params(BaseModel):
    """Parameters of a step type."""

    model_config = ConfigDict(extra="forbid")
    size: int
    nested: Nested | None = None
    many: list[Nested] = []
    table: dict[str, int] = {}
    text: str = ""
    anything: Any = None


def schema(**types: dict[str, Any]) -> dict[str, Any]:
    return json_schema(types)


FULL = schema(
    thing=Params.model_json_schema(), plain={"type": "object", "properties": {}, "additionalProperties": False}
)


def is_valid(step: dict[str, Any]) -> bool:
    document = {
        "apiVersion": "kubexm.io/v1",
        "kind": "Pipeline",
        "metadata": {"name": "p"},
        "modules": [{"name": "m", "tasks": [{"name": "t", "steps": [{"name": "s", **step}]}]}],
    }
    return jsonschema.Draft202012Validator(FULL).is_valid(document)


def test_the_schema_is_one_and_the_same_every_time() -> None:
    jsonschema.Draft202012Validator.check_schema(FULL)
    again = schema(plain=FULL["$defs"]["with:plain"], thing=Params.model_json_schema())
    assert again["$defs"].keys() == FULL["$defs"].keys()


def test_no_step_type_at_all_is_still_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize(
    "given",
    [
        {"size": 1},
        {"size": "{{ vars.size }}"},
        {"size": 1, "nested": {"count": 1}},
        {"size": 1, "nested": {"count": "{{ 1 }}"}},
        {"size": 1, "nested": "{{ vars.nested }}"},
        {"size": 1, "many": [{"count": "{{ 1 }}"}, "{{ vars.one }}"]},
        {"size": 1, "many": "{{ vars.many }}"},
        {"size": 1, "table": {"a": 1, "b": "{{ 2 }}"}},
        {"size": 1, "anything": [{"deep": "{{ x }}"}]},
    ],
)
def test_expressions_are_allowed_for_every_value(given: dict[str, Any]) -> None:
    assert is_valid({"type": "thing", "with": given})


@pytest.mark.parametrize(
    "given",
    [{}, {"size": "one"}, {"size": 1, "x": 1}, {"size": 1, "nested": {"count": "one"}}, {"size": 1, "nested": {"x": 1}},
     {"size": 1, "many": [{"x": 1}]}, {"size": 1, "table": {"a": "one"}}, {"size": 1, "text": 5}],
)  # fmt: skip
def test_wrong_parameters_are_refused(given: dict[str, Any]) -> None:
    assert not is_valid({"type": "thing", "with": given})


def test_each_type_has_its_own_parameters() -> None:
    assert is_valid({"type": "plain"})
    assert is_valid({"type": "plain", "with": {}})
    assert not is_valid({"type": "plain", "with": {"size": 1}})
    assert not is_valid({"type": "thing"})
    assert not is_valid({"type": "nothing"})
