"""The parts the scheduler's machine is made of: actions, nodes and gates with their counters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, TypeAlias

from kubexm_exec.model.graph import ExecutionNode, On
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
FAILED: Final = 8
DEPENDENCY: Final = 9
LIMIT: Final = 10
CANCELLED: Final = 11

ENDED: Final = SUCCESS
"""From here on the state is final."""
BAD: Final = FAILED
"""From here on what waits for success does not run."""

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
    (Status.SKIPPED, SkipReason.LIMIT),
    (Status.CANCELLED, None),
)
"""How each state looks from outside."""

ON_SUCCESS: Final = 0
ON_FAILURE: Final = 1
ON_DONE: Final = 2
ON: Final[dict[On, int]] = {On.SUCCESS: ON_SUCCESS, On.FAILURE: ON_FAILURE, On.DONE: ON_DONE}

Blame: TypeAlias = tuple[int, int, str]
"""Who is to blame for a bad end: (edges between, place in graph order, node id). The least is the nearest failed node.

The distance counts edges, gates included; among equally near ones the first in graph order is named. Nodes of a
fragment share the place of the node they grew from and are told apart by their id, because the order in which they are
added depends on the interleaving, and the blame must not."""


def further(blame: Blame, edges: int = 1) -> Blame:
    """The same blame seen from one edge further away, or from some."""
    return (blame[0] + edges, blame[1], blame[2])


class Action(NamedTuple):
    """A node on one host; the host is empty for the pause of a batch gate."""

    node: str
    host: str


class Doubt:
    """What an action has heard of its dependencies that may keep it from running; most actions never have one."""

    __slots__ = ("blame", "far", "limit", "met", "off", "out", "shut", "unmet")

    def __init__(self) -> None:
        self.blame: Blame | None = None
        self.out: dict[str, Blame] | None = None
        """Hosts that have left the run before it, with who is to blame: to be passed on, whichever host it is on
        itself. Many actions share one mapping, so that nobody may change it."""
        self.far = 0
        """How many edges away from the action those who are to blame are seen."""
        self.shut = False
        self.limit = False
        self.off = False
        """It waits for a gate that stands for a condition which is not met."""
        self.unmet = False
        """It waits for a failure, and there was none."""
        self.met = False
        """It waits for a failure, and there was one: one of several is enough."""

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


class Act:
    """An action inside the scheduler."""

    __slots__ = ("action", "blame", "doubt", "edges", "host", "key", "node", "pending", "shut", "state", "watch")

    def __init__(self, action: Action, node: Node, key: int) -> None:
        self.action = action
        self.host = action.host
        self.node = node
        self.key = key
        self.state = PENDING
        self.pending = 0
        """Dependencies that have not ended."""
        self.doubt: Doubt | None = None
        self.blame: Blame | None = None
        """Set when it ends badly."""
        self.shut = False
        """Ended badly for more than its host: a gate behind it closes. (A failed host only leaves the run.)"""
        self.edges: list[tuple[Act, int]] | None = None
        """Who waits for this very action, beside the node's edges: fragments, and those who wait for their exits."""
        self.watch: list[tuple[Gate, Watch]] | None = None
        """Gates that wait for this very action, not for the whole node."""

    def hear(self, source: Act, on: int) -> None:
        """The action this one waits for has ended."""
        if on == ON_SUCCESS:
            if source.blame is not None:
                doubt = self._doubting()
                doubt.accuse(further(source.blame))
                doubt.shut |= source.shut
                if source.host != self.host and not source.shut:
                    self._leave_behind({source.host: source.blame}, 1)
            if source.out is not None:
                self._leave_behind(*source.out)
        elif on == ON_FAILURE:
            self._hope(source.state in (FAILED, IGNORED))

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
            self._hope(gate.failed)

    @property
    def out(self) -> tuple[dict[str, Blame], int] | None:
        """Hosts that have left the run before it, and from how many edges away who waits for it sees the blame.

        What was cancelled has perhaps not heard of all of them, and closes what is behind it anyway; nor has what does
        not run because another host was chosen, and that one has.
        """
        doubt = self.doubt
        if doubt is None or doubt.out is None or self.state == CANCELLED or self.aside:
            return None
        return doubt.out, doubt.far + 1

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

    def _hope(self, met: bool) -> None:
        doubt = self._doubting()
        doubt.unmet |= not met
        doubt.met |= met

    def _doubting(self) -> Doubt:
        if self.doubt is None:
            self.doubt = Doubt()
        return self.doubt


class Node:
    """A node inside the scheduler: its actions (or gates) and what they add up to."""

    __slots__ = (
        *("at", "bad", "children", "digest", "edges", "fails", "final", "gate", "gates", "group", "hi", "host", "id"),
        *("left", "limit", "owner", "parts", "passes", "pause", "pausing", "rank", "spec", "status"),
    )

    def __init__(self, spec: ExecutionNode, rank: int, owner: Node | None) -> None:
        self.spec = spec
        self.id = spec.id
        self.gate = spec.is_gate
        self.rank = rank
        self.hi: int = -1 if owner is None else owner.hi
        """Place in graph order of what its fragments add: right behind the last action of the graph's own node."""
        self.owner = owner
        """For a node of a fragment: the node that returned it."""
        self.children: tuple[Node, ...] = ()
        self.digest = ""
        """For a node of a fragment: what defines it, to tell the same one from a clash."""
        self.at: dict[str, Act] = {}
        self.parts: tuple[Gate, ...] = ()
        """For a gate: one for each time it was added; for a node without hosts: what stands in for it."""
        self.group: tuple[Node, ...] = ()
        """For a gate: the nodes that run once, on the host that it chooses."""
        self.host: str | None = None
        """For a node that runs once: its host, once that is chosen; empty if it does not run on the chosen one."""
        self.limit: Pool | None = None
        """The pool of the node's own limit, if it has one."""
        self.pause: Act | None = None
        self.pausing: tuple[Gate, ...] = ()
        self.left = 0
        """Actions and parts that have not ended."""
        self.bad: list[Act] = []
        self.passes = False
        """Some of its actions know of hosts that have left the run."""
        self.fails = 0
        """Failed actions, ignored ones aside."""
        self.edges: list[tuple[dict[str, Act], int]] = []
        """Who waits for this node on the same host: their actions by host, and for which outcome."""
        self.gates: tuple[tuple[Gate, Watch], ...] = ()
        """Gates that wait for all its hosts."""
        self.final = False
        """Has ended, and no fragment can add to it any more."""
        self.status = Status.PENDING
        """What it has come to, once it is final."""

    @property
    def size(self) -> int:
        """How many hosts it has; of those that it could run on once only the chosen one counts."""
        return bool(self.host) if self.spec.once else len(self.at)

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
        *("blame", "ended", "failed", "fails", "left", "limit", "node", "out", "relay", "seen", "sources"),
        *("targets", "then", "unmet", "watches"),
    )

    def __init__(self, node: Node, *, relay: bool = False) -> None:
        self.node = node
        self.relay = relay
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

    @property
    def batch(self) -> bool:
        """Whether it stands between two batches."""
        return self.node.spec.batch_budget is not None and not self.relay
