"""Random graphs, outcomes and fragments, all decided by a string of bytes, so that hypothesis can make them smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from kubexm_exec.model.graph import (
    Constraints,
    Dependency,
    ExecutionGraph,
    ExecutionNode,
    FailurePolicy,
    GraphHost,
    Hook,
    Mode,
    NodeKind,
    On,
    Policy,
)

T = TypeVar("T")

decisions = st.one_of(
    # The first can be made smaller by hypothesis, the second are more varied.
    st.binary(min_size=240, max_size=240),
    st.integers(0, 2**32 - 1).map(lambda seed: Random(seed).randbytes(240)),
)
"""Bytes for ``make_case``."""

HOSTS = ("h1", "h2", "h3", "h4")
BUDGETS = ("0", "0", "0", "1", "50%", "2")


class Choices:
    """Takes one decision after another from bytes; when they are used up, the first choice, which is the simplest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, limit: int) -> int:
        """A number from 0 on."""
        self._at += 1
        return self._data[self._at - 1] % limit if self._at <= len(self._data) else 0

    def one_in(self, many: int) -> bool:
        """True in one of so many cases."""
        return self.below(many) == many - 1

    def of(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.below(len(options))]

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Up to so many of them, each at most once."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(min(self.below(most + 1), len(left)))]

    def subset(self, options: Sequence[T]) -> tuple[T, ...]:
        """At least one of them, in order."""
        bits = self.below(2 ** len(options) - 1) + 1
        return tuple(option for number, option in enumerate(options) if bits >> number & 1)


@dataclass(frozen=True)
class Case:
    """A graph with what belongs to it."""

    graph: ExecutionGraph
    forks: int
    seed: int
    """Decides outcomes and fragments, by the name of the action: whatever the interleaving, they are the same."""

    def dice(self, *names: str) -> Random:
        """Chance that depends only on names."""
        return Random(f"{self.seed} {' '.join(names)}")

    def outcome(self, node: str, host: str) -> str:
        """What an action comes to."""
        return self.dice("outcome", node, host).choice(["ok"] * 5 + ["fail"] * 3 + ["satisfied", "when"])

    def returns(self, node: str, host: str) -> bool:
        """Whether an action returns a fragment."""
        return node.count("+") < 2 and self.dice("returns", node, host).random() < 0.25

    def fragment(self, node: ExecutionNode, host: str, *, mixed: bool) -> list[ExecutionNode]:
        """The fragment that a node returns: the same nodes for every host, on that host or elsewhere.

        Not ``mixed``: all of it on the host, or all of it elsewhere; otherwise it is decided for each step.
        """
        dice = self.dice("fragment", node.id)
        # When a percentage of a growing node is exceeded is a matter of order, and so is what a stop finds then.
        budgets = BUDGETS if self.graph.failure_policy is FailurePolicy.CONTINUE else ("0", "1")
        away = dice.random() < 0.3
        nodes: list[ExecutionNode] = []
        for letter in "xyz"[: dice.randint(1, 3)]:
            if mixed:
                away = dice.random() < 0.3
            before = [one.id for one in nodes if dice.random() < 0.6] or [node.id]
            on = dice.choice([On.SUCCESS, On.SUCCESS, On.SUCCESS, On.DONE, On.FAILURE])
            if dice.random() < 0.4:
                steps = [one.id for one in nodes] + [node.id]
                gate = f"{node.id}+{letter}#begin"
                waits = tuple(Dependency(name, Mode.BARRIER, on) for name in before if name in steps)
                nodes.append(ExecutionNode(id=gate, kind=NodeKind.GATE, dependencies=waits))
                before, on = [gate], On.SUCCESS
            gates = {one.id for one in nodes if one.is_gate}
            nodes.append(
                ExecutionNode(
                    id=f"{node.id}+{letter}",
                    hosts=tuple(dice.sample(HOSTS, dice.randint(0, 2))) if away else (host,),
                    # Each host that returns it may be served at a place of its own.
                    places={host: self.dice("place", node.id, host).choice(HOSTS)} if dice.random() < 0.2 else {},
                    dependencies=tuple(
                        Dependency(name, Mode.BARRIER if name in gates else Mode.HOST, on) for name in before
                    ),
                    hook=node.hook,
                    policy=Policy(max_failures=dice.choice(budgets), ignore_errors=dice.random() < 0.1),
                    constraints=Constraints(locks=("p",) if dice.random() < 0.2 else ()),
                    skip="not selected" if dice.random() < 0.05 else "",
                )
            )
        if dice.random() < 0.5:
            waits = tuple(Dependency(one.id, Mode.BARRIER) for one in nodes)
            nodes.append(ExecutionNode(id=f"{node.id}+#end", kind=NodeKind.GATE, dependencies=waits))
        return nodes


