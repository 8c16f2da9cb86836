"""Checks plain data against a model and turns what pydantic says into findings that point at the very key or value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from kubexm_spec.diagnostics import Diagnostics, did_you_mean, suggest
from kubexm_spec.models.common import IDENTIFIER_PATTERN, NAME_PATTERN
from kubexm_spec.yaml.source import Path, Place

M = TypeVar("M", bound=BaseModel)

_COLLECTIONS = {
    "modules": "module",
    "tasks": "task",
    "steps": "step",
    "hosts": "host",
    "pre": "step",
    "post": "step",
    "onFailure": "step",
    "always": "step",
    "rescue": "step",
    "handlers": "handler",
    "params": "parameter",
}
_MOST_KEYS = 24
_OF_VALUES = ("wrong-type", "wrong-value")


def check(
    model: type[M],
    data: Any,
    place: Place,
    diagnostics: Diagnostics,
    *,
    what: str = "",
    ignore: Callable[[Path], bool] | None = None,
) -> M | None:
    """The data as that model, or None with findings; ``ignore`` leaves out what cannot be judged yet (expressions)."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems: dict[tuple[Path, str, bool], Any] = {}
        for problem in _worth_telling(error, data):
            path, on_key = _yaml_path(problem, data)
            code = _code(problem["type"])
            # A key that does not exist is wrong whatever its value will be.
            if ignore is None or code == "unknown-key" or not ignore(path):
                # A value that is none of several types is one mistake, whatever each of them says of it.
                mistake = (path, "" if code in _OF_VALUES else code, on_key)
                problems[mistake] = _joined(problems.get(mistake), problem)
        misspelled = {
            (*path[:-1], suggest(str(path[-1]), sorted(keys_at(model, path[:-1], problem["loc"]))))
            for (path, code, _), problem in problems.items()
            if code == "unknown-key"
        }
        misspelled |= {
            (*path[:-1], name)
            for path, code, _ in problems
            if code == "unknown-key"
            for name in _STAND_FOR.get(str(path[-1]), ())
        }
        for (path, code, on_key), problem in problems.items():
            # A key that is there under a wrong name is one mistake, not two.
            if code != "missing-key" or path not in misspelled:
                _tell(model, problem, data, path, on_key, place, diagnostics, what)
    return None


def _worth_telling(error: ValidationError, data: Any) -> Iterator[Any]:
    """Leave out the branches of a union that the data was never meant for (``str`` where a mapping stands)."""
    problems = error.errors(include_url=False, include_context=True)
    deeper = {problem["loc"][:-1] for problem in problems if problem["loc"]}
    for problem in problems:
        loc = problem["loc"]
        if problem["type"].endswith("_type") and loc and isinstance(loc[-1], str):
            parent, rest = loc[:-1], loc[-1]
            value = _value_at(data, parent)
            is_branch = not (isinstance(value, Mapping) and rest in value) and value is not None
            if (
                is_branch
                and isinstance(value, Mapping | list)
                and any(
                    len(other) > len(parent) and other[: len(parent)] == parent and other != loc for other in deeper
                )
            ):
                continue
        yield problem


def _has(data: Any, part: int | str) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _value_at(data: Any, loc: tuple[int | str, ...]) -> Any:
    for part in loc:
        if _has(data, part):
            data = data[part]
    return data


def _joined(known: Any, problem: Any) -> Any:
    """What is wrong at one place: where several types would do (a text or a list), all of them are named."""
    if known is None:
        return problem
    first, second = (_WORDS.get(one["type"], "") for one in (known, problem))
    first = known.get("words", first)
    if first and not second:
        return problem  # the type is right, so that what is wrong with the value is known better
    if not first or second in first:
        return known
    return {**known, "words": f"{first} or {second.removeprefix('should be ')}"}


def _yaml_path(problem: Any, data: Any) -> tuple[Path, bool]:
    """The path in the document: parts of pydantic's that are no key or index (names of union branches) fall out."""
    loc: tuple[int | str, ...] = problem["loc"]
    path: list[str | int] = []
    for number, part in enumerate(loc):
        if _has(data, part):
            path.append(part)
            data = data[part]
        elif part == "[key]":
            return tuple(path), True
        elif number == len(loc) - 1 and problem["type"] == "missing":
            path.append(part)
    return tuple(path), False


