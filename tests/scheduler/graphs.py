"""Random graphs, outcomes and fragments, all decided by a string of bytes, so that hypothesis can make them smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TypeAlias, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from kubexm_exec.model.graph import (
    Constraints,
    Dependency,
    ExecutionFragment,
    ExecutionGraph,
    ExecutionNode,
    FailurePolicy,
    GraphHost,
    Hook,
    Loop,
    Mode,
    NodeKind,
    On,
    Policy,
)
from kubexm_exec.scheduler import Action
from tests.scheduler.groups import END, grouped

T = TypeVar("T")
Late: TypeAlias = tuple[tuple[Action, tuple[tuple[str, str], ...]], ...]

decisions = st.one_of(
    # The first can be made smaller by hypothesis, the second are more varied.
    st.binary(min_size=240, max_size=240),
    st.integers(0, 2**32 - 1).map(lambda seed: Random(seed).randbytes(240)),
)
"""Bytes for ``make_case``."""

HOSTS = ("h1", "h2", "h3", "h4")
BUDGETS = ("0", "0", "0", "1", "50%", "2")
LOOP = "['a', 'b', 'c'] if host.name in ['h1', 'h3'] else ['c', 'a']"
"""The items of a loop that only the run knows."""


def items_on(host: str) -> list[str]:
    """The same for a host: each has its own, in its own order."""
    return ["a", "b", "c"] if host in ("h1", "h3") else ["c", "a"]


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
    due: tuple[tuple[str, str, str], ...] = ()
    """Notifications that were not served before: handler, host, and the node that made it."""
    owed: tuple[Action, ...] = ()
    """What is owed to an earlier session."""
    late: Late = ()
    """Those that are due where an action stands, whether that is done again or not: handlers, and who made them due."""
    generous: bool = False
    """Most actions return fragments, which mostly run elsewhere, so that several hosts return the same actions."""

    def dice(self, *names: str) -> Random:
        """Chance that depends only on names."""
        return Random(f"{self.seed} {' '.join(names)}")

    def outcome(self, node: str, host: str) -> str:
        """What an action comes to."""
        kinds = ["ok"] * 5 + ["fail"] * 2 + ["early", "satisfied", "when"]
        outcome = self.dice("outcome", node, host).choice(kinds)
        changes = outcome == "ok" and self.dice("change", node, host).random() < 0.6
        return "change" if changes else outcome

    def returns(self, node: str, host: str) -> bool:
        """Whether an action returns a fragment; a loop that only the run knows adds its items in any case."""
        return node.count("+") < 2 and self.dice("returns", node, host).random() < (0.7 if self.generous else 0.25)

    def fragment(self, node: ExecutionNode, host: str, *, mixed: bool) -> list[ExecutionNode]:
        """The fragment that a node returns: the same nodes for every host, on that host or elsewhere.

        Not ``mixed``: all of it on the host, or all of it elsewhere; otherwise it is decided for each step.
        """
        if node.loop is not None:
            return list(ExecutionFragment.of_items(node, host, [(item, item) for item in items_on(host)]).nodes)
        dice = self.dice("fragment", node.id)
        # When a percentage of a growing node is exceeded is a matter of order, and so is what a stop finds then.
        budgets = BUDGETS if self.graph.failure_policy is FailurePolicy.CONTINUE else ("0", "1")
        # Of several hosts in a group the first that returns a step elsewhere is the one that is rescued.
        fixed = bool(node.groups) and not mixed and len(self.graph.nodes[node.id.partition("+")[0]].hosts) > 1
        away = dice.random() < (0.8 if self.generous else 0.3) and not fixed
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
                nodes.append(ExecutionNode(id=gate, kind=NodeKind.GATE, dependencies=waits, groups=node.groups))
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
                    module=node.module,
                    task=node.task,
                    scope=node.scope,
                    hook=node.hook,
                    batch=node.batch,
                    groups=node.groups,
                    # Handlers wait for the host that returned it, and for no other.
                    notifies=() if away else node.notifies,
                    policy=Policy(max_failures=dice.choice(budgets), ignore_errors=dice.random() < 0.1),
                    constraints=Constraints(locks=("p",) if dice.random() < 0.2 else ()),
                    skip="not selected" if dice.random() < 0.05 else "",
                )
            )
        # The rescue of the host that returned it waits for what it does elsewhere, too, as the compiler has it.
        if dice.random() < 0.5 or (node.groups and any(one.hosts not in ((), (host,)) for one in nodes)):
            waits = tuple(Dependency(one.id, Mode.BARRIER) for one in nodes)
            end = f"{node.id}+#end"
            nodes.append(ExecutionNode(id=end, kind=NodeKind.GATE, dependencies=waits, groups=node.groups))
        return nodes


def make_case(data: bytes, *, policies: bool = False, groups: int = 0) -> Case:
    """A case decided by these bytes; ``policies``: not only ``continue``; ``groups``: one in so many has groups."""
    choose = Choices(data)
    hosts = HOSTS[: 1 + choose.below(4)]
    policy = choose.of([FailurePolicy.CONTINUE, *FailurePolicy]) if policies else FailurePolicy.CONTINUE
    nodes: list[ExecutionNode] = []
    in_groups: list[ExecutionNode] = []
    if groups and choose.one_in(groups):
        nodes = [_gate(choose, "g", (), hosts, batch=False)]
        in_groups = grouped(choose, hosts, nodes)
        if policy is not FailurePolicy.CONTINUE:
            # Which of two batches is too many first is a matter of order.
            in_groups = [replace(node, batch_budget=None) for node in in_groups]
        nodes += [node for node in in_groups if node.id == END]
    for number in range(1 + choose.below(3 if in_groups else 11)):
        before = choose.some(nodes, 3)
        if choose.one_in(3):
            nodes.append(_gate(choose, f"g{number}", before, hosts, batch=policy is FailurePolicy.CONTINUE))
        else:
            nodes.append(_step(choose, f"n{number}", before, hosts, chosen=policy is FailurePolicy.CONTINUE))
    if choose.one_in(4):
        nodes += _batched(choose, hosts, [node for node in nodes if node.is_gate], policy)
    if policy is FailurePolicy.CONTINUE and choose.one_in(3):
        nodes += _once(choose, hosts, nodes)
    nodes, due, late = _notified(choose, hosts, nodes) if choose.one_in(2) else (nodes, (), ())
    nodes += [node for node in in_groups if node.id != END]
    owed = [Action(node.id, host) for node in nodes for host in node.hosts if choose.one_in(12)]
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
    seed = choose.below(256) * 256 + choose.below(256)
    forks = 1 + choose.below(6)
    return Case(graph, forks=forks, due=due, owed=tuple(owed), seed=seed, late=late, generous=choose.one_in(4))


def _dependencies(
    choose: Choices, before: Sequence[ExecutionNode], hosts: Sequence[str], *, gate: bool, on: On | None
) -> tuple[Dependency, ...]:
    return tuple(
        Dependency(
            node.id,
            Mode.BARRIER if gate or node.is_gate else Mode.HOST,
            on or choose.of([On.SUCCESS, On.SUCCESS, On.SUCCESS, On.FAILURE, On.DONE, On.BEGUN]),
            choose.subset(hosts) if choose.one_in(4) else None,
        )
        for node in before
    )


def _budget(choose: Choices, *, counted: bool) -> str:
    """A budget; ``counted``: no percentage, of which it is a matter of order when a growing node exceeds it."""
    budget = choose.of(BUDGETS)
    return "0" if counted and budget.endswith("%") else budget


def _step(
    choose: Choices, name: str, before: Sequence[ExecutionNode], hosts: Sequence[str], *, chosen: bool
) -> ExecutionNode:
    hook = choose.of([Hook.NONE, Hook.NONE, Hook.NONE, Hook.ALWAYS, Hook.ON_FAILURE, Hook.POST])
    on = choose.of([On.DONE, On.BEGUN]) if hook is Hook.ALWAYS else None
    item = choose.one_in(6)
    own = () if choose.one_in(12) else choose.subset(hosts)
    places = {host: choose.of(hosts) for host in own} if choose.one_in(4) else {}
    choices: tuple[tuple[str, ...], ...] = ()
    choice: dict[str, int] = {}
    if chosen and choose.one_in(5):
        choices = (choose.subset(hosts), tuple(reversed(choose.subset(hosts))))
        choice = {host: choose.of([0, 1, 1, -1]) for host in own}
        places = {host: choices[choice[host]][0] for host in own}
    loop = Loop(LOOP, parallel=choose.one_in(2)) if not item and choose.one_in(6) else None
    return ExecutionNode(
        id=f"loop[{name}]" if item else name,
        loop=loop,
        has_item=item,
        item=name,
        hosts=own,
        places=places,
        choices=choices,
        choice=choice,
        dependencies=_dependencies(choose, before, hosts, gate=False, on=on),
        hook=hook,
        policy=Policy(
            max_failures=_budget(choose, counted=loop is not None and not chosen), ignore_errors=choose.one_in(8)
        ),
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


def _notified(
    choose: Choices, hosts: Sequence[str], nodes: Sequence[ExecutionNode]
) -> tuple[
    list[ExecutionNode], tuple[tuple[str, str, str], ...], tuple[tuple[Action, tuple[tuple[str, str], ...]], ...]
]:
    """The same nodes, some of which notify handlers, as the compiler makes them: a flush, more steps, and the end.

    Each handler waits for all that notify it, and the second is notified by the first as well.
    """
    names, on = ("k1", "k2"), choose.of([On.SUCCESS, On.DONE])
    # What runs aside, or on a host that is chosen later, may end after the handlers have been asked.
    steps = [node for node in nodes if not node.is_gate and node.hook is Hook.NONE]
    notifying = {node.id: replace(node, notifies=choose.subset(names)) for node in choose.some(steps, 4)}
    mine = choose.subset(hosts)
    before = tuple(Dependency(name, on=on) for name in notifying)
    made: list[ExecutionNode] = []
    if choose.one_in(2):
        for name in names:
            after = (*before, *(Dependency(one.id) for one in made))
            made.append(ExecutionNode(id=f"f{name}", hosts=mine, hook=Hook.HANDLER, handler=name, dependencies=after))
        more = tuple(Dependency(one.id, on=On.DONE) for one in made)
        made.append(ExecutionNode(id="more", hosts=choose.subset(hosts), notifies=names, dependencies=(*before, *more)))
    waits = (*before, *(Dependency(one.id, on=on) for one in made[-1:]))
    if made:
        # On hosts where nothing comes after the flush, that is what is waited for.
        waits = (*waits, *(Dependency(one.id, on=On.DONE) for one in made[:-1]))
    policy = Policy(ignore_errors=choose.one_in(6), max_failures=choose.of(BUDGETS))
    first = ExecutionNode(
        id="k1", hosts=mine, hook=Hook.HANDLER, handler="k1", notifies=("k2",), dependencies=waits, policy=policy
    )
    second = replace(first, id="k2", handler="k2", notifies=(), dependencies=(*waits, Dependency("k1")))
    for number, one in enumerate(made):
        if one.handler == "k1":
            made[number] = replace(one, notifies=("k2",))
    sources = ("gone", *notifying)
    due = tuple((choose.of(names), host, choose.of(sources)) for host in mine if choose.one_in(3))
    # A handler itself, or what it waits for.
    places = (*notifying, *(one.id for one in made), "k1")
    late = tuple(
        (Action(choose.of(places), host), tuple((name, choose.of(sources)) for name in choose.subset(names)))
        for host in mine
        if choose.one_in(3)
    )
    return [*(notifying.get(node.id, node) for node in nodes), *made, first, second], due, late


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
