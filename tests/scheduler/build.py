"""Tiny graphs in few words, and a player that drives the scheduler through them by names such as ``a@h1``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubexm_exec.model.graph import (
    Constraints,
    Dependency,
    ExecutionFragment,
    ExecutionGraph,
    ExecutionNode,
    FailurePolicy,
    GraphHost,
    Hook,
    Membership,
    Mode,
    NodeKind,
    On,
    Part,
    Policy,
)
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.scheduler import Action, Outcome, Scheduler, Transition

OUTCOMES = {
    "ok": Outcome(Status.SUCCESS),
    "change": Outcome(Status.SUCCESS, notifies=True),
    "fail": Outcome(Status.FAILED),
    "satisfied": Outcome(Status.SKIPPED, SkipReason.PRECHECK),
    "when": Outcome(Status.SKIPPED, SkipReason.CONDITION),
    "cancel": Outcome(Status.CANCELLED),
    "early": Outcome(Status.FAILED, begun=False),
    "unbegun": Outcome(Status.CANCELLED, begun=False),
}


def step(
    id: str,
    hosts: str = "h1",
    after: str = "",
    *,
    hook: Hook = Hook.NONE,
    skip: str = "",
    max_failures: str = "0",
    ignore: bool = False,
    places: Mapping[str, str] | None = None,
    notifies: str = "",
    handler: str = "",
    one: str = "",
    groups: str = "",
    **constraints: Any,
) -> ExecutionNode:
    """A step on hosts; ``after="a b?failure g@h1,h2"``: names, for which outcome, limited to which hosts.

    ``one``: places of which the run chooses one for each host. ``groups="inner.rescue outer.body"``: the groups that it
    is in, the innermost first, and in which part.
    """
    if one:
        places = dict.fromkeys(hosts.split(), one.split()[0])
    return ExecutionNode(
        id=id,
        hosts=tuple(hosts.split()),
        places=places or {},
        choices=(tuple(one.split()),) if one else (),
        dependencies=tuple(_dependency(word, Mode.HOST) for word in after.split()),
        hook=Hook.HANDLER if handler else hook,
        notifies=tuple(notifies.split()),
        handler=handler,
        groups=_memberships(groups),
        skip=skip,
        policy=Policy(max_failures=max_failures, ignore_errors=ignore),
        constraints=Constraints(**constraints),
    )


def gate(id: str, after: str = "", *, budget: str | None = None, pause: float = 0.0, groups: str = "") -> ExecutionNode:
    """A gate; steps that wait for one name it as they name a step."""
    return ExecutionNode(
        id=id,
        kind=NodeKind.GATE,
        dependencies=tuple(_dependency(word, Mode.BARRIER) for word in after.split()),
        batch_budget=budget,
        pause=pause,
        groups=_memberships(groups),
    )


def _memberships(words: str) -> tuple[Membership, ...]:
    return tuple(Membership(group, Part(part)) for group, part in (word.split(".") for word in words.split()))


def _dependency(word: str, mode: Mode) -> Dependency:
    name, on, hosts = re.fullmatch(r"([^?@]+)(?:\?(\w+))?(?:@(.+))?", word).groups()  # type: ignore[union-attr]
    return Dependency(name, mode, On(on or "success"), tuple(hosts.split(",")) if hosts else None)


def graph(
    *nodes: ExecutionNode,
    policy: FailurePolicy = FailurePolicy.CONTINUE,
    host_limit: int = 10,
    locks: Mapping[str, int] | None = None,
) -> ExecutionGraph:
    """A graph of these nodes, in this order."""
    names = dict.fromkeys(host for node in nodes for host in node.hosts)
    return ExecutionGraph(
        name="test",
        nodes={node.id: node for node in nodes},
        hosts={name: GraphHost(name, per_host_limit=host_limit) for name in names},
        scopes={},
        failure_policy=policy,
        locks=locks or {},
    )


def action(text: str) -> Action:
    """``a@h1``, or ``g@`` for the pause of a gate."""
    node, _, host = text.partition("@")
    return Action(node, host)


def text(status: Status, reason: SkipReason | None = None, cause: str = "") -> str:
    """An end in short: ``Success``, ``Skipped dependency a``."""
    return " ".join(word for word in (status.value, reason.value if reason else "", cause) if word)


class Play:
    """Drives a scheduler by hand or to its end, and notes how everything ended."""

    def __init__(
        self,
        *nodes: ExecutionNode,
        forks: int = 50,
        due: Sequence[tuple[str, str, str]] = (),
        owed: str = "",
        **options: Any,
    ) -> None:
        self.scheduler = Scheduler(graph(*nodes, **options), forks=forks, due=due, owed=map(action, owed.split()))
        self.places: dict[str, str] = {}
        """The places that were chosen, if they are not the first."""
        self.ends: dict[str, str] = {}
        """How each action, each node (by its id) and each gate has ended."""
        self.messages: dict[str, str] = {}
        self.order: list[str] = []
        """What was started, in order."""
        self._note()

    def ready(self) -> list[str]:
        """What is offered."""
        return [f"{node}@{host}" for node, host in self.scheduler.ready()]

    def start(self, *names: str) -> Play:
        """Start actions that must be offered."""
        self.scheduler.ready()
        for name in names:
            self.scheduler.start(action(name))
            self.order.append(name)
        return self

    def end(self, *names: str, outcome: str = "ok") -> Play:
        """Finish running actions."""
        for name in names:
            self.scheduler.finish(action(name), OUTCOMES[outcome])
            if action(name).host:
                self.ends[name] = text(OUTCOMES[outcome].status, OUTCOMES[outcome].reason)
            self._note()
        return self

    def do(self, *names: str, outcome: str = "ok") -> Play:
        """Start actions and finish them."""
        for name in names:
            self.start(name).end(name, outcome=outcome)
        return self

    def extend(self, name: str, *nodes: ExecutionNode) -> Play:
        """The running action returns a fragment."""
        self.scheduler.extend(action(name), ExecutionFragment.of(nodes))
        self._note()
        return self

    def stop(self, reason: str) -> Play:
        """Stop the run."""
        self.scheduler.stop(reason)  # type: ignore[arg-type]
        self._note()
        return self

    def run(self, outcomes: Mapping[str, str] | None = None, pick: Callable[[Sequence[str]], str] = min) -> Play:
        """Run everything to the end, one at a time; what is not named ends well. Nothing may be left over."""
        while offered := self.ready():
            name = pick(offered)
            self.do(name, outcome=(outcomes or {}).get(name, "ok"))
        assert self.scheduler.done, f"nothing is offered, and yet it is not done: {self.ends}"
        return self

    def move(self, name: str, place: str) -> Play:
        """The running action is to be done at another place."""
        self.scheduler.move(action(name), place)
        self.places[name] = place
        return self

    def of(self, *names: str) -> list[str]:
        """The ends of some, or ``-``."""
        return [self.ends.get(name, "-") for name in names]

    @property
    def status(self) -> str:
        """What the run came to."""
        return self.scheduler.run_status().value

    def drain(self) -> list[Transition]:
        """What the scheduler decided since the last call, noted, too."""
        return self._note()

    def _note(self) -> list[Transition]:
        self.places.update({f"{one.node}@{one.host}": place for one, place in self.scheduler.placed()})
        transitions = self.scheduler.drain()
        for one in transitions:
            name = f"{one.node}@{one.host}" if one.host else one.node
            assert name not in self.ends, f"{name} ended twice"
            self.ends[name] = text(one.status, one.reason, one.cause)
            self.messages[name] = one.message
        return transitions
