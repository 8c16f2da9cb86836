"""Pass: gives every parameter of a document its value, typed and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kubexm_exec.expr import is_dynamic
from kubexm_spec.diagnostics import Diagnostics, Note, did_you_mean
from kubexm_spec.models import ParamSpec, ParamType
from kubexm_spec.source import Place, SourceFile

_PYTHON: dict[ParamType, tuple[type, ...]] = {
    ParamType.STRING: (str,),
    ParamType.INTEGER: (int,),
    ParamType.NUMBER: (int, float),
    ParamType.BOOLEAN: (bool,),
    ParamType.LIST: (list,),
    ParamType.OBJECT: (dict,),
    ParamType.SECRET: (str,),
}
_SECRET = re.compile(r"^[a-z][a-z0-9_-]*:.+", re.DOTALL)


def parse_text(text: str, spec: ParamSpec) -> Any:
    """A value given as text (``-e key=value``) as the parameter's type; raises ValueError."""
    kind = spec.type
    if kind in (ParamType.STRING, ParamType.SECRET):
        return text
    if kind is ParamType.INTEGER:
        return int(text)
    if kind is ParamType.NUMBER:
        number = float(text)
        return int(number) if number.is_integer() and "." not in text and "e" not in text.lower() else number
    if kind is ParamType.BOOLEAN:
        word = text.strip().lower()
        if word in ("true", "yes", "on", "1"):
            return True
        if word in ("false", "no", "off", "0"):
            return False
        raise ValueError("true or false")
    if kind is ParamType.LIST and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    return _structured(text)


def _structured(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return SourceFile.from_text(text, "<value>").documents[0]


def problem(value: Any, spec: ParamSpec) -> str:
    """What is wrong with a value, or an empty text."""
    kinds = _PYTHON[spec.type]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        shown = "null" if value is None else json.dumps(value, default=str)
        return f"should be of type {spec.type.value}; got {shown if len(shown) <= 60 else shown[:57] + '...'}"
    if spec.type is ParamType.SECRET and not _SECRET.match(str(value)):
        return "a secret is given as a reference such as env:NAME or file:PATH, never as its value"
    if spec.enum is not None and value not in spec.enum:
        return f"should be one of {', '.join(map(str, spec.enum))}; got {value!r}"
    if spec.pattern is not None and not re.fullmatch(spec.pattern, str(value)):
        return f"should match {spec.pattern}" + ("" if spec.type is ParamType.SECRET else f"; got {value!r}")
    return ""


def check_declarations(params: Mapping[str, ParamSpec], place: Place, diagnostics: Diagnostics) -> None:
    """A default must fit its own declaration."""
    for name, spec in params.items():
        if "default" in spec.model_fields_set and spec.default is not None:
            wrong = (
                "a default is a plain value, not an expression"
                if is_dynamic(spec.default)
                else problem(spec.default, spec)
            )
            if wrong:
                diagnostics.error(
                    "bad-default", f'default of parameter "{name}": {wrong}', place.child(name, "default")
                )


def bind(
    params: Mapping[str, ParamSpec],
    given: Mapping[str, Any],
    diagnostics: Diagnostics,
    *,
    owner: str,
    declared_at: Place,
    given_at: Place | None,
    notes: tuple[Note, ...] = (),
) -> dict[str, Any]:
    """The value of every parameter; findings for what is unknown, missing or does not fit.

    Values that hold expressions are taken as they are: they are judged when they are known.
    """
    values: dict[str, Any] = {}
    for name in given:
        if name not in params:
            diagnostics.error(
                "unknown-param",
                f'{owner} has no parameter "{name}"',
                given_at.child(name).key() if given_at else None,
                hint=did_you_mean(name, params) or (f"it has {', '.join(params)}" if params else "it has none"),
                notes=notes,
            )
    for name, spec in params.items():
        if name in given:
            value = given[name]
            wrong = "" if given_at is not None and is_dynamic(value) else problem(value, spec)
            if wrong:
                diagnostics.error(
                    "bad-param",
                    f'parameter "{name}" of {owner}: {wrong}',
                    given_at.child(name) if given_at else declared_at.child(name).key(),
                    notes=notes,
                )
            values[name] = value
        elif spec.is_required:
            hint = "add it under `with`" if given_at is not None else f"give it: -e {name}=VALUE"
            diagnostics.error(
                "missing-param",
                f'{owner} needs a value for the parameter "{name}"'
                + (f" ({spec.description})" if spec.description else ""),
                (given_at.key() if given_at.path else given_at)
                if given_at is not None
                else declared_at.child(name).key(),
                hint=hint,
                notes=notes,
            )
            values[name] = None
        else:
            values[name] = spec.default
    return values


def secret_names(params: Mapping[str, ParamSpec]) -> tuple[str, ...]:
    """The parameters that hold secret references."""
    return tuple(name for name, spec in params.items() if spec.type is ParamType.SECRET)
