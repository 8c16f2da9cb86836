"""Parameters that the steps for users, groups, keys and cron share: names of accounts, as hosts take them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}\$?")


def _account_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a name for a user or group: at most 32 letters, digits, `_`, `-` and `.`, "
            "and no digit or `-` first"
        )
    return name


def one_or_many(value: Any) -> Any:
    """A list; a single text is a list of one."""
    return [value] if isinstance(value, str) else value


AccountName = Annotated[str, AfterValidator(_account_name)]
"""The name of a user or a group that may have to be made."""

AccountNames = Annotated[list[AccountName], BeforeValidator(one_or_many, json_schema_input_type=str | list[str])]
"""Names of users or groups; a single one needs no list."""


def unique(names: list[str]) -> tuple[str, ...]:
    """The names sorted, each once."""
    return tuple(sorted(set(names)))
