"""Gives every parameter of a document its value, typed and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.diagnostics import Diagnostics, Note, Span, SpecError, did_you_mean, shortened
from kubexm_spec.models import ParamSpec, ParamType
from kubexm_spec.regex import regex
from kubexm_spec.yaml.source import Place, SourceFile

_PYTHON: Final[dict[ParamType, tuple[type, ...]]] = {
    ParamType.STRING: (str,),
    ParamType.INTEGER: (int,),
    ParamType.NUMBER: (int, float),
    ParamType.BOOLEAN: (bool,),
    ParamType.LIST: (list,),
    ParamType.OBJECT: (dict,),
    ParamType.SECRET: (str,),
}
_EXAMPLES: Final = {
    ParamType.INTEGER: "a whole number such as 3",
    ParamType.NUMBER: "a number such as 2.5",
    ParamType.BOOLEAN: "true or false",
    ParamType.LIST: "a list such as a,b,c or [1, 2]",
    ParamType.OBJECT: "an object such as {a: 1}",
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,300}", re.ASCII)
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]{1,300}\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?", re.ASCII)
_REFERENCE: Final = re.compile(r"([a-z][a-z0-9_-]*):.+", re.DOTALL)
_NOT_A_REFERENCE: Final = "a secret must be a reference such as env:NAME or file:PATH, not the value itself"


def parse_text(text: str, spec: ParamSpec) -> Any:
    """A value given as text (``-e key=value``) as the parameter's type; raises ValueError."""
    kind = spec.type
    word = text.strip()
    if kind in (ParamType.STRING, ParamType.SECRET):
        return text
    if kind is ParamType.INTEGER and _INTEGER.fullmatch(word):
        return int(word)
    if kind is ParamType.NUMBER and _NUMBER.fullmatch(word):
        return int(word) if _INTEGER.fullmatch(word) else float(word)
    if kind is ParamType.BOOLEAN and word.lower() in ("true", "yes", "on", "1"):
        return True
    if kind is ParamType.BOOLEAN and word.lower() in ("false", "no", "off", "0"):
        return False
    if kind is ParamType.LIST and not word.startswith(("[", "{")):
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind in (ParamType.LIST, ParamType.OBJECT):
        found = _structured(text)
        if isinstance(found, _PYTHON[kind]):
            return found
    raise ValueError(f"should be {_EXAMPLES[kind]}")


def _structured(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        try:
            return SourceFile.from_text(text, "<value>").documents[0]
        except SpecError as error:
            raise ValueError("it cannot be read") from error


def problem(value: Any, spec: ParamSpec) -> str:
    """What is wrong with a value, or an empty text; a secret is never repeated."""
    if spec.type is ParamType.SECRET:
        if not isinstance(value, str) or not is_reference(value):
            guess = meant_provider(value) if isinstance(value, str) else ""
            return _NOT_A_REFERENCE + (f"; {guess}" if guess else "")
    elif not _has_type(value, spec.type):
        return f"should be of type {spec.type.value}; got {_shown(value)}"
    if spec.enum is not None and not any(value == one and type(value) is type(one) for one in spec.enum):
        got = "" if spec.type is ParamType.SECRET else f"; got {_shown(value)}"
        return f"should be one of {', '.join(map(_shown, spec.enum))}{got}"
    if spec.pattern is not None and not regex(spec.pattern).matches(str(value)):
        return f"should match {spec.pattern}" + ("" if spec.type is ParamType.SECRET else f"; got {_shown(value)}")
    return ""


def _has_type(value: Any, kind: ParamType) -> bool:
    kinds = _PYTHON[kind]
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _shown(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, default=str))


def is_reference(text: str) -> bool:
    """Whether a text names a secret with an installed provider (``env:NAME``), and is not perhaps the secret itself."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and match[1] in secret_schemes()


def meant_provider(text: str) -> str:
    """The provider that a reference may mean, as a question, or empty; the text may be the secret itself."""
    return did_you_mean(text.partition(":")[0], sorted(secret_schemes())) if ":" in text else ""


def meant_reference(text: str, key: str) -> str:
    """What to write in place of a text that is no reference to a secret, which is not repeated."""
    return meant_provider(text) or f"write {key}: env:NAME or file:PATH"


@cache
def secret_schemes() -> frozenset[str]:
    """What references to secrets can begin with; installed packages do not change while a program runs."""
    from kubexm_exec.plugins import installed

    return frozenset(entry.name for entry in installed("kubexm.secrets"))


def check_declarations(params: Mapping[str, ParamSpec], place: Place, diagnostics: Diagnostics) -> None:
    """What is allowed must be of the parameter's type, and a default must be allowed."""
    for name, spec in params.items():
        for index, value in enumerate(spec.enum or ()):
            if not _has_type(value, spec.type):
                summary = f'parameter "{name}" is of type {spec.type.value}, so {_shown(value)} can never be its value'
                diagnostics.error("bad-enum", summary, place.child(name, "enum", index))
        if "default" in spec.model_fields_set and spec.default is not None:
            wrong, hint = problem(spec.default, spec), ""
            if is_dynamic(spec.default):
                wrong = "a default must be a plain value, not an expression"
                hint = "use `vars`, which can refer to params"
            if wrong:
                summary, where = f'default of parameter "{name}": {wrong}', place.child(name, "default")
                diagnostics.error(_code("bad-default", spec), summary, where, hint=hint)


