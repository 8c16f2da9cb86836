"""The step type ``group``: a group of users, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from kubexm_exec.step import Forecast, Outputs, Params, Result, Standing, StepContext, StepFailed
from kubexm_exec.step.accounts import Accounts, Group
from kubexm_steps.lib.attributes import attribute_diff, changed, listed
from kubexm_steps.lib.standing import OLDER, LookingStep, mapped
from kubexm_steps.lib.types import AccountName, AccountNames, refuse, unique


class GroupParams(Params):
    """Parameters of ``group``."""

    name: AccountName = Field(description="Name of the group.")
    gid: int | None = Field(None, ge=0, le=2**32 - 2, description="Group id; by default the next free one.")
    system: bool = Field(False, description="Choose the id of a new group from the range of system groups.")
    members: AccountNames | None = Field(
        None,
        description="Members; the users must exist. By default members are not changed. Users with this primary "
        "group are not listed.",
    )
    append_members: bool = Field(False, description="Keep other members. By default they are removed.")
    state: Literal["present", "absent"] = Field("present", description="`absent` removes the group.")

    def model_post_init(self, context: object) -> None:
        if self.state == "absent":
            refuse(self, ("gid", "members"), "`state: absent`")
        if self.append_members and self.members is None:
            raise ValueError("appendMembers needs `members`")


class GroupOutputs(Outputs):
    name: str = Field(description="Name of the group.")
    gid: int | None = Field(None, description="Group id; null if it was removed.")


class GroupStep(LookingStep[GroupParams, Accounts]):
    """A group of users, or its absence.

    Use it for groups that must exist before something else, such as a service's own group with a fixed id. To add one
    user to groups, use `user` with `groups`.

    - With `members`, exactly those are in the group; with `appendMembers: true` others stay.
    - Another `gid` changes the group and the users with this primary group; files keep the old id.
    - A group from a directory such as LDAP is accepted as it is; if it would have to change, that is a failure.
    - The primary group of a user cannot be removed.
    - Undo restores id and members, recreates a removed group, or removes a new one.
    """

    outputs_model = GroupOutputs
    example = """\
- name: etcd
  type: group
  with: {name: etcd, system: true, members: [backup], appendMembers: true}
