"""The step type ``etcd-member``: a member of an etcd cluster, added as a learner, promoted or removed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, Field

from kubexm_exec.step import (
    CommandResult,
    Duration,
    Forecast,
    Outputs,
    Params,
    Result,
    Standing,
    StepContext,
    StepFailed,
    Undo,
    check_url,
)
from kubexm_spec.duration import format_duration
from kubexm_steps.lib.attributes import attribute_diff, listed
from kubexm_steps.lib.programs import Program, Unavailable, message_of
from kubexm_steps.lib.standing import LookingStep
from kubexm_steps.lib.types import ONE_OR_MANY, HostPath, Line, refuse

_HINTS: Final = (
    ("too many learner", "etcd takes one learner at a time: promote or remove the one that there is first"),
    ("not enough started", "let all members run first, or remove the one that does not"),
    ("certificate|tls|bad record", "check `cacert`, `cert` and `key`"),
    ("deadline exceeded|connection refused|Unavailable", "check `endpoints`, and that etcd runs there"),
)
_NOT_YET: Final = (
    ("in sync with leader", "sees that the learner has not caught up"),
    # Members that were connected a moment ago do not count yet.
    ("unhealthy cluster", "is not yet sure that all members are connected"),
)
"""Answers that are other ones soon, and what they mean."""
_PAUSE: Final = 0.5

Url = Annotated[str, AfterValidator(check_url)]


class EtcdMemberParams(Params):
    """Parameters of ``etcd-member``."""

    state: Literal["learner", "voter", "absent", "status"] = Field(
        description="`learner`: a member that does not vote yet; `voter`: one that votes; `absent`: no member; "
        "`status`: only look."
    )
    name: Line | None = Field(None, description="Name of the member; `status` needs none.")
    peer_urls: Annotated[list[Url], ONE_OR_MANY] = Field(
        default_factory=list,
        description="Addresses for other members, such as `https://10.0.0.4:2380`. A new member needs them; they also "
        "identify one that has not started yet and so has no name.",
    )
    endpoints: Annotated[list[Url], ONE_OR_MANY] = Field(
        default_factory=lambda: ["https://127.0.0.1:2379"],
        min_length=1,
        description="Addresses of members that are asked; several, so that one of them may be down.",
    )
    cacert: HostPath | None = Field(None, description="CA that signed the members' certificates, a file on the host.")
    cert: HostPath | None = Field(None, description="Certificate of a client, a file on the host.")
    key: HostPath | None = Field(None, description="Key of that certificate.")
    deadline: Duration = Field(
        60.0,
        gt=0,
        description="How long a learner may take to catch up with the leader, and members to be connected.",
    )
    program: Line = Field("etcdctl", description="Name or path of etcdctl on the host.")

    def model_post_init(self, context: object) -> None:
        if self.state == "status":
            refuse(self, ("name", "peer_urls"), "`state: status`, which is about all members")
        elif self.name is None:
            raise ValueError(f"`state: {self.state}` needs the `name` of the member")
        if self.state == "learner" and not self.peer_urls:
            raise ValueError("a new member needs `peerUrls`")
        if (self.cert is None) is not (self.key is None):
            raise ValueError("a certificate goes with its key: set both `cert` and `key`")


class EtcdMemberOutputs(Outputs):
    id: str = Field(description="Id of the member, in hex; empty if there is none.")
    learner: bool = Field(description="Whether it does not vote yet.")
    members: list[dict[str, Any]] = Field(
        description="All members by name: `name`, `id`, `peerUrls`, `clientUrls`, `learner`, `leader`, `answers`, "
        "`version`, `dbSize` in bytes."
    )
    leader: str = Field(description="Name of the leader; empty if there is none.")
    healthy: bool = Field(description="Whether all members answer, agree on one leader and report no error.")
    initial_cluster: str = Field(
        description="All members as `ETCD_INITIAL_CLUSTER` takes them: `a=https://10.0.0.1:2380,b=...`."
    )


class Member(Struct, frozen=True):
    """A member, and what it says about itself if it answers."""

    id: int
    name: str
    """Empty until it has started once."""
    peers: tuple[str, ...]
    clients: tuple[str, ...]
    learner: bool
    answers: bool = False
    leads: bool = False
    leader: int = 0
    """The id of whom it takes for the leader."""
    errors: tuple[str, ...] = ()
    version: str = ""
    size: int = 0
    index: int = 0

    @property
    def hex(self) -> str:
        """Its id as etcdctl takes it."""
        return f"{self.id:x}"

    @property
    def shown(self) -> str:
        """Its name, or what it is known by before it has one."""
        return self.name or listed(self.peers)

    @property
    def role(self) -> str:
        """What it is in the cluster."""
        return "learner" if self.learner else "voter"


class Seen(Struct, frozen=True):
    """The members when precheck looked."""

    members: tuple[Member, ...]
    own: Member | None
    """The member that the step is about."""

    @property
    def leader(self) -> Member | None:
        """The one that leads."""
        return next((member for member in self.members if member.leads), None)

    @property
    def healthy(self) -> bool:
        """Whether all answer, take the same one for the leader, and report no error."""
        leaders = {member.leader for member in self.members}
        return len(leaders) == 1 and all(each.answers and each.leader and not each.errors for each in self.members)


class EtcdMemberStep(LookingStep[EtcdMemberParams, Seen | None]):
    """A member of an etcd cluster: added as a learner, promoted to a voter, or removed; or the state of all members.

    The step runs `etcdctl` on its host. A cluster grows by one member at a time: add it as a `learner`, write its
    `ETCD_INITIAL_CLUSTER` from the output `initialCluster` with the state `existing`, start it, and make it a `voter`.

    - A learner gets all data but does not vote, so that adding it never costs the quorum. `voter` waits until
      it has caught up with the leader, for at most `deadline`.
    - A member that leads hands the lead to another one before it is removed. A removal that would leave no quorum of
      members that answer is refused. Stop the removed member, and rename its data folder: it cannot join with it again.
    - With a member that does not answer, none is added: remove that one first.
    - `status` reads only, also in a check. It does not fail if a member is down: see the output `healthy`.
    - Undo removes a learner that was added, unless it votes by now. A promotion and a removal cannot be undone.
    """

    outputs_model = EtcdMemberOutputs
    example = """\
