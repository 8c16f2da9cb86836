"""What all documents share: naming rules, the base model, parameters, selectors and small policies."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from kubexm_spec.duration import Duration
from kubexm_spec.hostnames import is_user
from kubexm_spec.regex import RegexError, regex

API_VERSION = "kubexm.io/v1"

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
IDENTIFIER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=128)]
"""A name that becomes part of a node's id: letters, digits, ``_``, ``.`` and ``-``."""

Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER_PATTERN, max_length=128)]
"""A name that is used in expressions."""


def written_out(value: str) -> str:
    """The name of a user; raises ValueError."""
    if value.lower() in ("yes", "no", "on", "off", "true", "false"):
        raise ValueError("should be true or false, or the name of a user")
    if not is_user(value):
        raise ValueError("should be the name of a user, written out")
    return value


UserName = Annotated[str, AfterValidator(written_out)]
"""A user of a host."""


def no_items() -> list[Any]:
    """A new empty list: pydantic inspects factories, and the signature of ``list`` is slow to read."""
    return []


class Model(BaseModel):
    """Base of everything in a document: camelCase keys, unknown keys refused, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=False, extra="forbid", frozen=True, strict=False, defer_build=True
    )


def _budget(value: Any) -> Any:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"([0-9]{1,9})(%?)", text)
    if match is None or (match[2] and int(match[1]) > 100):
        raise ValueError("should be a number of hosts, or a percentage such as 20%")
    return text


_NUMBER_OR_PERCENT: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d+%?$"}]
}

Budget = Annotated[
    str,
    BeforeValidator(_budget, json_schema_input_type=int | str),
    Field(json_schema_extra=_NUMBER_OR_PERCENT),
]
"""How many failed hosts are tolerated: a number or a percentage."""


def _batch_size(value: Any) -> Any:
    text: str = _budget(value)
    if int(text.rstrip("%")) == 0:
        raise ValueError("a batch has at least one host")
    return text


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _conditions(value: Any) -> Any:
    return [value] if isinstance(value, str | bool) else value


def _scalar_text(value: Any) -> Any:
    """YAML turns ``zone: 1`` and ``ready: true`` into other types; a label is always text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Strings = Annotated[list[str], BeforeValidator(_one_or_many, json_schema_input_type=list[str] | str)]
"""A list of strings, or a single string."""

Labels = dict[str, Annotated[str, BeforeValidator(_scalar_text, json_schema_input_type=str | int | float | bool)]]

Environment = dict[
    Identifier,
    Annotated[str | None, BeforeValidator(_scalar_text, json_schema_input_type=str | int | float | bool | None)],
]
"""Environment variables of commands by name; null takes one away that is set further out."""

Condition = str | bool
"""A bare expression such as ``facts.os.family == 'debian'``, or true or false."""
Conditions = Annotated[
    list[Condition], BeforeValidator(_conditions, json_schema_input_type=list[Condition] | Condition)
]
"""Conditions that must all hold, or a single one."""


class Metadata(Model):
    """Name and description of a document."""

    name: Name = Field(description="Name of the document. The runs of a pipeline have its name.")
    description: str = Field(default="", description="Purpose, in a sentence or two.")
    labels: Labels = Field(default_factory=dict, description="Labels for people and tools; the engine ignores them.")
    annotations: Labels = Field(default_factory=dict, description="Free notes for tools.")


