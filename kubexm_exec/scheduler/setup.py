"""Sets up the scheduler's board: nodes, actions and gates of a graph, counted and wired to their dependents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, Part
from kubexm_exec.scheduler.limits import MASK, SHIFT, Limits, Pool
from kubexm_exec.scheduler.state import ON, ON_BEGUN, Act, Action, Gate, Node, Rescue, Watch
from kubexm_exec.scheduler.validate import check


class Board:
    """Everything a run of a graph has: the nodes by id, the actions by name and in the order they were set up."""

    def __init__(self, graph: ExecutionGraph, forks: int) -> None:
        self.limits = Limits(forks)
        self.nodes: dict[str, Node] = {}
        self.acts: dict[Action, Act] = {}
        self.order: list[Act] = []
        """All actions and pauses, by the index in their key."""
        self.gates = 0
        """Gates that have not opened."""
        self._locks = {name: self.limits.pool(size, f"lock {name}") for name, size in graph.locks.items()}
        self._hosts = {
            host.name: (self.limits.pool(host.per_host_limit, f"host {host.name}"),) for host in graph.hosts.values()
        }
        self._families: dict[tuple[str, str], Pool] = {}
        self._rescues: dict[tuple[str, str], Rescue] = {}
        """Groups with a rescue, by id and host."""
        check(graph.nodes)
        for rank, spec in enumerate(graph.nodes.values()):
            self._set_up(spec, rank)
        self._set_up_rescues()
        for node in self.nodes.values():
            self._wire(node)

    def add_act(self, node: Node, host: str, place: str, choice: tuple[str, ...]) -> Act:
        """A new action of a node for a host; limits are counted at its place, which may be one of a choice."""
        act = node.at[host] = self._add(node, host, self._needs(node, place), choice)
        node.left += 1
        return act

    def _set_up_rescues(self) -> None:
        grouped = [node for node in self.nodes.values() if node.spec.groups and node.at]
        for node in grouped:
            for each in node.spec.groups:
                if each.part is Part.RESCUE:
                    for host in node.at:
                        rescue = self._rescues.setdefault((each.group, host), Rescue(each.group, host))
                        rescue.able |= not node.spec.skip
        for node in grouped:
            for act in node.at.values():
                act.join(
                    (self._rescues[each.group, act.host], each.part is Part.BODY)
                    for each in node.spec.groups
                    if each.part is not Part.ALWAYS and (each.group, act.host) in self._rescues
                )

    def add_gate(self, node: Node, *, relay: bool = False) -> Gate:
        """A new gate with the pause before it opens, if there is one; or a relay for a node without hosts."""
        gate = Gate(node, relay=relay)
        node.parts += (gate,)
        node.left += 1
        self.gates += 1
        if node.spec.pause > 0 and node.pause is None and not relay:
            node.pause = self._add(node, "", ())
        return gate

    def move(self, act: Act, place: str) -> None:
        """The action, which holds no limit at the moment, works at another place."""
        self.limits.needs[act.key & MASK] = self._needs(act.node, place)

    def _add(self, node: Node, host: str, needs: tuple[Pool, ...], places: tuple[str, ...] = ()) -> Act:
        index = len(self.order)
        action = Action(node.id, host)
        act = Act(action, node, (index if node.hi < 0 else node.hi) << SHIFT | index, host, places=places)
        self.order.append(act)
        self.acts[action] = act
        self.limits.needs.append(needs)
        return act

    def _set_up(self, spec: ExecutionNode, rank: int) -> None:
        node = Node.of(spec, rank)
        self.nodes[spec.id] = node
        hosts = node.hosts
        if node.gate:
            self.add_gate(node)
        elif not hosts:
            self.add_gate(node, relay=True)
        elif spec.places or spec.choices:
            for host in hosts:
                self.add_act(node, host, spec.place(host), spec.places_for(host))
        else:
            for host in hosts:
                self.add_act(node, host, host, ())
        # Not before: up to here each action has a place of its own. What fragments add comes behind the last one.
        node.hi = len(self.order) - 1 if self.order else 0

    def _needs(self, node: Node, place: str) -> tuple[Pool, ...]:
        """The pools an action takes from: the scarcest first, since it is there that it will be parked."""
        at_host = self._hosts.get(place)
        if at_host is None:
            at_host = self._hosts[place] = (self.limits.pool(1, f"host {place}"),)
        limits = node.spec.constraints
        if not limits.locks and limits.global_limit is None and limits.per_host_limit is None:
            return at_host
        needs = []
        for name in dict.fromkeys(limits.locks):
            if name not in self._locks:
                self._locks[name] = self.limits.pool(1, f"lock {name}")
            needs.append(self._locks[name])
        if limits.global_limit is not None:
            if node.limit is None:
                node.limit = self.limits.pool(limits.global_limit, node.id)
            needs.append(node.limit)
        if limits.per_host_limit is not None:
            # It is the items of a loop, all of one step, that can meet at a host; and what it does there for others.
            family = (node.id.rpartition("[")[0] if node.spec.is_item else node.id, place)
            if family not in self._families:
                self._families[family] = self.limits.pool(limits.per_host_limit, f"{family[0]} on {place}")
            needs.append(self._families[family])
        return (*needs, *at_host)

    def _wire(self, node: Node) -> None:
        """Count the dependencies of a node, and register it with each of them."""
        if node.spec.once and node.at:
            self.nodes[node.spec.once].group += (node,)
        everybody = 0
        for dep in node.spec.dependencies:
            source, on = self.nodes[dep.node], ON[dep.on]
            if node.parts:
                wire_gate(node.parts[0], source, dep)
            elif source.gate:
                acts: Collection[Act] = node.at.values() if dep.hosts is None else chosen(node.at, dep.hosts)
                source.parts[0].targets.append((acts, on))
                if dep.hosts is None:
                    everybody += 1
                else:
                    for act in acts:
                        act.pending += 1
            elif source.at:
                at = node.at if dep.hosts is None else {act.host: act for act in chosen(node.at, dep.hosts)}
                if on == ON_BEGUN:
                    # On some hosts there may be nothing that could begin.
                    for act in at.values():
                        act.hope(False)
                source.edges.append((at, on))
                if at is node.at and source.hosts == node.hosts:
                    everybody += 1
                else:
                    for host, act in at.items():
                        act.pending += host in source.at
        if everybody:
            for act in node.at.values():
                act.pending += everybody


def wire_gate(gate: Gate, source: Node, dep: Dependency) -> None:
    """A gate of the graph waits for a node, or a relay for a gate (with no hosts it waits for nothing on a host)."""
    on = ON[dep.on]
    if source.parts:
        if source.gate or not gate.relay:
            link_gates(source.parts[0], gate, on)
    elif gate.relay:
        return
    elif dep.hosts is None and not gate.node.spec.groups:
        watch = Watch(source, on, members=None, partial=False)
        gate.watches.append(watch)
        source.gates += ((gate, watch),)
        gate.left += 1
    else:
        watch = Watch(source, on, members=set(), partial=True)
        gate.watches.append(watch)
        # Between steps of a group each action counts as soon as it has ended, whatever its node comes to.
        watch_some(gate, watch, source.at.values() if dep.hosts is None else chosen(source.at, dep.hosts))


def link_gates(source: Gate, gate: Gate, on: int) -> None:
    """One gate waits for another."""
    gate.sources.append((source, on))
    if not source.ended:
        source.then.append(gate)
        gate.left += 1


def watch_some(gate: Gate, watch: Watch, acts: Iterable[Act]) -> None:
    """A gate waits for these very actions, each once."""
    members = watch.members
    assert members is not None
    for act in acts:
        if act not in members:
            members.add(act)
            if not act.is_known_to(gate):
                if act.watch is None:
                    act.watch = []
                act.watch.append((gate, watch))
                gate.left += 1


def chosen(at: Mapping[str, Act], hosts: Iterable[str]) -> list[Act]:
    """The actions on some hosts."""
    return [at[host] for host in dict.fromkeys(hosts) if host in at]
