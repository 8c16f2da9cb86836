"""Describes a step type from its class alone: docstring, parameters, outputs and example."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from kubexm_exec.registry import Registry, RegistryError
from kubexm_exec.step import Step


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """A parameter or output."""

    name: str
    type: str
    required: bool
    default: str
    description: str


@dataclass(frozen=True, slots=True)
class StepDoc:
    """All that is to be said about a step type."""

    name: str
    summary: str
    text: str
    params: tuple[FieldDoc, ...]
    outputs: tuple[FieldDoc, ...]
    any_output: bool
    reversible: bool
    changes: bool
    example: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "summary": self.summary,
            "documentation": self.text,
            "params": [_field_json(f) for f in self.params],
            "outputs": [_field_json(f) for f in self.outputs],
            "anyOutput": self.any_output,
            "reversible": self.reversible,
            "changes": self.changes,
            "example": self.example,
        }


def _field_json(doc: FieldDoc) -> dict[str, Any]:
    return {
        "name": doc.name,
        "type": doc.type,
        "required": doc.required,
        "default": doc.default,
        "description": doc.description,
    }


def load_step(registry: Registry[Any], name: str) -> type[Step[Any]]:
    """An installed step type; raises RegistryError if there is none, or if what is there is no step type."""
    step: Any = registry.load(name)
    if not (isinstance(step, type) and issubclass(step, Step)):
        package = registry.info(name).distribution
        raise RegistryError(
            "broken-step-type",
            f'step type "{name}" of package {package} is no Step class but {step!r:.60}',
            f"repair or remove the package {package}",
        )
    return step


def params_schema(registry: Registry[Any], name: str) -> dict[str, Any]:
    """JSON Schema of a step type's parameters; raises RegistryError if it has none."""
    step = load_step(registry, name)
    try:
        return step.params_model.model_json_schema(by_alias=True)
    except Exception as error:  # a third party's types: whatever they raise must only harm those who use them
        package = registry.info(name).distribution
        raise RegistryError(
            "broken-step-type",
            f'step type "{name}" of package {package} cannot be described: {type(error).__name__}: {error}',
            f"repair or remove the package {package}",
        ) from error


def describe(name: str, step: type[Step[Any]]) -> StepDoc:
    """The documentation of a step type."""
    outputs = step.outputs_model
    return StepDoc(
        name=name,
        summary=summary_of(step),
        text=_documentation(step),
        params=_fields(step.params_model),
        outputs=_fields(outputs),
        any_output=outputs.model_config.get("extra") == "allow",
        reversible=step.reversible,
        changes=step.changes,
        example=textwrap.dedent(step.example).strip("\n"),
    )


def summary_of(step: type[Step[Any]]) -> str:
    """The first line of a step type's documentation."""
    return _documentation(step).strip().splitlines()[0].rstrip(".")


def _documentation(step: type[Step[Any]]) -> str:
    return (inspect.getdoc(step) if step.__doc__ else "") or "(no documentation)"


def _fields(model: type[BaseModel]) -> tuple[FieldDoc, ...]:
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    required = set(schema.get("required", ()))
    found = []
    for name, raw in schema.get("properties", {}).items():
        default = "" if "default" not in raw or raw["default"] in (None, "", [], {}) else _text(raw["default"])
        # A parameter that is a mapping of its own may be described where that one is.
        text = raw.get("description") or definitions.get(str(raw.get("$ref", "")).rpartition("/")[2], {}).get(
            "description"
        )
        description = " ".join(str(text or "").split())
        found.append(FieldDoc(name, _type(raw, definitions), name in required, default, description))
    return tuple(found)


def _text(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _type(raw: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A type as a person would say it."""
    if "$ref" in raw:
        return _type(definitions.get(raw["$ref"].rpartition("/")[2], {}), definitions)
    if "enum" in raw:
        return " or ".join(map(str, raw["enum"]))
    if "const" in raw:
        return str(raw["const"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in raw:
            kinds = [_type(one, definitions) for one in raw[key] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    kind = raw.get("type")
    if kind == "array":
        return f"list of {_type(raw.get('items', {}), definitions)}"
    if kind == "object":
        return "object"
    return str(kind) if kind else "any"
