"""Parameters that the steps for users, groups, keys and cron share: names of accounts, as hosts take them."""

from __future__ import annotations

from typing import Annotated

from kubexm_steps.lib.types import ONE_OR_MANY, shaped

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


def unique(names: list[str]) -> tuple[str, ...]:
    """The names sorted, each once."""
    return tuple(sorted(set(names)))