- name: add
  type: etcd-member
  with:
    state: learner
    name: etcd4
    peerUrls: https://10.0.0.4:2380
    endpoints: ["https://10.0.0.1:2379", "https://10.0.0.2:2379"]
    cacert: /etc/etcd/pki/trusted-ca.crt
    cert: /etc/etcd/pki/healthcheck-client.crt
    key: /etc/etcd/pki/healthcheck-client.key
"""

    @classmethod
    def undo_of(cls, params: Mapping[str, Any]) -> Undo:
        match params.get("state"):
            case "voter" | "absent":
                return Undo.IMPOSSIBLE
            case "status":
                return Undo.NEEDLESS
        return cls.undo

    def precheck(self, ctx: StepContext) -> Forecast[Seen | None]:
        params = self.params
        if params.state == "status":
            return Forecast.reads("only asks for the members")
        try:
            seen = self._look(ctx)
        except Unavailable as error:
            return Forecast.unknown(error.message)
        own = seen.own
        if params.state == "absent":
            if own is None:
                return Forecast.satisfied(f"there is no member {params.name}", self._outputs(seen))
            self._refuse_loss(seen, own)
            return self._change(ctx, f"would remove member {params.name}", own, None, seen)
        if own is None:
            if params.state == "voter":
                return Forecast.unknown(f"there is no member {params.name} yet", seen=seen)
            self._refuse_dead(seen)
            new = Member(0, params.name or "", tuple(params.peer_urls), (), learner=True)
            return self._change(ctx, f"would add member {params.name} as a learner", None, new, seen)
        if params.peer_urls and sorted(params.peer_urls) != sorted(own.peers):
            raise StepFailed(
                f"member {own.shown} has the peer URLs {listed(own.peers)}, not {listed(params.peer_urls)}",
                hint="remove it first, or change them with `etcdctl member update`",
            )
        if params.state == "learner" or not own.learner:
            return Forecast.satisfied(f"member {params.name} is there, a {own.role}", self._outputs(seen))
        return self._change(ctx, f"would promote member {params.name}", own, replace(own, learner=False), seen)

    def run(self, ctx: StepContext, forecast: Forecast[Seen | None]) -> Result:
        params = self.params
        seen = forecast.seen or self._look(ctx)
        own = seen.own
        if params.state == "status":
            said = "healthy" if seen.healthy else f"not healthy: {self._complaint(seen)}"
            message = f"{len(seen.members)} members, {said}"
            return Result(changed=False, message=message, outputs=self._outputs(seen))
        if params.state == "learner" and own is None:
            self._refuse_dead(seen)
            ctx.save_undo({"peerUrls": list(params.peer_urls)})
            urls = ",".join(params.peer_urls)
            what = f"add member {params.name}"
            done = self._do(ctx, what, "add", params.name or "", f"--peer-urls={urls}", "--learner", "-w", "json")
            added = self._etcdctl(ctx).decoded(what, done)["member"]["ID"]
            ctx.save_undo({"peerUrls": list(params.peer_urls), "left": f"{added:x}"})
            message = f"added member {params.name} as a learner"
        elif params.state == "absent" and own is not None:
            self._refuse_loss(seen, own)
            if own.leads:
                self._hand_over(ctx, seen, own)
            self._do(ctx, f"remove member {own.shown}", "remove", own.hex)
            message = f"removed member {own.shown}"
        elif own is None:
            raise StepFailed(
                f"promote member {params.name}: there is no such member, but {listed([m.shown for m in seen.members])}",
                hint="add it first with `state: learner`, and start it",
            )
        else:
            self._do(ctx, f"promote member {own.shown}", "promote", own.hex)
            message = f"promoted member {params.name}"
        return Result(message=message, outputs=self._outputs(self._look(ctx)))

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        added = self._added(ctx, undo)
        if added is not None and not added.learner:
            return Standing(changed=(f"member {added.shown} (it votes)",))
        return Standing(before=added is None)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None:
        added = self._added(ctx, undo)
        if added is not None:
            self._do(ctx, f"remove member {added.shown}", "remove", added.hex)

    # what there is

    def _etcdctl(self, ctx: StepContext, endpoints: Sequence[str] = ()) -> Program:
        params = self.params
        paths = {"cacert": params.cacert, "cert": params.cert, "key": params.key}
        return Program(
            ctx,
            params.program,
            f"--endpoints={','.join(endpoints or params.endpoints)}",
            *(f"--{name}={path}" for name, path in paths.items() if path is not None),
            "--dial-timeout=2s",
            "--command-timeout=5s",
            # Versions before 3.4 spoke another protocol by default.
            env={"ETCDCTL_API": "3"},
            hints=_HINTS,
        )

    def _look(self, ctx: StepContext) -> Seen:
        known = self._etcdctl(ctx).look("list the members", "member", "list", "-w", "json")["members"]
        urls = [url for each in known for url in each.get("clientURLs", ())]
        # It fails if one of them is down, and still prints what the others say.
        told = self._etcdctl(ctx, urls).ask("endpoint", "status", "-w", "json")
        statuses = {
            each["Status"]["header"]["member_id"]: each["Status"]
            for each in self._etcdctl(ctx).decoded("ask the members", told) or ()
        }
        members = sorted((_member(each, statuses.get(each["ID"])) for each in known), key=lambda m: (m.name, m.id))
        own = next((each for each in members if each.name == self.params.name), None) or next(
            (each for each in members if not each.name and set(each.peers) & set(self.params.peer_urls)), None
        )
        return Seen(tuple(members), own)

    def _added(self, ctx: StepContext, undo: Mapping[str, Any]) -> Member | None:
        """The member that the run added; before it could write down the id, the one at its address."""
        members = self._look(ctx).members
        if "left" in undo:
            return next((each for each in members if each.hex == undo["left"]), None)
        return next((each for each in members if set(each.peers) & set(undo["peerUrls"])), None)

    def _refuse_dead(self, seen: Seen) -> None:
        if dead := [each.shown for each in seen.members if not each.answers]:
            raise StepFailed(
                f"add member {self.params.name}: {listed(dead)} does not answer",
                hint="start it, or remove it first: with one more member, etcd could lose its quorum",
            )

    def _refuse_loss(self, seen: Seen, own: Member) -> None:
        rest = [each for each in seen.members if not each.learner and each.id != own.id]
        alive, needed = sum(each.answers for each in rest), len(rest) // 2 + 1
        if not own.learner and alive < needed:
            raise StepFailed(
                f"remove member {own.shown}: {alive} of the {len(rest)} voters that stay answer, {needed} are needed",
                hint="start the others first; a cluster that has lost its quorum is restored from a snapshot",
            )

    def _complaint(self, seen: Seen) -> str:
        if dead := [each.shown for each in seen.members if not each.answers]:
            return f"{listed(dead)} does not answer"
        if errors := [error for each in seen.members for error in each.errors]:
            return listed(errors)
        return "there is no leader that all agree on"

    # what changes

    def _change(
        self, ctx: StepContext, message: str, before: Member | None, after: Member | None, seen: Seen
    ) -> Forecast[Seen | None]:
        place = f"etcd member {self.params.name}"
        diff = attribute_diff(ctx, place, _attributes(before), _attributes(after))
        return Forecast.change(message, [diff], seen=seen)

    def _hand_over(self, ctx: StepContext, seen: Seen, own: Member) -> None:
        able = [each for each in seen.members if each.answers and not each.learner and each.id != own.id]
        heir = max(able, key=lambda each: each.index)
        # Only the leader itself can do that.
        self._etcdctl(ctx, own.clients).do(f"hand the lead over to {heir.shown}", "move-leader", heir.hex)

    def _do(self, ctx: StepContext, what: str, *arguments: str) -> CommandResult:
        """Change the members, as soon as etcd is ready for it."""
        started, etcdctl = time.monotonic(), self._etcdctl(ctx)
        while True:
            done = etcdctl.ask("member", *arguments)
            if done.exit_code == 0:
                return done
            said, took = message_of(done), time.monotonic() - started
            missing = next((meaning for pattern, meaning in _NOT_YET if pattern in said), "")
            if not missing:
                raise etcdctl.failure(what, ["member", *arguments], done)
            if took >= self.params.deadline:
                raise StepFailed(
                    f"{what}: waited {format_duration(self.params.deadline)}, but etcd says: {said}",
                    hint="see whether all members run (their logs tell), or set a longer `deadline`",
                )
            ctx.progress(f"{what}: waiting, etcd {missing}", took, self.params.deadline)
            ctx.sleep(_PAUSE)

    def _outputs(self, seen: Seen) -> dict[str, Any]:
        own, leader = seen.own, seen.leader
        names = {each.id: each.name or (self.params.name or "") for each in seen.members}
        return {
            "id": own.hex if own else "",
            "learner": own.learner if own else False,
            "members": [
                {
                    "name": each.name,
                    "id": each.hex,
                    "peerUrls": list(each.peers),
                    "clientUrls": list(each.clients),
                    "learner": each.learner,
                    "leader": each.leads,
                    "answers": each.answers,
                    "version": each.version,
                    "dbSize": each.size,
                }
                for each in seen.members
            ],
            "leader": leader.name if leader else "",
            "healthy": seen.healthy,
            "initialCluster": ",".join(f"{names[each.id]}={url}" for each in seen.members for url in each.peers),
        }


def _member(data: Mapping[str, Any], status: Mapping[str, Any] | None) -> Member:
    said = status or {}
    return Member(
        data["ID"],
        data.get("name", ""),
        tuple(data.get("peerURLs", ())),
        tuple(data.get("clientURLs", ())),
        data.get("isLearner", False),
        answers=status is not None,
        leads=said.get("leader") == data["ID"],
        leader=said.get("leader", 0),
        errors=tuple(said.get("errors") or ()),
        version=said.get("version", ""),
        size=said.get("dbSize", 0),
        index=said.get("raftIndex", 0),
    )


def _attributes(member: Member | None) -> dict[str, str] | None:
    return None if member is None else {"role": member.role, "peer URLs": listed(member.peers)}