def make_case(data: bytes, *, policies: bool = False) -> Case:
    """A case decided by these bytes; ``policies``: not only ``continue``."""
    choose = Choices(data)
    hosts = HOSTS[: 1 + choose.below(4)]
    policy = choose.of([FailurePolicy.CONTINUE, *FailurePolicy]) if policies else FailurePolicy.CONTINUE
    nodes: list[ExecutionNode] = []
    for number in range(1 + choose.below(11)):
        before = choose.some(nodes, 3)
        if choose.one_in(3):
            nodes.append(_gate(choose, f"g{number}", before, hosts, batch=policy is FailurePolicy.CONTINUE))
        else:
            nodes.append(_step(choose, f"n{number}", before, hosts))
    if choose.one_in(4):
        nodes += _batched(choose, hosts, [node for node in nodes if node.is_gate], policy)
    if policy is FailurePolicy.CONTINUE and choose.one_in(3):
        nodes += _once(choose, hosts, nodes)
    order = list(nodes)
    if choose.one_in(3):
        Random(choose.below(256)).shuffle(order)
    graph = ExecutionGraph(
        name="random",
        nodes={node.id: node for node in order},
        hosts={host: GraphHost(host, per_host_limit=1 + choose.below(3)) for host in hosts},
        scopes={},
        failure_policy=policy,
        locks={"p": 1 + choose.below(2)},
    )
    return Case(graph, forks=1 + choose.below(6), seed=choose.below(256) * 256 + choose.below(256))


def _dependencies(
    choose: Choices, before: Sequence[ExecutionNode], hosts: Sequence[str], *, gate: bool, on: On | None
) -> tuple[Dependency, ...]:
    return tuple(
        Dependency(
            node.id,
            Mode.BARRIER if gate or node.is_gate else Mode.HOST,
            on or choose.of([On.SUCCESS, On.SUCCESS, On.SUCCESS, On.FAILURE, On.DONE]),
            choose.subset(hosts) if choose.one_in(4) else None,
        )
        for node in before
    )


def _step(choose: Choices, name: str, before: Sequence[ExecutionNode], hosts: Sequence[str]) -> ExecutionNode:
    hook = choose.of([Hook.NONE, Hook.NONE, Hook.NONE, Hook.ALWAYS, Hook.ON_FAILURE, Hook.POST])
    on = On.DONE if hook is Hook.ALWAYS else None
    item = choose.one_in(6)
    own = () if choose.one_in(12) else choose.subset(hosts)
    return ExecutionNode(
        id=f"loop[{name}]" if item else name,
        has_item=item,
        item=name,
        hosts=own,
        places={host: choose.of(hosts) for host in own} if choose.one_in(4) else {},
        dependencies=_dependencies(choose, before, hosts, gate=False, on=on),
        hook=hook,
        policy=Policy(max_failures=choose.of(BUDGETS), ignore_errors=choose.one_in(8)),
        constraints=Constraints(
            global_limit=choose.of([None, None, None, 1, 2]),
            per_host_limit=1 if item or choose.one_in(8) else None,
            locks=choose.of([(), (), (), ("p",), ("q",), ("p", "q"), ("p", "p")]),
        ),
        skip="not selected" if choose.one_in(10) else "",
    )