class ParamType(StrEnum):
    """The type of a parameter."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"
    SECRET = "secret"


class ParamSpec(Model):
    """A typed input of a pipeline, module or task."""

    type: ParamType = Field(
        default=ParamType.STRING, description="Type of the value; `secret` takes a reference such as `env:NAME`."
    )
    default: Any = Field(default=None, description="Value to use if none is given.")
    enum: list[Any] | None = Field(default=None, description="Allowed values.")
    pattern: str | None = Field(default=None, description="Regular expression (RE2) that the whole string must match.")
    description: str = Field(default="", description="Meaning, for people.")
    required: bool | None = Field(
        default=None, description="Whether a value must be given; by default, true if there is no default."
    )

    @property
    def is_required(self) -> bool:
        """Whether a value must come from outside."""
        return "default" not in self.model_fields_set if self.required is None else self.required

    @model_validator(mode="after")
    def _pattern_compiles(self) -> Self:
        if self.pattern is not None:
            if self.type not in (ParamType.STRING, ParamType.SECRET):
                raise ValueError(f"pattern is for strings, not for {self.type.value}")
            try:
                regex(self.pattern)
            except RegexError as error:
                raise ValueError(f"pattern is not a regular expression: {error}") from None
        return self


def _run_on(value: Any) -> Any:
    if value == "all":
        return {"all": True}
    if isinstance(value, str):
        return {"hosts": [value]}
    if isinstance(value, list):
        listed = ", ".join(map(str, value))
        raise ValueError(f"should be a mapping, not a list; write {{roles: [{listed}]}} or {{hosts: [{listed}]}}")
    return value


class SelectorSpec(Model):
    """Selects hosts that match every key, and at least one value of each key."""

    all: bool = Field(default=False, description="All hosts of the inventory.")
    roles: Strings = Field(default_factory=no_items, description="Hosts with one of these roles.")
    groups: Strings = Field(default_factory=no_items, description="Hosts in one of these groups.")
    hosts: Strings = Field(
        default_factory=no_items,
        description="Host names, ranges or globs such as `node*`; `control-node` is this machine.",
    )
    labels: Labels = Field(default_factory=dict, description="Hosts with all these labels.")
    exclude: Strings = Field(default_factory=no_items, description="Host names, ranges or globs to exclude.")


class RunOnSpec(SelectorSpec):
    """Selects hosts that match every key, and at least one value of each key."""

    run_once: bool = Field(default=False, description="Only the first of these hosts that is still in the run.")
    required: bool = Field(default=False, description="Selecting no host is an error, not a warning.")


RunOn = Annotated[RunOnSpec, BeforeValidator(_run_on, json_schema_input_type=RunOnSpec | str)]


class DelegateToSpec(SelectorSpec):
    """Selects the places where a step works for its hosts; expressions are evaluated for each host."""

    one: bool = Field(
        default=False,
        description="Only one of these places for each host: the first that is still in the run and can be reached.",
    )


DelegateTo = Annotated[DelegateToSpec, BeforeValidator(_run_on, json_schema_input_type=DelegateToSpec | str)]


_Retried = Literal["failed", "timedOut", "unreachable", "errored"]


def _retried() -> list[_Retried]:
    """Not a plain default, which would be copied deeply for each step: a tenth of the time to check a spec."""
    return ["failed", "timedOut", "unreachable"]


class RetrySpec(Model):
    """When and how a failed action is retried."""

    attempts: int = Field(default=3, ge=1, le=1000, description="Total number of attempts.")
    delay: Duration = Field(default=1.0, description="Pause before the second attempt.")
    backoff: Literal["constant", "linear", "exponential"] = Field(
        default="constant", description="How the pause increases."
    )
    max_delay: Duration | None = Field(default=None, description="Maximum pause.")
    on: list[_Retried] = Field(
        default_factory=_retried,
        json_schema_extra={"default": list(_retried())},
        description="Kinds of failure to retry.",
    )


class StepRetrySpec(RetrySpec):
    """When and how an action of this step is retried."""

    until: Condition | None = Field(
        default=None,
        description="Expression over `result` (the step's own outputs): the attempt is repeated until it holds, "
        "whatever `on` says; if it does not by the last attempt, the action has failed.",
    )


def _retry(value: Any) -> Any:
    return {"attempts": value} if isinstance(value, int) and not isinstance(value, bool) else value


Retry = Annotated[RetrySpec, BeforeValidator(_retry, json_schema_input_type=RetrySpec | int)]
StepRetry = Annotated[StepRetrySpec, BeforeValidator(_retry, json_schema_input_type=StepRetrySpec | int)]


class ResourcesSpec(Model):
    """Limits on concurrent actions."""

    global_limit: int | None = Field(
        default=None, ge=1, description="Maximum number of hosts that run the step at once."
    )
    per_host_limit: int | None = Field(
        default=None, ge=1, description="Maximum number of actions of the step at once on one host."
    )
    locks: Strings = Field(
        default_factory=no_items,
        description="Named locks to hold while it runs; the pipeline's `locks` sets their counts.",
    )


def _for_each(value: Any) -> Any:
    return {"items": value} if isinstance(value, list | str) else value


class ForEachSpec(Model):
    """A loop: one node per item, or per combination of a matrix."""

    items: list[Any] | str | None = Field(
        default=None,
        description="The items, or an expression for them; outputs of steps and facts are known only during the run.",
    )
    matrix: dict[Identifier, list[Any] | str] | None = Field(
        default=None, description="Lists to combine; `item` is then a mapping."
    )
    key: str | None = Field(default=None, description="Expression over `item` for the key in the node id.")
    parallel: bool = Field(default=False, description="Items can run concurrently on a host (within perHostLimit).")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.items is None) == (self.matrix is None):
            raise ValueError("exactly one of items and matrix")
        return self


ForEach = Annotated[ForEachSpec, BeforeValidator(_for_each, json_schema_input_type=ForEachSpec | list[Any] | str)]


def batch_form(value: Any) -> Any:
    """The long form of a batch."""
    return value if isinstance(value, dict) else {"size": value}


BatchSize = Annotated[
    str, BeforeValidator(_batch_size, json_schema_input_type=int | str), Field(json_schema_extra=_NUMBER_OR_PERCENT)
]
"""How many hosts are worked on at once: a number or a percentage."""


def _batch_sizes(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class BatchBody(Model):
    """Rolls a task over its hosts: each batch goes through all steps before the next one."""

    size: Annotated[
        list[BatchSize],
        BeforeValidator(_batch_sizes, json_schema_input_type=BatchSize | list[BatchSize]),
        Field(min_length=1),
    ] = Field(
        description="Hosts in a batch: a number or a percentage; or a list of them, one for each batch, of which the "
        "last is that of all further batches."
    )
    pause: Duration = Field(default=0.0, description="Pause between two batches.")
    max_failures: Budget | None = Field(
        default=None,
        description="Stop before the next batch if more hosts have failed; by default the task's maxFailures. It is "
        "also the default of maxFailures for its steps.",
    )


def _vars_file(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class VarsFileSpec(Model):
    """Files with variables: the same for all hosts, or by host, role or group."""

    path: str = Field(
        min_length=1,
        description="Path or glob, relative to this file. Expressions can use `host`, `role`, `group` and `params`: "
        "with `role` there is a file for each role of a host, with `group` for each of its groups.",
    )
    optional: bool = Field(default=False, description="Whether there may be no such file.")


VarsFile = Annotated[VarsFileSpec, BeforeValidator(_vars_file, json_schema_input_type=VarsFileSpec | str)]
