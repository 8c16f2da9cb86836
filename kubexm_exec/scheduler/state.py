"""The parts the scheduler's machine is made of: actions, nodes and gates with their counters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, field

from kubexm_exec.model.graph import ExecutionNode, NodeKind, On
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.scheduler.limits import Pool

# States of an action. Ints in this order, so that one comparison answers "has it ended?" and "was it bad?".
PENDING: Final = 0
"""Waits for its dependencies."""
WAITING: Final = 1
"""Waits for its turn, or is offered."""
RUNNING: Final = 2
DEFERRED: Final = 3
"""Has run, and waits for its next attempt."""
SUCCESS: Final = 4
PRECHECK: Final = 5
CONDITION: Final = 6
IGNORED: Final = 7
"""Failed, and counts as success for what waits."""
RESCUED: Final = 8
"""Failed, and a rescue has handled it: counts as success for what waits outside the group."""
SPARED: Final = 9
"""Skipped because of a failure that a rescue has handled."""
FAILED: Final = 10
DEPENDENCY: Final = 11
LIMIT: Final = 12
CANCELLED: Final = 13

ENDED: Final = SUCCESS
"""From here on the state is final."""
BAD: Final = FAILED
"""From here on what waits for success does not run."""
RESCUABLE: Final = (FAILED, DEPENDENCY)
"""Bad ends that a rescue can handle; what was cancelled stays so."""

VIEW: Final[tuple[tuple[Status, SkipReason | None], ...]] = (
    (Status.PENDING, None),
    (Status.PENDING, None),
    (Status.RUNNING, None),
    (Status.RUNNING, None),
    (Status.SUCCESS, None),
    (Status.SKIPPED, SkipReason.PRECHECK),
    (Status.SKIPPED, SkipReason.CONDITION),
    (Status.FAILED, None),
    (Status.FAILED, None),
    (Status.SKIPPED, SkipReason.DEPENDENCY),
    (Status.FAILED, None),
    (Status.SKIPPED, SkipReason.DEPENDENCY),
    (Status.SKIPPED, SkipReason.LIMIT),
    (Status.CANCELLED, None),
)
"""How each state looks from outside."""

# Ints in this order: from ``ON_FAILURE`` on a good end, too, must be heard of.
ON_SUCCESS: Final = 0
ON_DONE: Final = 1
ON_FAILURE: Final = 2
ON_BEGUN: Final = 3
ON: Final[dict[On, int]] = {
    On.SUCCESS: ON_SUCCESS, On.DONE: ON_DONE, On.FAILURE: ON_FAILURE, On.BEGUN: ON_BEGUN
}  # fmt: skip

_GATE: Final = NodeKind.GATE

Blame: TypeAlias = tuple[int, int, str]
"""The cause of a failure: (edges between, place in graph order, node id). The least is the nearest failed node.

