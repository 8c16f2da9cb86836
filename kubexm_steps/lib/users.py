"""The parameters and outputs of ``user``, and how its password comes from a secret."""

from __future__ import annotations

import datetime
import hashlib
import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kubexm_exec.step import Expression, Outputs, Params, StepContext, StepFailed
from kubexm_steps.lib.accounts import AccountName, AccountNames
from kubexm_steps.lib.types import Account, HostPath, Text

_HASH: Final = re.compile(r"[!]?\$[0-9a-z]+\$[A-Za-z0-9./$=,+-]+|[!]?[A-Za-z0-9./]{13}")
_FROM_ELSEWHERE: Final = re.compile(r"\b(secret\s*\(|params\b|vars\b)")


def _one_cell(text: str) -> str:
    if any(char in text for char in ":\n\r\0"):
        raise ValueError("a colon or a line break cannot be in there: it is one cell of /etc/passwd")
    return text


def _day(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    if not isinstance(value, str) or value == "never":
        return value
    try:
        return datetime.date.fromisoformat(value.strip()).isoformat()
    except ValueError as error:
        raise ValueError(f"{value!r} is no day; write it as 2030-12-31, or `never`") from error


def _secret_only(text: str) -> str:
    if not _FROM_ELSEWHERE.search(text):
        raise ValueError(
            "the hash of a password is given as a secret, never as its value: secret('env:NAME'), or a parameter of "
            "type `secret`"
        )
    return text


Cell = Annotated[Text, AfterValidator(_one_cell)]


class UserParams(Params):
    """Parameters of ``user``."""

    name: AccountName = Field(description="Name of the user.")
    uid: int | None = Field(None, ge=0, le=2**32 - 2, description="User id; by default the next free one.")
    group: Account | None = Field(
        None, description="Primary group, by name or id. By default usually a new group with its own name."
    )  # fmt: skip
    groups: AccountNames | None = Field(None, description="Other groups. By default not changed.")
    append_groups: bool = Field(False, description="Keep it in other groups. By default it is removed from them.")
    home: Annotated[HostPath, AfterValidator(_one_cell)] | None = Field(
        None, description="Home folder. By default a new user gets the host's default, usually /home/NAME."
    )
    create_home: bool | None = Field(
        None,
        description="Create the home folder if it is missing. By default for a new user that is not a system user.",
    )
    shell: Annotated[HostPath, AfterValidator(_one_cell)] | None = Field(
        None, description="Login shell, such as `/bin/bash`, or `/usr/sbin/nologin` to prevent logins."
    )
    comment: Cell | None = Field(None, description="Full name or purpose.")
    system: bool = Field(
        False, description="A new user is a service account: its id is in the system range, and it gets no home."
    )
    password_hash: Annotated[str, Expression(), AfterValidator(_secret_only)] | None = Field(
        None, description="Expression for the hash of its password (as in /etc/shadow) from a secret."
    )
    locked: bool | None = Field(None, description="Whether its password is locked. Keys still work.")
    expires: Annotated[str, BeforeValidator(_day)] | None = Field(
        None, description="First day on which logins are refused, such as `2030-12-31`; or `never`."
    )
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the user.")
    remove_home: bool = Field(False, description="With `state: absent`: also remove its home folder and mail.")

    @model_validator(mode="after")
    def _fits_its_state(self) -> UserParams:
        if self.state == "absent":
            said = self.model_fields_set - {"name", "state", "remove_home"}
            if said:
                names = ", ".join(sorted(type(self).model_fields[name].alias or name for name in said))
                raise ValueError(f"a user that is to be absent has no {names}")
        elif self.remove_home:
            raise ValueError("removeHome goes with `state: absent`")
        if self.append_groups and self.groups is None:
            raise ValueError("appendGroups goes with `groups`")
        return self


class UserOutputs(Outputs):
    """What later steps can know of the user."""

    name: str = Field(description="Name of the user.")
    uid: int | None = Field(None, description="User id; null if it was removed.")
    gid: int | None = Field(None, description="Id of the primary group.")
    group: str = Field("", description="Name of the primary group.")
    home: str = Field("", description="Its home folder.")
    shell: str = Field("", description="Its shell.")


def password_hash(ctx: StepContext, params: UserParams) -> bytes:
    """The hash that the secret holds; anything else, such as the password itself, is refused and not repeated."""
    value = ctx.evaluate(params.password_hash or "")
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise StepFailed(
            f"user {params.name}: what passwordHash gives is no hash of a password",
            hint="it begins with something like $6$ or $y$; `openssl passwd -6` or `mkpasswd` makes one",
        )
    if not ctx.holds_secret(value):
        raise StepFailed(
            f"user {params.name}: passwordHash does not come from a secret, so it could not be masked",
            hint="use secret('env:NAME'), or a parameter of type `secret`",
        )
    return value.encode()


def same_hash(wanted: bytes, digest: str) -> bool:
    """Whether the hash is the one whose digest the host told; a mark that locks it does not count."""
    return hashlib.sha256(wanted.lstrip(b"!")).hexdigest() == digest