def _code(kind: str) -> str:
    if kind == "extra_forbidden":
        return "unknown-key"
    if kind == "missing":
        return "missing-key"
    return "wrong-type" if kind.endswith("_type") else "wrong-value"


_ELSEWHERE: Final = {
    "loop": "forEach",
    "with_items": "forEach",
    "with_list": "forEach",
    "hosts": "runOn",
    "roles": "modules",
    "depends_on": "needs",
    "dependsOn": "needs",
    "no_log": "sensitive",
    "become_user": "become",
    "retries": "retry",
    "until": "retry",
    "register": "outputs",
    "module": "type",
    "args": "with",
    "cmd": "shell",
    "block": "steps",
}
"""Keys of other tools, and ours for the same."""


_NOT_OF_STEPS: Final = {
    "runOn": "it is a key of the task: all steps of a task run on its hosts",
    "hosts": 'it is "runOn" of the task: all steps of a task run on its hosts',
    "notify": "steps of tasks and handlers notify; hooks do not",
    "block": 'a group has its steps under "steps", and "rescue" and "always" beside it',
    "flush": "handlers are flushed among the steps of a task, not in a group or a hook",
}
"""Keys that other tools have on steps, or tasks here, and where they belong."""
_OF_TASKS: Final = {
    "hostHooks": "it is a key of tasks",
    "batchHooks": 'it is "hooks" of the "batch" of a task',
}
"""Keys that tasks have, or could have."""
_STAND_FOR: Final = {"block": ("steps", "type"), "flush": ("name", "type")}
"""Keys that make others needless which are missing then."""


def _called_here(key: str, keys: Sequence[str]) -> str:
    name = _ELSEWHERE.get(key)
    if name in keys:
        return f'here it is "{name}"'
    if key in ("pre", "post", "onFailure", "always") and "hooks" in keys:
        return 'it belongs under "hooks"'
    return _OF_TASKS.get(key) or (_NOT_OF_STEPS.get(key, "") if "forEach" in keys else "")


def _tell(
    model: type[BaseModel],
    problem: Any,
    data: Any,
    path: Path,
    on_key: bool,
    place: Place,
    diagnostics: Diagnostics,
    what: str,
) -> None:
    code = _code(problem["type"])
    here = place.child(*path)
    whole = what or _owner(place.source.documents[place.document], place.path, "the document")
    owner = _owner(data, path[:-1], whole)
    keys = sorted(keys_at(model, path[:-1], problem["loc"]))
    if code == "unknown-key":
        key = str(path[-1])
        shown = ", ".join(keys[:_MOST_KEYS]) + (", ..." if len(keys) > _MOST_KEYS else "")
        summary = f'{owner} has no key "{key}"' + (f"; it takes {shown}" if shown else "")
        diagnostics.error(code, summary, here.key(), hint=_called_here(key, keys) or did_you_mean(key, keys))
    elif code == "missing-key":
        where, hint = _place_of_mapping(place, path[:-1]), f'add "{path[-1]}"'
        diagnostics.error(code, f'{owner} needs the key "{path[-1]}"', where, hint=hint)
    elif on_key:
        message = wording({**problem, "input": path})
        diagnostics.error(code, f'{owner}: "{path[-1]}" cannot be a key here: {message}', here.key())
    else:
        subject = owner
        if path and isinstance(path[-1], str):
            subject = f'{owner}: "{path[-1]}"'
        elif path:
            named = _owner(data, path, whole)
            key = next((part for part in reversed(path) if isinstance(part, str)), "")
            subject = named if named != owner else f'{owner}: item {int(path[-1]) + 1} of "{key}"'
        where = here if path or not isinstance(problem["input"], Mapping) else _place_of_mapping(place, path)
        diagnostics.error(code, f"{subject}: {wording(problem)}", where, hint=_hint(problem))


def _place_of_mapping(place: Place, path: Path) -> Place:
    target = place.child(*path)
    return target.key() if target.path and isinstance(target.path[-1], str) else target