The distance counts edges, gates included; among equally near ones the first in graph order is named. Nodes of a
fragment share the place of the node they grew from and are told apart by their id, because the order in which they are
added depends on the interleaving, and the cause must not."""


def further(blame: Blame, edges: int = 1) -> Blame:
    """The same cause seen from further away."""
    return (blame[0] + edges, blame[1], blame[2])


class Action(NamedTuple):
    """A node on one host; the host is empty for the pause of a batch gate."""

    node: str
    host: str


class Doubt:
    """What an action has heard of its dependencies that may keep it from running; most actions never have one."""

    __slots__ = ("blame", "far", "gone", "limit", "met", "off", "out", "shut", "unmet")

    def __init__(self) -> None:
        self.blame: Blame | None = None
        self.out: dict[str, Blame] | None = None
        """Hosts that have left the run before it, with the cause: to be propagated, whichever host it is on
        itself. Many actions share one mapping, so that nobody may change it."""
        self.far = 0
        """The distance of the causes from the action, in edges."""
        self.shut = False
        self.limit = False
        self.off = False
        """It waits for a gate that stands for a condition which is not met."""
        self.unmet = False
        """It waits for a failure, or for something that began, and there was none."""
        self.met = False
        """It waits for one of these, and there was one: one of several is enough."""
        self.gone: set[str] | None = None
        """Hosts that have left the run as far as it knows by other edges: places that it prefers not to take."""

    @property
    def condition(self) -> bool:
        """Whether a condition is not met."""
        return self.off or (self.unmet and not self.met)

    def accuse(self, blame: Blame) -> None:
        """A dependency is bad."""
        if self.blame is None or blame < self.blame:
            self.blame = blame

    def leave_behind(self, out: dict[str, Blame], far: int) -> None:
        """Some hosts have left the run, as is seen from so many edges away."""
        if self.out is None or self.out is out:
            self.far = far if self.out is None else min(self.far, far)
            self.out = out
            return
        merged = {host: further(blame, self.far) for host, blame in self.out.items()}
        for host, blame in out.items():
            blame = further(blame, far)
            merged[host] = min(blame, merged.get(host, blame))
        self.out, self.far = merged, 0


class Rescue:
    """A group with a rescue on one host: whether a failure in it counts is known when the rescue has ended there."""

    __slots__ = ("able", "broken", "failed", "group", "held", "host", "left", "unknown")

    def __init__(self, group: str, host: str) -> None:
        self.group = group
        self.host = host
        self.left = 0
        """Actions of the body and of the rescue that have not ended."""
        self.failed = False
        """An action of the body has failed."""
        self.able = False
        """There is a rescue that is not left out of the run."""
        self.broken = False
        """An action of the rescue has ended badly."""
        self.unknown = False
        """Nobody knows how an action in the group has ended: whether there is anything to rescue, and what."""
        self.held: list[Act] = []
        """Actions of the body that ended badly, of which nobody outside the group has heard yet."""

    @property
    def is_due(self) -> bool:
        """Whether it has a reason to run, once the body has ended."""
        return self.failed and not self.unknown

    @property
    def succeeds(self) -> bool:
        """Whether it has handled the failures, once it has ended."""
        return self.is_due and self.able and not self.broken


class Returned(Protocol):
    """A fragment that an action has returned: who waits for the action later than that waits for it, too."""

    def hold_back(self, to: Act, on: int) -> list[Gate]:
        """Have an action wait for its exits; gates that had to be added for that."""

    def hold_back_gate(self, gate: Gate, watch: Watch) -> None:
        """Have a gate wait for all of it."""


class Act(Struct, eq=False):
    """The state of an action."""

    action: Action
    node: Node
    key: int
    host: str
    state: int = PENDING
    pending: int = 0
    """Dependencies that have not ended."""
    doubt: Doubt | None = None
    blame: Blame | None = None
    """Set when it ends badly."""
    shut: bool = False
    """Ended badly for more than its host: a gate behind it closes. (A failed host only leaves the run.)"""
    edges: list[tuple[Act, int]] | None = None
    """Who waits for this very action, beside the node's edges: fragments, and those who wait for their exits."""
    watch: list[tuple[Gate, Watch]] | None = None
    """Gates that wait for this very action, not for the whole node."""
    begun: bool = False
    """It may have done something."""
    owed: bool = False
    """Something that it waits for began in an earlier session."""
    unknown: bool = False
    """Nobody knows how it really ended."""
    places: tuple[str, ...] = ()
    """The places of which it gets one, if there is a choice."""
    rescues: tuple[tuple[Rescue, bool], ...] = ()
    """The groups with a rescue on its host that it is in, the innermost first; and whether in the body.

    What a fragment does is in those of the action that returned it, wherever it is done."""
    root: Act | None = None
    """For what a fragment has added: the action of the graph that it grew from."""
    grafts: tuple[Returned, ...] = ()
    """The fragments that it has returned."""
    shared: tuple[dict[str, Blame], int] | None = None
    """For an action that has returned a fragment: the part of ``out`` that its fragment hears of."""
    heard: tuple[int, tuple[Rescue, ...]] | None = None
    """While a rescue decides whether its bad end counts: how many groups it has left, or waits for the end of, and
    those inside which that end is known."""

    @property
    def awaited(self) -> bool:
        """Whether it is part of a rescue for which there is no reason."""
        return any(not body and not rescue.is_due for rescue, body in self.rescues)

    def join(self, rescues: Iterable[tuple[Rescue, bool]]) -> None:
        """It belongs to groups with a rescue, which wait for its end."""
        self.rescues = tuple(rescues)
        for rescue, _ in self.rescues:
            rescue.left += 1

    def is_inside(self, rescue: Rescue) -> bool:
        """Whether it belongs to a group, and hears of what fails there at once."""
        return any(own.group == rescue.group for own, _ in self.rescues)

    @property
    def is_held_further(self) -> bool:
        """Whether one more rescue decides on its bad end, once the one that holds it now has ended."""
        left = self.heard[0] if self.heard is not None else 0
        return any(body for _, body in self.rescues[left:])

    def is_known_to(self, waiting: Act | Gate) -> bool:
        """Whether it has ended, as far as what waits for it can know."""
        return self.state >= ENDED and (self.heard is None or any(map(waiting.is_inside, self.heard[1])))

    def hear(self, source: Act, on: int) -> None:
        """The action this one waits for has ended."""
        if on == ON_SUCCESS:
            if source.blame is not None:
                doubt = self._doubting()
                doubt.accuse(further(source.blame))
                doubt.shut |= source.shut
                if source.host != self.host and not source.shut:
                    self._leave_behind({source.host: source.blame}, 1)
            if (out := source.out_for(self.node)) is not None:
                self._leave_behind(*out)
        elif on == ON_FAILURE:
            self.hope(source.state in (FAILED, IGNORED))
        elif on == ON_BEGUN:
            self.hope(source.begun)
        if on != ON_SUCCESS and self.places:
            gone = self._gone()
            if source.blame is not None and not source.shut:
                gone.add(source.host)
            if (out := source.out_for(self.node)) is not None:
                gone.update(out[0])

    def hear_gate(self, gate: Gate, on: int) -> None:
        """The gate this one waits for has been judged."""
        if on == ON_SUCCESS:
            if gate.out:
                self._leave_behind(gate.out, 1)
            if gate.blame is not None:
                doubt = self._doubting()
                doubt.accuse(further(gate.blame))
                doubt.shut = True
                doubt.limit |= gate.limit
            if gate.unmet:
                self._doubting().off = True
        elif on == ON_FAILURE:
            self.hope(gate.failed)
        elif on == ON_BEGUN:
            self.hope(False)
        if on != ON_SUCCESS and self.places:
            self._gone().update(gate.out)

    @property
    def out(self) -> tuple[dict[str, Blame], int] | None:
        """Hosts that have left the run before it, and from how many edges away who waits for it sees the blame.

        What was cancelled has perhaps not heard of all of them, and closes what is behind it anyway; nor has what does
        not run because another host was chosen, and that one has.
        """
        doubt = self.doubt
        if doubt is None or doubt.out is None or self.state == CANCELLED or self.aside:
            return None
        if self.state in (RESCUED, SPARED):
            # A gate inside the group has said so before the rescue had ended.
            ours = {rescue.host for rescue, _ in self.rescues}
            return {host: blame for host, blame in doubt.out.items() if host not in ours}, doubt.far + 1
        return doubt.out, doubt.far + 1

    def out_for(self, node: Node) -> tuple[dict[str, Blame], int] | None:
        """The same, as a node hears of it: what the action has returned may be what other hosts return as well."""
        if node.owner is not self.node:
            return self.out
        return None if self.state == CANCELLED else self.shared

    @property
    def aside(self) -> bool:
        """Whether its node runs once, and on another host."""
        return self.node.host is not None and self.host != self.node.host

    def _leave_behind(self, out: dict[str, Blame], far: int) -> None:
        """Some hosts have left the run; if its own is among them, it does not run."""
        doubt = self._doubting()
        doubt.leave_behind(out, far)
        self.node.passes = True
        mine = out.get(self.host)
        if mine is not None:
            doubt.accuse(further(mine, far))

    def hope(self, met: bool) -> None:
        """It waits for something of which one is enough, and there was that one or not."""
        doubt = self._doubting()
        doubt.unmet |= not met
        doubt.met |= met

    def is_gone(self, host: str) -> bool:
        """Whether a host has left the run before the action, as far as that is known."""
        doubt = self.doubt
        return doubt is not None and (
            (doubt.out is not None and host in doubt.out) or (doubt.gone is not None and host in doubt.gone)
        )

    def _gone(self) -> set[str]:
        doubt = self._doubting()
        if doubt.gone is None:
            doubt.gone = set()
        return doubt.gone

    def _doubting(self) -> Doubt:
        if self.doubt is None:
            self.doubt = Doubt()
        return self.doubt