def _gate(
    choose: Choices, name: str, before: Sequence[ExecutionNode], hosts: Sequence[str], *, batch: bool
) -> ExecutionNode:
    return ExecutionNode(
        id=name,
        kind=NodeKind.GATE,
        dependencies=_dependencies(choose, before, hosts, gate=True, on=None),
        batch_budget=choose.of(BUDGETS) if batch and choose.one_in(4) else None,
        pause=5.0 if choose.one_in(5) else 0.0,
    )


def _once(choose: Choices, hosts: Sequence[str], before: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """A task that runs once, as the compiler makes it: on the first of its hosts that is still in the run."""
    hook = choose.of([Hook.NONE, Hook.NONE, Hook.NONE, Hook.ALWAYS, Hook.ON_FAILURE])
    waits = _dependencies(choose, choose.some(before, 3), hosts, gate=True, on=On.DONE if hook is Hook.ALWAYS else None)
    of = choose.subset(hosts)
    if choose.one_in(2):
        of = tuple(reversed(of))
    opens = ExecutionNode(id="o#once", kind=NodeKind.GATE, dependencies=waits, candidates=of, hook=hook)
    made = [opens]
    for number in range(1 + choose.below(3)):
        some = of if choose.one_in(2) else choose.subset(of)
        made.append(
            ExecutionNode(
                id=f"o{number}",
                hosts=of[:1] if of[0] in some else (),
                once="o#once",
                candidates=some,
                dependencies=(
                    Dependency("o#once", Mode.BARRIER),
                    *(Dependency(one.id) for one in made[-1:] if not one.is_gate),
                ),
                hook=hook,
                policy=Policy(ignore_errors=choose.one_in(8)),
                skip="not selected" if choose.one_in(10) else "",
            )
        )
    end = ExecutionNode(
        id="o#end", kind=NodeKind.GATE, dependencies=tuple(Dependency(n.id, Mode.BARRIER) for n in made)
    )
    after = ExecutionNode(id="oafter", hosts=tuple(hosts), dependencies=(Dependency("o#end", Mode.BARRIER),))
    return [*made, end, after]


def _batched(
    choose: Choices, hosts: Sequence[str], gates: Sequence[ExecutionNode], policy: FailurePolicy
) -> list[ExecutionNode]:
    """A task as the compiler makes it: two steps, host after host; perhaps behind a gate."""
    budget, pause = choose.of(BUDGETS), 5.0 if choose.one_in(3) else 0.0
    opens = [Dependency(choose.of(gates).id, Mode.BARRIER)] if gates and choose.one_in(2) else []
    first = ExecutionNode(
        id="t1",
        hosts=tuple(hosts),
        dependencies=(*opens, *(Dependency(f"batch{host}", Mode.BARRIER, hosts=(host,)) for host in hosts[1:])),
        policy=Policy(max_failures=choose.of(BUDGETS)),
    )
    second = replace(first, id="t2", dependencies=(Dependency("t1"),))
    made = [first, second]
    for earlier, host in pairwise(hosts):
        waits = [Dependency(name, Mode.BARRIER, hosts=(earlier,)) for name in ("t1", "t2")]
        if len(made) > 2:
            waits.append(Dependency(made[-1].id, Mode.BARRIER))
        made.append(
            ExecutionNode(
                id=f"batch{host}",
                kind=NodeKind.GATE,
                dependencies=tuple(waits),
                batch_budget=budget if policy is FailurePolicy.CONTINUE else None,
                pause=pause,
            )
        )
    members = tuple(Dependency(node.id, Mode.BARRIER) for node in made)
    end = ExecutionNode(id="t#end", kind=NodeKind.GATE, dependencies=members)
    return [*made, end, ExecutionNode(id="t3", hosts=tuple(hosts), dependencies=(Dependency("t#end", Mode.BARRIER),))]