def bind_outside(
    params: Mapping[str, ParamSpec],
    values: Mapping[str, Any],
    texts: Mapping[str, str],
    diagnostics: Diagnostics,
    *,
    owner: str,
    declared_at: Place,
    given_at: Mapping[str, Span],
) -> dict[str, Any]:
    """The parameters from files (``values``) and the command line (``texts``, which win), never evaluated."""
    given = {name: value for name, value in values.items() if name in params}
    for name, text in ((name, text) for name, text in texts.items() if name in params):
        given.pop(name, None)
        try:
            given[name] = parse_text(text, params[name])
        except ValueError as error:
            summary = f'-e {name}: {error}; got "{shortened(text)}"'
            diagnostics.error("bad-param", summary, declared_at.child(name).key())
    found: dict[str, Any] = {}
    for name, spec in params.items():
        found[name] = given.get(name, spec.default)
        if name in given:
            wrong = problem(given[name], spec)
            if wrong:
                source = f"-e {name}" if name in texts else f'"{name}" ({_given(name, texts, given_at)})'
                declared = declared_at.child(name).key()
                written = None if name in texts else given_at.get(name)
                notes = [Note(f'parameter "{name}" is declared here', declared.span())] if written else []
                diagnostics.error("bad-param", f"{source}: {wrong}", written or declared, notes=notes)
        elif spec.is_required and name not in texts:
            declared, hint = declared_at.child(name).key(), f"set it: -e {name}=VALUE"
            diagnostics.error("missing-param", _missing(owner, name, spec), declared, hint=hint)
    return found


def _given(name: str, texts: Mapping[str, str], given_at: Mapping[str, Span]) -> str:
    """Where a value comes from: the command line, a file, or the request itself."""
    return "-e" if name in texts else "--vars-file" if name in given_at else "values"


def bind(
    params: Mapping[str, ParamSpec],
    given: Mapping[str, Any],
    diagnostics: Diagnostics,
    *,
    owner: str,
    declared_at: Place,
    given_at: Place,
    user: Place,
) -> dict[str, Any]:
    """The parameters of a used document, with findings; those with expressions are checked when evaluated."""
    for name in (name for name in given if name not in params):
        summary, where = f'{owner} has no parameter "{name}"', given_at.child(name).key()
        diagnostics.error("unknown-param", summary, where, hint=_meant(name, params))
    values: dict[str, Any] = {}
    for name, spec in params.items():
        values[name] = given.get(name, spec.default)
        declared = Note("declared at", declared_at.child(name).key().span())
        if name in given:
            wrong = "" if is_dynamic(given[name]) else problem(given[name], spec)
            if wrong:
                summary = f'parameter "{name}" of {owner}: {wrong}'
                diagnostics.error(_code("bad-param", spec), summary, given_at.child(name), notes=[declared])
        elif spec.is_required:
            where, hint = given_at.key() if given else user, f"add `{name}` under `with`"
            diagnostics.error("missing-param", _missing(owner, name, spec), where, hint=hint, notes=[declared])
    return values


def _code(code: str, spec: ParamSpec) -> str:
    """The code of a finding about a value; one that may be a secret is never shown, nor are the lines beside it."""
    return "plain-password" if spec.type is ParamType.SECRET else code


def _missing(owner: str, name: str, spec: ParamSpec) -> str:
    about = f" ({spec.description.rstrip('.')})" if spec.description else ""
    return f'{owner} needs a value for the parameter "{name}"{about}'


def _meant(name: str, params: Mapping[str, ParamSpec]) -> str:
    return did_you_mean(name, params) or (f"it has {', '.join(params)}" if params else "it has none")


def secret_names(params: Mapping[str, ParamSpec]) -> tuple[str, ...]:
    """The parameters that hold secret references."""
    return tuple(name for name, spec in params.items() if spec.type is ParamType.SECRET)