class Node(Struct, eq=False):
    """The state of a node: its actions (or gates) and their aggregate."""

    spec: ExecutionNode
    rank: int
    owner: Node | None
    """For a node of a fragment: the node that returned it."""
    id: str
    gate: bool
    hosts: tuple[str, ...]
    """The hosts that it was set up with; with ``runOnce`` all that could be the one."""
    hi: int
    """Place in graph order of what its fragments add: right behind the last action of the graph's own node."""
    children: tuple[Node, ...] = ()
    digest: str = ""
    """For a node of a fragment: what defines it, to tell the same one from a clash."""
    at: dict[str, Act] = field(default_factory=dict)
    parts: tuple[Gate, ...] = ()
    """For a gate: one for each time it was added; for a node without hosts: what stands in for it."""
    group: tuple[Node, ...] = ()
    """For a gate: the nodes that run once, on the host that it chooses."""
    host: str | None = None
    """For a node that runs once: its host, once that is chosen; empty if it does not run on the chosen one."""
    limit: Pool | None = None
    """The pool of the node's own limit, if it has one."""
    pause: Act | None = None
    pausing: tuple[Gate, ...] = ()
    left: int = 0
    """Actions and parts that have not ended."""
    bad: list[Act] = field(default_factory=list)
    spared: list[Blame] = field(default_factory=list)
    """The causes of actions that were skipped because of a failure that a rescue has handled."""
    passes: bool = False
    """Some of its actions know of hosts that have left the run."""
    certain: tuple[tuple[Gate, int, Collection[str]], ...] | None = None
    """Gates before it of which all its hosts hear that do not come before the gate themselves: the gate, edges between
    it and the one that they wait for, and the hosts that hear of it; None until somebody asks."""
    fails: int = 0
    """Failed actions, ignored ones aside."""
    edges: list[tuple[dict[str, Act], int]] = field(default_factory=list)
    """Dependents of this node on the same host: their actions by host, and the outcome that each waits for."""
    gates: tuple[tuple[Gate, Watch], ...] = ()
    """Gates that wait for all its hosts."""
    final: bool = False
    """Has ended, and no fragment can add to it any more."""
    status: Status = Status.PENDING
    """Its status, once it is final."""

    @classmethod
    def of(cls, spec: ExecutionNode, rank: int, owner: Node | None = None) -> Node:
        """The state of a node of the graph, or of one that a fragment of ``owner`` adds."""
        return cls(spec, rank, owner, spec.id, spec.kind is _GATE, spec.may_run_on, -1 if owner is None else owner.hi)

    def over_budget(self, failures: int, hosts: int) -> bool:
        """Whether that many failures are more than the node allows."""
        return failures > self.spec.policy.budget(hosts)