"""

    def precheck(self, ctx: StepContext) -> Forecast[Accounts]:
        params = self.params
        accounts = self._look(ctx)
        group = accounts.groups.get(params.name)
        if params.state == "absent":
            if group is None:
                return Forecast.satisfied(f"there is no group {params.name}", self._outputs(None))
            _refuse_foreign(group)
            if users := accounts.first_group_of(group):
                return Forecast.unknown(f"group {params.name} is the first group of {listed(users)}", seen=accounts)
            return Forecast.change(
                f"would remove group {params.name}",
                [attribute_diff(ctx, f"group {params.name}", _attributes(group), None)],
                seen=accounts,
            )
        if missing := self._missing(accounts):
            return Forecast.unknown(f"user {missing[0]} does not exist yet", seen=accounts)
        after = self._wanted(group)
        if group is None:
            return Forecast.change(
                f"would create group {params.name}",
                [attribute_diff(ctx, f"group {params.name}", None, after)],
                seen=accounts,
            )
        before = _attributes(group)
        if not changed(before, after):
            return Forecast.satisfied(f"group {params.name} is as it should be", self._outputs(group))
        _refuse_foreign(group)
        return Forecast.change(
            f"would change group {params.name} ({', '.join(changed(before, after))})",
            [attribute_diff(ctx, f"group {params.name}", before, after)],
            seen=accounts,
        )

    def run(self, ctx: StepContext, forecast: Forecast[Accounts]) -> Result:
        params, accounts = self.params, forecast.seen
        users = ctx.runner.users
        group = accounts.groups.get(params.name)
        if params.state == "absent" and group is not None:
            ctx.save_undo({"gid": group.gid, "members": list(group.members), "left": None})
            users.remove_group(accounts, params.name)
            return Result(message=f"removed group {params.name}", outputs=self._outputs(None))
        if missing := self._missing(accounts):
            raise StepFailed(
                f"group {params.name}: there is no user {missing[0]}", hint="create it first with a `user` step"
            )
        if group is None:
            left = {"gid": params.gid, "members": sorted(unique(params.members or []))}
            ctx.save_undo({"made": True, "left": left})
            users.add_group(accounts, params.name, params.gid, system=params.system)
            if params.members:
                users.set_members(accounts, params.name, unique(params.members))
            gid = params.gid
            if gid is None:
                gid = self._look(ctx).groups[params.name].gid
                ctx.save_undo({"made": True, "left": {**left, "gid": gid}})
            return Result(message=f"created group {params.name}", outputs={"name": params.name, "gid": gid})
        differs = changed(_attributes(group), self._wanted(group))
        left = {
            "gid": group.gid if params.gid is None else params.gid,
            "members": sorted(self._members(group) if params.members is not None else group.members),
        }
        ctx.save_undo({"gid": group.gid, "members": list(group.members), "left": left})
        if params.gid is not None and "gid" in differs:
            users.renumber_group(accounts, params.name, params.gid)
        if "members" in differs:
            users.set_members(accounts, params.name, self._members(group))
        gid = params.gid if params.gid is not None else group.gid
        return Result(
            message=f"changed group {params.name} ({', '.join(differs)})", outputs={"name": params.name, "gid": gid}
        )

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        if "left" not in undo:
            return Standing(unknown=OLDER)
        noun, left, made = f"group {self.params.name}", undo["left"], undo.get("made", False)
        group = ctx.runner.users.look().groups.get(self.params.name)
        if group is None:
            return Standing(before=made) if made or left is None else Standing(changed=(f"{noun} (it is gone)",))
        now = {"gid": group.gid, "members": sorted(group.members)}
        before = {} if made else {"gid": undo["gid"], "members": sorted(undo["members"])}
        if left is None:
            return mapped(before, before, now, noun + " ({})")
        # It has no members yet right after it was made, and its number may not be known.
        before = before or {"gid": left["gid"] or group.gid, "members": []}
        found = mapped(before, {**left, "gid": left["gid"] or group.gid}, now, noun + " ({})")
        return replace(found, before=False) if made else found

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        name = self.params.name
        users = ctx.runner.users
        accounts = users.look()
        group = accounts.groups.get(name)
        if undo.get("made"):
            if group is not None:
                users.remove_group(accounts, name)
            return
        if group is None:
            users.add_group(accounts, name, undo["gid"])
            group = Group(name, undo["gid"])
        elif group.gid != undo["gid"]:
            users.renumber_group(accounts, name, undo["gid"])
        if list(group.members) != undo["members"]:
            users.set_members(accounts, name, undo["members"])

    def _look(self, ctx: StepContext) -> Accounts:
        return ctx.runner.users.look(groups=[self.params.name])

    def _missing(self, accounts: Accounts) -> list[str]:
        members = unique(self.params.members or [])
        group = accounts.groups.get(self.params.name)
        known = group.members if group is not None else ()
        return [name for name in members if name not in accounts.users and name not in known]

    def _members(self, group: Group | None) -> tuple[str, ...]:
        wanted = list(self.params.members or [])
        if group is not None and self.params.append_members:
            wanted += group.members
        return unique(wanted)

    def _wanted(self, group: Group | None) -> dict[str, str]:
        params = self.params
        wanted = {} if group is None else _attributes(group)
        if params.gid is not None:
            wanted["gid"] = str(params.gid)
        if params.members is not None:
            wanted["members"] = listed(self._members(group))
        return wanted

    def _outputs(self, group: Group | None) -> dict[str, Any]:
        return {"name": self.params.name, "gid": None if group is None else group.gid}


def _attributes(group: Group) -> dict[str, str]:
    return {"gid": str(group.gid), "members": listed(sorted(group.members))}


def _refuse_foreign(group: Group) -> None:
    if not group.local:
        raise StepFailed(
            f"group {group.name}: it comes from a directory service, not from /etc/group",
            hint="change it there, or choose another name",
        )
