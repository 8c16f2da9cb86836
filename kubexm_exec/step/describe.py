"""Describes a step type from its class alone: docstring, parameters, outputs and example."""

from __future__ import annotations

import functools
import inspect
import textwrap
from typing import Any, Final

from msgspec import Struct, field
from pydantic import BaseModel, TypeAdapter

from kubexm_exec.model.data import builtins
from kubexm_exec.plugins import Registry
from kubexm_exec.step import AnyStep, Undo, load_step
from kubexm_spec.duration import Duration

_DURATION: Final = "duration"


class FieldDoc(Struct, frozen=True):
    """A parameter or output."""

    name: str
    type: str
    required: bool
    default: str
    description: str


class StepDoc(Struct, frozen=True, rename="camel"):
    """All that is to be said about a step type."""

    name: str
    summary: str
    text: str = field(name="documentation")
    params: tuple[FieldDoc, ...]
    outputs: tuple[FieldDoc, ...]
    any_output: bool
    reversible: bool
    changes: bool
    repeatable: bool
    example: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = builtins(self)
        return data


def params_schema(registry: Registry[Any], name: str) -> dict[str, Any]:
    """JSON Schema of a step type's parameters; raises RegistryError if it has none."""
    step = load_step(registry, name)
    try:
        return step.params_model.model_json_schema(by_alias=True)
    except Exception as error:  # a third party's types: whatever they raise must only harm those who use them
        raise registry.broken(name, f"cannot be described: {type(error).__name__}: {error}") from error


def describe(name: str, step: type[AnyStep]) -> StepDoc:
    """The documentation of a step type."""
    outputs = step.outputs_model
    return StepDoc(
        name=name,
        summary=summary_of(step),
        text=_documentation(step),
        params=_fields(step.params_model),
        outputs=_fields(outputs),
        any_output=outputs.model_config.get("extra") == "allow",
        reversible=step.undo.reversible,
        changes=step.undo is not Undo.NEEDLESS,
        repeatable=step.repeatable,
        example=textwrap.dedent(step.example).strip("\n"),
    )


def summary_of(step: type[AnyStep]) -> str:
    """The first line of a step type's documentation."""
    return _documentation(step).strip().splitlines()[0].rstrip(".")


def _documentation(step: type[AnyStep]) -> str:
    return (inspect.getdoc(step) if step.__doc__ else "") or "(no documentation)"


def _fields(model: type[BaseModel]) -> tuple[FieldDoc, ...]:
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    required = set(schema.get("required", ()))
    found: list[FieldDoc] = []
    for name, raw in schema.get("properties", {}).items():
        default = "" if "default" not in raw or raw["default"] in (None, "", [], {}) else _default(raw, definitions)
        # A parameter that is a mapping of its own may be described where that one is.
        text = raw.get("description") or definitions.get(str(raw.get("$ref", "")).rpartition("/")[2], {}).get(
            "description"
        )
        description = " ".join(str(text or "").split())
        found.append(FieldDoc(name, _type(raw, definitions), name in required, default, description))
    # What must be given comes first: it is what a reader looks for.
    return tuple(sorted(found, key=lambda field: not field.required))


def _default(raw: dict[str, Any], definitions: dict[str, Any]) -> str:
    import json

    value = raw["default"]
    if isinstance(value, float) and _DURATION in _type(raw, definitions):
        return _written(value)
    return json.dumps(value, ensure_ascii=False)


def _written(seconds: float) -> str:
    """A length of time as one would write it in a spec: 1m30s."""
    left, text = round(seconds * 1000), ""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


@functools.cache
def _duration_forms() -> Any:
    """What the schema of every length of time has, whatever else is said of it."""
    return TypeAdapter(Duration).json_schema()["anyOf"]


def _type(raw: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in raw:
        return _type(definitions.get(raw["$ref"].rpartition("/")[2], {}), definitions)
    if "enum" in raw:
        return " or ".join(map(str, raw["enum"]))
    if "const" in raw:
        return str(raw["const"])
    if raw.get("anyOf") == _duration_forms():
        return _DURATION
    for key in ("anyOf", "oneOf", "allOf"):
        if key in raw:
            kinds = [_type(one, definitions) for one in raw[key] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    kind = raw.get("type")
    if kind == "array":
        return f"list of {_type(raw.get('items', {}), definitions)}"
    if kind == "object":
        return "mapping"
    if isinstance(kind, list):
        return " or ".join(str(each) for each in kind if each != "null")
    return str(kind) if kind else "any"
