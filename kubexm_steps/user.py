"""The step type ``user``: a user of the host, or none."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from kubexm_exec.step import Expression, Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.accounts import Accounts, User, UserChange
from kubexm_steps.lib.attributes import attribute_diff, changed, listed
from kubexm_steps.lib.files import KEEP_LIMIT
from kubexm_steps.lib.standing import BROKE_OFF, LookingStep, digest, is_digest, mapped, together
from kubexm_steps.lib.types import Account, AccountName, AccountNames, HostPath, Text, refuse, unique

_HASH: Final = re.compile(r"[!]?\$[0-9a-z]+\$[A-Za-z0-9./$=,+-]+|[!]?[A-Za-z0-9./]{13}")
_FROM_ELSEWHERE: Final = re.compile(r"\b(secret\s*\(|params\b|vars\b)")


def _one_cell(text: str) -> str:
    if any(char in text for char in ":\n\r\0"):
        raise ValueError("it cannot contain a colon or a line break: it is a field of /etc/passwd")
    return text


def _day(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    if not isinstance(value, str) or value == "never":
        return value
    try:
        return datetime.date.fromisoformat(value.strip()).isoformat()
    except ValueError as error:
        raise ValueError(f"{value!r} is not a date; write it as 2030-12-31, or `never`") from error


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

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            kept = ("name", "state", "remove_home")
            refuse(self, [name for name in type(self).model_fields if name not in kept], "`state: absent`")
        elif self.remove_home:
            raise ValueError("removeHome needs `state: absent`")
        if self.append_groups and self.groups is None:
            raise ValueError("appendGroups needs `groups`")


class UserOutputs(Outputs):
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
            f"user {params.name}: passwordHash is not the hash of a password",
            hint="a hash begins with something like $6$ or $y$; `openssl passwd -6` or `mkpasswd` creates one",
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


class Seen(NamedTuple):
    """The users and groups of the host, and the files of a user that is to be removed with them."""

    accounts: Accounts
    files: Sequence[str] = ()


class UserStep(LookingStep[UserParams, Seen]):
    """A user of the host with its groups, home, shell and password; or its absence.

    Only the given properties are changed; a new user gets the host's defaults for the others.
    The groups must exist: create them with `group` before.

    - `groups` are all groups of the user besides `group`; with `appendGroups: true` it stays in others too.
    - A password is given as a hash from a secret, and is sent over standard input only:
      `openssl passwd -6` creates one. `locked: true` locks the password, not the keys of the user: `expires` with a
      past date closes the account.
    - A home folder is created for new users other than `system` users, or as `createHome` says. Another `home` does not
      move files. Another `uid` also changes the owner of files in its home, but not elsewhere.
    - A user from a directory such as LDAP is accepted as it is; if it would have to change, that is a failure.
    - Undo restores what was changed. A new user is removed again; its home only if it contains nothing but the
      skeleton. A removed user is restored with its ids, groups and password, and with `removeHome` its home, up to 64
      MiB (packed).
    """

    outputs_model = UserOutputs
    example = """\
- name: deploy
  type: user
  with:
    name: deploy
    groups: [sudo]
    shell: /bin/bash
    passwordHash: secret('env:DEPLOY_PASSWORD_HASH')