class Watch:
    """What a gate waits for in one node: all its actions, or some."""

    __slots__ = ("grown", "members", "node", "on", "partial")

    def __init__(self, node: Node, on: int, *, members: set[Act] | None, partial: bool) -> None:
        self.node = node
        self.on = on
        self.members = members
        """The very actions; None for all of a node that cannot grow."""
        self.partial = partial
        """The gate does not wait for all the hosts the node will ever have."""
        self.grown: dict[Node, Watch] = {}
        """What fragments of the node have added, by their nodes."""


class Gate:
    """A gate that waits, or what stands in for a node without hosts (``relay``): it passes on what it waits for."""

    __slots__ = (
        *("blame", "ended", "failed", "fails", "groups", "left", "limit", "node", "out", "relay", "seen", "sources"),
        *("targets", "then", "unmet", "watches"),
    )

    def __init__(self, node: Node, *, relay: bool = False) -> None:
        self.node = node
        self.relay = relay
        self.groups = frozenset(each.group for each in node.spec.groups)
        """The groups of steps that it stands in: what fails there it hears at once."""
        self.left = 0
        """Nodes, actions and gates it still waits for."""
        self.watches: list[Watch] = []
        self.sources: list[tuple[Gate, int]] = []
        self.targets: list[tuple[Collection[Act], int]] = []
        """Actions that wait for it."""
        self.then: list[Gate] = []
        """Gates that wait for it."""
        self.ended = False
        self.failed = False
        self.blame: Blame | None = None
        """Set when it is closed: nothing that waits for success runs."""
        self.limit = False
        """It is closed because more hosts failed than the task allows."""
        self.unmet = False
        """It waited for a failure that never was."""
        self.out: dict[str, Blame] = {}
        """Hosts that have left the run."""
        self.fails: dict[Node, tuple[int, set[str]]] = {}
        """Batch gates: distance and failed hosts of each node, earlier batches included."""
        self.seen: dict[Node, set[Act]] = {}
        """Batch gates: actions of fragments that were judged, earlier batches included."""

    def is_inside(self, rescue: Rescue) -> bool:
        """Whether it stands between steps of a group."""
        return rescue.group in self.groups

    @property
    def batch(self) -> bool:
        """Whether it stands between two batches."""
        return self.node.spec.batch_budget is not None and not self.relay
