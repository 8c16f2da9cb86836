"""JSON Schema of all documents, for editors: the models' own, with the parameters of the step types that are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from kubexm_spec.models import KINDS, HookStepSpec, StepSpec, model_of

_EXPRESSION: dict[str, Any] = {"type": "string", "pattern": r"\{\{|\{%", "description": "An expression."}


def json_schema(step_schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One schema for every kind of document; ``step_schemas`` holds the JSON Schema of each step type's parameters."""
    documents = [model_of(kind) for kind in KINDS]
    models = [*documents, StepSpec, HookStepSpec]
    _, schema = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    for name, raw in sorted(step_schemas.items()):
        definitions.update(_step_definitions(name, raw))
    for step in ("StepSpec", "HookStepSpec"):
        _bind_types(definitions[step], step_schemas)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://kubexm.io/schema/v1.json",
        "title": "kubexm documents",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in documents],
        "$defs": definitions,
    }


def _step_definitions(name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a step type under names of their own, with expressions allowed for every value."""
    prefix = f"with:{name}"
    own = {key: value for key, value in raw.items() if key != "$defs"}
    inner = {f"{prefix}:{key}": value for key, value in raw.get("$defs", {}).items()}
    return {key: _with_expressions(_rename(value, prefix)) for key, value in {prefix: own, **inner}.items()}


def _rename(value: Any, prefix: str) -> Any:
    if isinstance(value, dict):
        return {key: _rename(item, prefix) for key, item in value.items()}
    if isinstance(value, list):
        return [_rename(item, prefix) for item in value]
    # References, also those in the mapping of a discriminator.
    if isinstance(value, str) and value.startswith("#/$defs/"):
        return f"#/$defs/{prefix}:{value.rpartition('/')[2]}"
    return value


def _with_expressions(schema: Any) -> Any:
    """The schema with an expression allowed for every value inside of it: of keys, items and members of unions."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if isinstance(found.get("properties"), dict):
        found["properties"] = {key: _or_expression(value) for key, value in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict) and found[key]:
            found[key] = _or_expression(found[key])
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(found.get(key), list):
            found[key] = [_with_expressions(one) for one in found[key]]
    return found


def _or_expression(schema: Any) -> Any:
    schema = _with_expressions(schema)
    if not isinstance(schema, dict) or not schema:
        return schema
    if schema.get("type") == "string" and not {"enum", "const", "pattern", "format"} & schema.keys():
        return schema
    kept: dict[str, Any] = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in kept}
    return {**kept, "anyOf": [inner, _EXPRESSION]}


def _bind_types(step: dict[str, Any], step_schemas: Mapping[str, Mapping[str, Any]]) -> None:
    names = sorted(step_schemas)
    if not names:
        return
    step["properties"]["type"] = {**step["properties"]["type"], "enum": names}
    step["allOf"] = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {
                "properties": {"with": {"$ref": f"#/$defs/with:{name}"}},
                **({"required": ["with"]} if step_schemas[name].get("required") else {}),
            },
        }
        for name in names
    ]