"""

    def precheck(self, ctx: StepContext) -> Forecast[Seen]:
        params = self.params
        accounts = self._look(ctx)
        user = accounts.users.get(params.name)
        place = f"user {params.name}"
        if params.state == "absent":
            if user is None:
                return Forecast.satisfied(f"there is no {place}", self._outputs(None))
            _refuse_foreign(user)
            before = self._attributes(accounts, user)
            files = self._own_files(ctx, accounts, user) if params.remove_home else []
            if files:
                before["home folder"] = user.home
            shown = attribute_diff(ctx, place, before, None)
            return Forecast.change(f"would remove {place}", [shown], seen=Seen(accounts, files))
        if missing := self._missing(accounts):
            return Forecast.unknown(f"the group {missing[0]} does not exist yet", seen=Seen(accounts))
        digest = self._digest(ctx, accounts)
        if user is None:
            shown = attribute_diff(ctx, place, None, self._wanted(accounts, None, digest))
            return Forecast.change(f"would create {place}", [shown], seen=Seen(accounts))
        before, after = self._attributes(accounts, user), self._wanted(accounts, user, digest)
        if differs := changed(before, after):
            _refuse_foreign(user)
            shown = attribute_diff(ctx, place, before, after)
            return Forecast.change(f"would change {place} ({', '.join(differs)})", [shown], seen=Seen(accounts))
        return Forecast.satisfied(f"{place} is as it should be", self._outputs(accounts))

    def run(self, ctx: StepContext, forecast: Forecast[Seen]) -> Result:
        params, (accounts, files) = self.params, forecast.seen
        user = accounts.users.get(params.name)
        if params.state == "absent" and user is not None:
            return self._remove(ctx, accounts, user, files)
        if missing := self._missing(accounts):
            raise StepFailed(
                f"user {params.name}: there is no group {missing[0]}", hint="create it first with a `group` step"
            )
        digest = self._digest(ctx, accounts)
        if user is None:
            undo = self._create(ctx, accounts)
            after = self._look(ctx)
            ctx.save_undo({**undo, "left": self._left(ctx, after)})
            return Result(message=f"created user {params.name}", outputs=self._outputs(after))
        differs = changed(self._attributes(accounts, user), self._wanted(accounts, user, digest))
        undo = self._change(ctx, accounts, user, differs)
        after = self._look(ctx)
        ctx.save_undo({**undo, "left": self._left(ctx, after)})
        return Result(message=f"changed user {params.name} ({', '.join(differs)})", outputs=self._outputs(after))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        accounts = ctx.runner.users.look(self.params.name)
        user = accounts.users.get(self.params.name)
        noun, did, left = f"user {self.params.name}", undo["did"], undo.get("left")
        if user is None:
            return Standing(before=did == "create") if did != "change" else Standing(changed=(f"{noun} (it is gone)",))
        now = self._fields(accounts, user)
        before = {} if did == "create" else {name: undo[name] for name in now if undo[name] is not None}
        if did == "remove":
            # It was created again: by somebody else, or by an undo that was interrupted.
            found = mapped(before, before, now, noun + " ({})")
            return replace(found, before=False)
        if left is None:
            return Standing(unknown=BROKE_OFF)
        password = left.get("password")
        found = mapped(before, {name: left[name] for name in now if left[name] is not None}, now, noun + " ({})")
        if password is not None and accounts.shadow and not is_digest(password, _password(accounts)):
            other = undo.get("passwordBefore")
            if other is None or not is_digest(other, _password(accounts)):
                found = together(found, Standing(changed=(f"{noun} (password)",)))
        return replace(found, before=False) if did == "create" or undo.get("passwordBefore") else found

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        accounts = ctx.runner.users.look(self.params.name)
        user = accounts.users.get(self.params.name)
        if undo["did"] == "create":
            self._unmake(ctx, accounts, user, undo)
        elif undo["did"] == "remove":
            self._bring_back(ctx, accounts, user, undo)
        elif user is not None:
            self._put_back(ctx, accounts, user, undo)

    # what is, and what should be

    def _look(self, ctx: StepContext) -> Accounts:
        params = self.params
        groups = [*([params.group] if params.group else []), *(params.groups or [])]
        return ctx.runner.users.look(params.name, home=params.home or "", groups=groups)

    def _missing(self, accounts: Accounts) -> list[str]:
        wanted = [*([self.params.group] if self.params.group else []), *(self.params.groups or [])]
        return [name for name in wanted if accounts.find_group(name) is None]

    def _digest(self, ctx: StepContext, accounts: Accounts) -> str:
        """What is to be known about the wanted password: whether it is set; the hash itself stays a secret."""
        params = self.params
        user = accounts.users.get(params.name)
        about_shadow = params.password_hash is not None or params.locked is not None or params.expires is not None
        if about_shadow and not accounts.shadow and (user is None or user.local):
            raise StepFailed(
                f"user {params.name}: the passwords of this host cannot be read",
                hint="only root can read /etc/shadow: set `become: true` for the host",
            )
        if params.locked is False and params.password_hash is None and not accounts.password:
            raise StepFailed(
                f"unlock user {params.name}: it has no password to unlock",
                hint="anyone could log in without one: set `passwordHash` too",
            )
        if params.password_hash is None:
            return ""
        return "as it is" if same_hash(password_hash(ctx, params), accounts.password) else "other"

    def _attributes(self, accounts: Accounts, user: User) -> dict[str, str]:
        known = {
            "uid": str(user.uid),
            "group": accounts.group_name(user.gid),
            "groups": listed(accounts.groups_of(user.name)),
            "home": user.home,
            "shell": user.shell,
            "comment": user.comment,
        }
        if accounts.shadow:
            known |= {
                "expires": accounts.expires or "never",
                "password": "set" if accounts.password else "none",
                "locked": "yes" if accounts.locked else "no",
            }
        return known

    def _wanted(self, accounts: Accounts, user: User | None, password: str) -> dict[str, str]:
        params = self.params
        wanted = {} if user is None else self._attributes(accounts, user)
        group = None if params.group is None else accounts.find_group(params.group)
        given = {
            "uid": None if params.uid is None else str(params.uid),
            "group": None if group is None else group.name,
            "groups": None if params.groups is None else listed(self._groups(accounts)),
            "home": params.home,
            "shell": params.shell,
            "comment": params.comment,
            "expires": params.expires,
            "password": {"as it is": "set", "other": "another, hidden" if accounts.password else "set"}.get(password),
            "locked": None if params.locked is None else "yes" if params.locked else "no",
        }
        wanted |= {name: value for name, value in given.items() if value is not None}
        if self._makes_home(accounts, user):
            wanted["home folder"] = f"{accounts.home} (created)"
        if password == "other" and params.locked is None and not _locks_a_password(accounts):
            wanted["locked"] = "no"
        return wanted

    def _groups(self, accounts: Accounts) -> tuple[str, ...]:
        found = [accounts.find_group(name) for name in self.params.groups or []]
        wanted = [group.name for group in found if group is not None]
        if self.params.append_groups:
            wanted += accounts.groups_of(self.params.name)
        return unique(wanted)

    def _makes_home(self, accounts: Accounts, user: User | None) -> bool:
        wanted = self.params.create_home
        if wanted is None:
            wanted = user is None and not self.params.system
        return wanted and not accounts.home_exists

    def _outputs(self, accounts: Accounts | None) -> dict[str, Any]:
        user = None if accounts is None else accounts.users.get(self.params.name)
        if accounts is None or user is None:
            return {"name": self.params.name, "uid": None, "gid": None, "group": "", "home": "", "shell": ""}
        return {
            "name": user.name,
            "uid": user.uid,
            "gid": user.gid,
            "group": accounts.group_name(user.gid),
            "home": user.home,
            "shell": user.shell,
        }

    # changes

    def _create(self, ctx: StepContext, accounts: Accounts) -> dict[str, Any]:
        params = self.params
        own = accounts.groups.get(params.name)
        undo = {"did": "create", "homeWasThere": accounts.home_exists, "ownGid": None if own is None else own.gid}
        ctx.save_undo(undo)
        change = UserChange(
            uid=params.uid,
            # A group of that name is there already: it is the user's own one, as it would be if it were made now.
            group=params.group or (None if own is None else own.name),
            groups=self._groups(accounts) if params.groups else None,
            home=params.home,
            shell=params.shell,
            comment=params.comment,
            expires=None if params.expires in (None, "never") else params.expires,
            system=params.system,
            create_home=not params.system if params.create_home is None else params.create_home,
        )
        ctx.runner.users.add(accounts, params.name, change)
        if params.password_hash is not None:
            ctx.runner.users.set_password(params.name, password_hash(ctx, params), params.locked)
        return undo

    def _change(self, ctx: StepContext, accounts: Accounts, user: User, differs: list[str]) -> dict[str, Any]:
        params = self.params
        users = ctx.runner.users
        secret = {"password", "locked"} & set(differs)
        undo = {
            "did": "change",
            **self._record(ctx, accounts, user, secret=bool(secret)),
            "madeHome": accounts.home if "home folder" in differs else "",
        }
        if secret and accounts.shadow:
            undo["passwordBefore"] = digest(ctx, _password(accounts), secret=True)
        ctx.save_undo(undo)
        given = {name: getattr(params, name) for name in ("uid", "group", "home", "shell", "comment")}
        given |= {"groups": self._groups(accounts), "expires": (params.expires or "").replace("never", "")}
        change = UserChange(**{name: value for name, value in given.items() if name in differs})
        users.change(accounts, user.name, change)
        if "password" in differs:
            lock = params.locked if params.locked is not None else _locks_a_password(accounts) or None
            users.set_password(user.name, password_hash(ctx, params), lock)
        elif "locked" in differs:
            users.set_password(user.name, None, params.locked)
        if "home folder" in differs:
            group = None if params.group is None else accounts.find_group(params.group)
            uid = user.uid if params.uid is None else params.uid
            users.make_home(accounts.home, uid, user.gid if group is None else group.gid)
        return undo

    def _remove(self, ctx: StepContext, accounts: Accounts, user: User, files: Sequence[str]) -> Result:
        undo = {"did": "remove", **self._record(ctx, accounts, user, secret=True), "packed": ""}
        group = next((group for group in accounts.groups.values() if group.gid == user.gid), None)
        undo["ownGroup"] = group.name if group is not None else ""
        packed = ctx.runner.users.pack(files, KEEP_LIMIT) if files else b""
        if packed is None:
            ctx.log.warning("cannot be undone: the home folder is too large to be kept", limit=KEEP_LIMIT)
        else:
            ctx.save_undo(undo | ({"packed": ctx.keep(packed)} if packed else {}))
        ctx.runner.users.remove(accounts, user.name)
        if files:
            ctx.runner.users.remove_files(files)
        return Result(message=f"removed user {user.name}", outputs=self._outputs(None))

    def _own_files(self, ctx: StepContext, accounts: Accounts, user: User) -> list[str]:
        """The home and the mail of a user that is to be removed; a folder that others need too is refused."""
        if not accounts.home_exists:
            return []
        home = user.home.rstrip("/")
        others = [
            one.name for one in accounts.users.values() if one != user and (one.home + "/").startswith(home + "/")
        ]
        state, mail = ctx.runner.inspect_all([home or "/", f"/var/mail/{user.name}"], digest=False)
        if home.count("/") < 2 or others or state.uid != user.uid:
            why = f"it is the home of {listed(others)} too" if others else "it does not belong to the user alone"
            raise StepFailed(
                f"remove {user.home or '/'}, the home of user {user.name}: {why}",
                hint="remove `removeHome`, and remove files with a `directory` step",
            )
        return [home, *([mail.path] if mail.kind == "file" and mail.uid == user.uid else [])]

    # undo

    def _fields(self, accounts: Accounts, user: User) -> dict[str, Any]:
        """A user as an undo compares it, without the password."""
        return {
            "uid": user.uid,
            "gid": user.gid,
            "groups": list(accounts.groups_of(user.name)),
            "home": user.home,
            "shell": user.shell,
            "comment": user.comment,
            "expires": accounts.expires if accounts.shadow else None,
        }

    def _left(self, ctx: StepContext, accounts: Accounts) -> dict[str, Any]:
        fields = self._fields(accounts, accounts.users[self.params.name])
        password = digest(ctx, _password(accounts), secret=True) if accounts.shadow else None
        return {**fields, "password": password}

    def _record(self, ctx: StepContext, accounts: Accounts, user: User, *, secret: bool) -> dict[str, Any]:
        return {
            **self._fields(accounts, user),
            "password": ctx.keep(ctx.runner.users.password_field(user.name)) if secret and accounts.shadow else None,
        }

    def _unmake(self, ctx: StepContext, accounts: Accounts, user: User | None, undo: Mapping[str, Any]) -> None:
        if user is None:
            return
        users = ctx.runner.users
        users.remove(accounts, user.name)
        # The group of that name mostly goes with the user, also where it was there before.
        left = users.look()
        group = left.groups.get(user.name)
        if group is None and undo["ownGid"] is not None:
            users.add_group(left, user.name, undo["ownGid"])
        elif group is not None and undo["ownGid"] is None and not group.members and not left.first_group_of(group):
            users.remove_group(left, user.name)
        if not undo["homeWasThere"] and accounts.home_exists and not users.unmake_home(user.home):
            ctx.log.warning("the home folder is kept: it contains more than the skeleton", home=user.home)

    def _put_back(self, ctx: StepContext, accounts: Accounts, user: User, undo: Mapping[str, Any]) -> None:
        users = ctx.runner.users
        now = {**self._fields(accounts, user), "expires": accounts.expires}
        users.change(accounts, user.name, _user_change({name: undo[name] for name in now if undo[name] != now[name]}))
        if undo["password"] is not None:
            users.set_password(user.name, ctx.kept(undo["password"]))
        if undo.get("madeHome") and not users.unmake_home(undo["madeHome"]):
            ctx.log.warning("the home folder is kept: it contains more than the skeleton", home=undo["madeHome"])

    def _bring_back(self, ctx: StepContext, accounts: Accounts, user: User | None, undo: Mapping[str, Any]) -> None:
        users, name = ctx.runner.users, self.params.name
        if user is None:
            own = undo["ownGroup"]
            if own and accounts.find_group(str(undo["gid"])) is None:
                users.add_group(accounts, own, undo["gid"])
            known = [group for group in undo["groups"] if group in accounts.groups]
            users.add(accounts, name, _user_change({**undo, "groups": known, "expires": undo["expires"] or None}))
            if undo["password"] is not None:
                users.set_password(name, ctx.kept(undo["password"]))
        if undo["packed"] and not accounts.home_exists:
            users.unpack(ctx.kept(undo["packed"]))


def _user_change(fields: Mapping[str, Any]) -> UserChange:
    """What sets these fields of a user, as an undo saves them."""
    change = {name: fields[name] for name in ("uid", "home", "shell", "comment", "expires") if name in fields}
    if "gid" in fields:
        change["group"] = str(fields["gid"])
    if "groups" in fields:
        change["groups"] = tuple(fields["groups"])
    return UserChange(**change)


def _password(accounts: Accounts) -> str:
    """What tells one password from another: its digest, and whether it is locked."""
    return hashlib.sha256(f"{accounts.password} {accounts.locked}".encode()).hexdigest()


def _locks_a_password(accounts: Accounts) -> bool:
    """Whether there is a locked password: it stays locked unless the step says otherwise."""
    return accounts.locked and bool(accounts.password)


def _refuse_foreign(user: User) -> None:
    if not user.local:
        raise StepFailed(
            f"user {user.name}: it comes from a directory service, not from /etc/passwd",
            hint="change it there, or choose another name",
        )
