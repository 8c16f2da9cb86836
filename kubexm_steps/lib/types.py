"""Parameters that several step types share: paths, modes, owners, texts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from kubexm_exec.step import Inspected, Params, StepContext

_MODE: Final = re.compile(r"(?:0o|0)?([0-7]{3,4})")


def shaped(pattern: str, wanted: str) -> AfterValidator:
    """The check that a text matches as a whole; ``wanted`` is what it is not if it does not."""
    expression = re.compile(pattern)

    def check(text: str) -> str:
        if expression.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not {wanted}")
        return text

    return AfterValidator(check)


def refuse(params: Params, names: Iterable[str], with_: str) -> None:
    """Raise ValueError if any of these parameters is set to something, although it means nothing ``with_`` that."""
    fields = type(params).model_fields
    unset = {name: fields[name].get_default(call_default_factory=True, validated_data={}) for name in names}
    if given := [fields[name].alias or name for name, value in unset.items() if getattr(params, name) != value]:
        raise ValueError(f"{' and '.join(given)} cannot be used with {with_}")


def parse_mode(value: Any) -> int:
    """A mode as people write it: ``"0644"``, ``"640"``, or YAML's own octal ``0o644``.

    A plain number is refused where it could be a ``0644`` that YAML read as decimal, because it would silently be
    another mode.
    """
    if isinstance(value, str):
        found = _MODE.fullmatch(value.strip())
        if found is None:
            raise ValueError(f'{value!r} is not a mode; write three or four octal digits in quotes, such as "0644"')
        return int(found[1], 8)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f'a mode is a string such as "0644", not {type(value).__name__}')
    if _could_be_meant_as_octal(value) or not 0 <= value <= 0o7777 or not _is_sensible(value):
        raise ValueError(f'the number {value} is ambiguous as a mode; write it in quotes, such as "0644"')
    return value


def _could_be_meant_as_octal(number: int) -> bool:
    digits = str(number)
    return len(digits) <= 4 and set(digits) <= set("01234567") and _is_sensible(int(digits, 8))


def _is_sensible(mode: int) -> bool:
    """Whether the group may do no more than the owner, and others no more than the group, as in almost every mode."""
    owner, group, others = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    return group & ~owner == 0 and others & ~group == 0 and owner & 4 != 0


def show_owner(owner: object, group: object) -> str:
    """Owner and group as ``chown`` takes them: ``etcd:etcd``, ``etcd`` or ``:etcd``."""
    return f"{owner or ''}:{group}" if group else str(owner or "")


def show_mode(mode: int) -> str:
    """A mode for people: ``0644``."""
    return f"{mode:04o}"


def unique(names: list[str]) -> tuple[str, ...]:
    """The names sorted, each once."""
    return tuple(sorted(set(names)))


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f'{path!r} is not an absolute path: a path on a host starts with "/"')
    if "\0" in path:
        raise ValueError("a path cannot contain a NUL character")
    return path.rstrip("/") or "/"


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _digits(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _setting(value: Any) -> Any:
    return str(int(value)) if isinstance(value, bool) else _text(value)


def unbroken(text: str) -> str:
    """The text, if it is one line; ValueError, which does not repeat it, if not."""
    if any(char in text for char in "\n\r\0"):
        raise ValueError("it must be one line")
    return text


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


ONE_OR_MANY: Final = BeforeValidator(_one_or_many, json_schema_input_type=str | list[str])
"""A list of texts; a single one needs no list."""

DIGITS: Final = BeforeValidator(_digits, json_schema_input_type=str | int)
"""A text; a number is taken as its digits."""

HostPath = Annotated[str, AfterValidator(_absolute)]
"""An absolute path on the host."""

InspectedPath = Annotated[HostPath, Inspected()]
"""One that precheck looks at: what was just seen for another step need not be asked for again."""

Mode = Annotated[
    int,
    BeforeValidator(parse_mode),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": "^(0o|0)?[0-7]{3,4}$"}, {"type": "integer"}],
            "description": 'Permissions in octal, in quotes: "0644".',
            "examples": ["0644", "0700"],
        }
    ),
]
"""Permissions; see ``parse_mode``."""

Account = Annotated[str, shaped(r"[^-:/\0\n][^:/\0\n]*", "the name or number of a user or group"), DIGITS]
"""A user or a group, by name or by number."""

AccountName = Annotated[
    str,
    shaped(
        r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?",
        "a name for a user or group: at most 32 letters, digits, `_`, `-` and `.`, and no digit or `-` first",
    ),
]
"""The name of a user or a group that may have to be made."""

AccountNames = Annotated[list[AccountName], ONE_OR_MANY]
"""Names of users or groups; a single one needs no list."""

Text = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | int | float)]
"""Text; a number that an expression gave is taken as its digits."""

Line = Annotated[Text, AfterValidator(unbroken), AfterValidator(_said)]
"""A line that says something."""

Setting = Annotated[
    str, BeforeValidator(_setting, json_schema_input_type=str | bool | int | float), AfterValidator(unbroken)
]
"""The value of a setting in a file of the host, where true and false are 1 and 0."""


def _arguments(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError('it is a list of arguments, not a line of shell, such as ["sshd", "-t", "-f", "%s"]')
    return value


def _with_a_place(words: list[str]) -> list[str]:
    if not words or not words[0]:
        raise ValueError("the command is empty")
    if not any("%s" in word for word in words):
        raise ValueError("`%s` must stand in the command where the path of the new content belongs")
    if any("\0" in word for word in words):
        raise ValueError("an argument cannot contain a NUL character")
    return words


Validation = Annotated[
    list[Text], BeforeValidator(_arguments, json_schema_input_type=list[str]), AfterValidator(_with_a_place)
]
"""A command that judges the content of a file, which is at ``%s``."""

Variable = Annotated[str, shaped(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a variable")]
"""The name of an environment variable."""


class FollowParams(Params):
    """The parameters of everything that works at a path which the spec names."""

    follow: bool = Field(
        False,
        description="Follow links in the path even where other users can write. By default, a link in a folder that "
        "anyone but root and the step's own user can write is a failure: it could lead anywhere.",
    )


F = TypeVar("F", bound=FollowParams)


def located(ctx: StepContext, params: F, *, last: bool = False) -> F:
    """The parameters, with `follow: true` those of the path that links lead to; ``last``: also a link at its end."""
    path: str = getattr(params, "path")  # noqa: B009  each of them has one, and says more about it
    if not params.follow:
        return params
    folder, name = posixpath.split(path)
    real = ctx.runner.follow(path) if last else posixpath.join(ctx.runner.follow(folder), name)
    return params.model_copy(update={"path": real})


class OwnedParams(FollowParams):
    """The parameters of everything that has permissions and an owner."""

    mode: Mode | None = Field(
        None,
        description='Mode as an octal string such as `"0644"`. By default an existing mode is kept.',
    )
    owner: Account | None = Field(None, description="Owner, by name or id. By default not changed.")
    group: Account | None = Field(None, description="Group, by name or id. By default not changed.")


class OneFileParams(OwnedParams):
    """The parameters of every step that writes one file."""

    path: InspectedPath = Field(description="The file on the host, as an absolute path.")
    create_parents: bool = Field(
        False, description="Create missing parent folders (0755, owned by the user that kubexm works as)."
    )


class NewContentParams(OneFileParams):
    """The parameters of every step that gives one file new content: it can be judged before, and the old one kept."""

    # `validate` is a method of every model.
    validate_: Validation | None = Field(
        None,
        alias="validate",
        description="Command that must accept the new content before the file is replaced, as a list of arguments; "
        "`%s` in it is the path of the new content. An exit code other than 0 is a failure, and the file stays as it "
        'is. Such as `["sshd", "-t", "-f", "%s"]`.',
    )
    backup: bool = Field(
        False,
        description="Keep the old content of a file that is replaced or removed, beside it as `NAME.TIME.RANDOM~`; "
        "kubexm never removes such files, except for an undo.",
    )


class WholeFileParams(NewContentParams):
    """The parameters of every step that knows the whole content of a file."""

    create_only: bool = Field(
        False, description="Leave an existing file or link as it is, whatever its content, mode and owner."
    )

    @model_validator(mode="after")
    def _backup_makes_sense(self) -> Self:
        if self.create_only:
            refuse(self, ["backup"], "`createOnly`, which replaces nothing")
        return self