_WORDS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "dict_type": "should be a mapping",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "list_type": "should be a list",
    "model_type": "should be a mapping",
    "model_attributes_type": "should be a mapping",
    "string_too_short": "should not be empty",
    "string_type": "should be a text",
    "too_short": "should not be empty",
}
_PATTERNS = {
    NAME_PATTERN: "a name has only letters, digits, _, . and -, and begins with a letter, a digit or _",
    IDENTIFIER_PATTERN: "a name has only letters, digits and _, and does not begin with a digit",
    "^[0-9a-fA-F]{64}$": "a sha256 has 64 hexadecimal digits",
}


def wording(problem: Any, *, values: bool = True) -> str:
    """What is wrong with a value, in our words instead of pydantic's; the value itself only if ``values``."""
    if problem["type"] == "extra_forbidden":
        return "there is no such key"
    if problem["type"] == "missing":
        return "it is missing"
    text: str = problem.get("words") or _WORDS.get(problem["type"], problem["msg"])
    for prefix in ("Value error, ", "Input "):
        text = text.removeprefix(prefix)
    if problem["type"] == "string_pattern_mismatch":
        pattern = problem["ctx"]["pattern"]
        text = _PATTERNS.get(pattern, f"should match {pattern}")
    value = problem["input"]
    if not values:
        return text
    if isinstance(value, str | int | float | bool) or value is None:
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
        if len(shown) <= 60 and shown not in text:
            text += f"; got {shown}"
    elif problem["type"].endswith("_type"):
        text += f"; got a {'mapping' if isinstance(value, Mapping) else 'list'}"
    return text


def _hint(problem: Any) -> str:
    value, expected = problem["input"], (problem.get("ctx") or {}).get("expected")
    if problem["type"] in ("literal_error", "enum") and isinstance(value, str) and expected:
        return did_you_mean(value, [word.strip("' ") for word in expected.replace(" or ", ",").split(",")])
    if problem["type"] == "string_type" and isinstance(value, bool | int | float):
        return f'put it in quotes: "{str(value).lower() if isinstance(value, bool) else value}"'
    return ""


def _owner(data: Any, path: Path, default: str) -> str:
    """How a person calls the thing at that path: the nearest step, task, module or host with its name."""
    label = default
    parent = ""
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(part, int) and parent in _COLLECTIONS and isinstance(data, Mapping):
            name = data.get("name")
            label = (
                f'{_COLLECTIONS[parent]} "{name}"' if isinstance(name, str) else f"{_COLLECTIONS[parent]} {part + 1}"
            )
        elif isinstance(part, str) and parent == "params":
            label = f'parameter "{part}"'
        elif isinstance(part, str) and parent == "resources" and isinstance(data, Mapping):
            label = f'resource "{part}"'
        elif isinstance(part, str) and isinstance(data, Mapping) and part not in ("with", *_COLLECTIONS):
            label = f'"{part}" of {label}'
        parent = part if isinstance(part, str) else ""
    return label


def keys_at(model: type[BaseModel], path: Path, loc: Sequence[int | str] = ()) -> set[str]:
    """The keys that a mapping at that path of the model may have.

    ``loc``: pydantic's path to it, which names the shape of an entry that can have several.
    """
    models = [model]
    at = 0
    for part in path:
        at = loc.index(part, at) + 1 if part in loc[at:] else at
        following: list[type[BaseModel]] = []
        for candidate in models:
            if isinstance(part, str):
                for name, info in candidate.model_fields.items():
                    if (info.alias or name) == part:
                        following.extend(models_in(info.annotation))
                        for extra in info.metadata:
                            following.extend(models_in(getattr(extra, "json_schema_input_type", None)))
        # An index, or a key of a free mapping: still inside the same field.
        following = following or models
        # The shape is named behind the number of the entry; entries inside it have their own.
        models = [each for each in following if getattr(each, "shape", None) in loc[at : at + 1]] or following
    return {info.alias or name for candidate in models for name, info in candidate.model_fields.items()}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a field can hold, whose own fields may be looked at."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        # One that can hold itself knows the types of its fields only then; to build it for every run takes long.
        annotation.model_rebuild()
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]
