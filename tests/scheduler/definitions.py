"""What a graph and its fragments mean, edge by edge: for each action and each gate the list of what it waits for."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, On, Part

Act = tuple[str, str]
"""(node, host)"""
Door = tuple[str, int]
"""(gate, or node without hosts; the how-many-eth time it was added)"""


@dataclass
class Look:
    """What a gate waits for in one node: these hosts, by now."""

    node: str
    on: On
    hosts: set[str]
    whole: bool
    """It waits for all that the node will ever have."""
    grown: dict[str, Look] = field(default_factory=dict)
    """What fragments of the node have added."""


@dataclass
class Definition:
    """What a gate waits for."""

    relay: bool
    looks: list[Look] = field(default_factory=list)
    doors: list[tuple[Door, On]] = field(default_factory=list)


@dataclass
class Returned:
    """A fragment that an action has returned."""

    by: Act
    nodes: dict[str, ExecutionNode]
    parts: dict[str, Door]
    """Its gates."""
    exits: list[Act | Door]
    last: list[Door]
    """Those of them that are gates."""
    beyond: dict[frozenset[str], Door] = field(default_factory=dict)


class Definitions:
    """The graph, with all fragments so far."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.graph = graph
        self.nodes: dict[str, ExecutionNode] = dict(graph.nodes)
        self.hosts: dict[str, list[str]] = {node.id: list(node.may_run_on) for node in graph.nodes.values()}
        self.owner: dict[str, str] = {}
        """Of a fragment's node: the node that returned it."""
        self.place: dict[str, int] = {name: number for number, name in enumerate(graph.nodes)}
        self.at: dict[Act, str] = {}
        """The host that an action works on."""
        self.choices: dict[Act, tuple[str, ...]] = {}
        """The places of which an action gets one."""
        self.turn: dict[Act, tuple[int, int, int]] = {}
        """Graph order of actions and pauses."""
        self.needs: dict[Act, list[tuple[Act | Door, On]]] = {}
        self.doors: dict[Door, Definition] = {}
        self.beyond: dict[Door, frozenset[str]] = {}
        """Gates at the end of a fragment for those who are in these of its groups only."""
        self.homes: dict[Act, str] = {}
        self.returned: dict[Act, list[Returned]] = {}
        self.roots: dict[Act, Act] = {}
        """For what a fragment has added: the action of the graph that it grew from."""
        self._chains: dict[Act, list[tuple[str, Part]]] = {}
        self.rescues: dict[tuple[str, str], bool] = {}
        """The groups and hosts that have a rescue, and whether it is part of the run."""
        for node in graph.nodes.values():
            for each in node.groups:
                if each.part is Part.RESCUE:
                    for host in node.may_run_on:
                        known = self.rescues.get((each.group, host), False)
                        self.rescues[each.group, host] = known or not node.skip
        self._define()

    def rescues_of(self, act: Act) -> list[tuple[str, Part]]:
        """The groups with a rescue on its host that an action is in, the innermost first; ``always`` is outside."""
        if act not in self._chains:
            self._chains[act] = [
                (each.group, each.part)
                for each in self.nodes[act[0]].groups
                if each.part is not Part.ALWAYS and (each.group, self.home(act)) in self.rescues
            ]
        return self._chains[act]

    def home(self, act: Act) -> str:
        """The host whose rescue counts for an action: for what a fragment does elsewhere, the one that returned it."""
        return self.homes.get(act, act[1])

    def heard_by_all(self, act: Act) -> dict[str, int]:
        """Gates that an action of the graph hears of, as do all of its node that do not come before the gate.

        With the edges between the gate and the one that any of them waits for; what fragments add does not count.
        """
        name, host = act
        own = self.graph.nodes[name]
        heard = {each: self._heard(name, each) for each in own.may_run_on}
        found = {}
        for gate in heard[host]:
            early = self._waited_for(gate, name, set())
            inside = {each.group for each in self.graph.nodes[gate].groups} <= {each.group for each in own.groups}
            if inside and all(gate in gates or each in early for each, gates in heard.items()):
                found[gate] = min(gates[gate] for gates in heard.values() if gate in gates)
        return found

    def _heard(self, name: str, host: str) -> dict[str, int]:
        """The gates of the graph that an action hears of by way of successes."""
        found: dict[str, int] = {}
        for dep in self.graph.nodes[name].dependencies:
            if dep.on is On.SUCCESS and (dep.hosts is None or host in dep.hosts):
                if self.is_gate(dep.node):
                    more = self._gates_before(dep.node)
                else:
                    more = self._heard(dep.node, host) if host in self.graph.nodes[dep.node].may_run_on else {}
                for gate, edges in more.items():
                    found[gate] = min(edges, found.get(gate, edges))
        return found

    def _gates_before(self, name: str) -> dict[str, int]:
        found = {name: 0}
        for dep in self.graph.nodes[name].dependencies:
            if dep.on is On.SUCCESS and self.is_door(dep.node):
                # A node without hosts stands for the gates that it waits for.
                for gate, edges in self._gates_before(dep.node).items():
                    found[gate] = min(edges + 1, found.get(gate, edges + 1))
        return found

    def _waited_for(self, gate: str, name: str, seen: set[str]) -> set[str]:
        """The hosts on which a gate waits for a node, itself or over other gates."""
        if gate in seen:
            return set()
        seen.add(gate)
        found: set[str] = set()
        for dep in self.graph.nodes[gate].dependencies:
            if self.is_door(dep.node):
                found |= self._waited_for(dep.node, name, seen)
            elif dep.node == name and self.is_gate(gate):
                hosts = self.graph.nodes[name].may_run_on
                found |= {host for host in hosts if dep.hosts is None or host in dep.hosts}
        return found

    def is_gate(self, name: str) -> bool:
        return self.nodes[name].is_gate

    def is_door(self, name: str) -> bool:
        return self.is_gate(name) or not self.hosts[name]

    def _define(self) -> None:
        for node in self.graph.nodes.values():
            place = self.place[node.id]
            if self.is_gate(node.id):
                self.turn[node.id, ""] = (place, 0, 0)
            for number, host in enumerate(node.may_run_on):
                self.turn[node.id, host] = (place, 0, number)
                self._put(node, host)
                self.needs[node.id, host] = list(self._needs(node, host))
            if self.is_door(node.id):
                self.doors[node.id, 0] = self._door(node)

    def _put(self, node: ExecutionNode, host: str) -> None:
        self.at[node.id, host] = node.places.get(host, host)
        number = node.choice.get(host, 0)
        if node.choices and number >= 0:
            self.choices[node.id, host] = node.choices[number]

    def _needs(self, node: ExecutionNode, host: str) -> Iterator[tuple[Act | Door, On]]:
        for dep in node.dependencies:
            if dep.hosts is None or host in dep.hosts:
                if self.is_gate(dep.node):
                    yield (dep.node, 0), dep.on
                elif host in self.hosts[dep.node]:
                    yield (dep.node, host), dep.on

    def _door(self, node: ExecutionNode) -> Definition:
        door = Definition(relay=not node.is_gate)
        for dep in node.dependencies:
            if self.is_gate(dep.node) or (self.is_door(dep.node) and not door.relay):
                door.doors.append(((dep.node, 0), dep.on))
            elif not door.relay:
                chosen = set(self.hosts[dep.node]) & set(self.hosts[dep.node] if dep.hosts is None else dep.hosts)
                door.looks.append(Look(dep.node, dep.on, chosen, whole=dep.hosts is None))
        return door

    def graft(self, act: Act, nodes: Sequence[ExecutionNode], ended: Container[Act]) -> set[Act]:
        """Add a fragment that is known to be right; the new actions. Who has ended waits for nothing any more."""
        parent, host = act
        fragment = {node.id: node for node in nodes}
        was_there: set[Act] = set(self.needs)
        # Who waits for the action, before the fragment is there; what the node itself has returned does not count.
        waiting = [
            (other, on)
            for other, needs in self.needs.items()
            for need, on in needs
            if need == act and self.owner.get(other[0]) != parent and other not in ended
        ]
        watching = [
            (name, door, look)
            for name, door in self.doors.items()
            for look in door.looks
            if look.node == parent and host in look.hosts and self.owner.get(name[0]) != parent
        ]
        parts: dict[str, Door] = {}
        for node in nodes:
            if node.id not in self.nodes:
                self.nodes[node.id] = node
                self.hosts[node.id] = []
                self.owner[node.id] = parent
                self.place[node.id] = self.place[parent]
            if node.is_gate or not node.hosts:
                parts[node.id] = (node.id, sum(name == node.id for name, _ in self.doors))
                self.doors[parts[node.id]] = Definition(relay=not node.is_gate)
                if node.is_gate and (node.id, "") not in self.turn:
                    self.turn[node.id, ""] = (self.place[parent], 1, len(self.turn))
            for each in node.hosts:
                if (node.id, each) not in self.needs:
                    self.turn[node.id, each] = (self.place[parent], 1, len(self.turn))
                    self._put(node, each)
                    self.hosts[node.id].append(each)
                    self.needs[node.id, each] = []
                    self.homes[node.id, each] = self.home(act)
                    self.roots[node.id, each] = self.roots.get(act, act)
        followed: set[Act | Door] = set()
        for node in nodes:
            for dep in node.dependencies:
                for mine in [parts[node.id]] if node.id in parts else [(node.id, each) for each in node.hosts]:
                    self._link_inside(act, fragment, parts, mine, dep.node, dep.on, dep.hosts, was_there, followed)
        # Of a loop all items count, whichever follows which.
        inner = set() if self.nodes[parent].loop is not None else followed
        exits: list[Act | Door] = [
            *((name, host) for name in fragment if host in fragment[name].hosts and (name, host) not in inner),
            *(part for part in parts.values() if part not in followed),
        ]
        doors = [part for part in parts.values() if part not in followed]
        returned = Returned(act, fragment, parts, exits, doors)
        for gate, door, look in watching:
            self._look_at(gate, door, look, returned)
        for other, on in waiting:
            self._follow(other, on, returned)
        self.returned.setdefault(act, []).append(returned)
        return set(self.needs) - was_there

    def _look_at(self, gate: Door, door: Definition, look: Look, returned: Returned) -> None:
        """A gate looks at all of a fragment, and at what that has returned for others before."""
        for name, node in returned.nodes.items():
            if name in returned.parts:
                same = self.groups_of(returned.parts[name]) <= self.groups_of(gate)
                door.doors.append((returned.parts[name], look.on if same else On.DONE))
            else:
                self._look_also(door, look, name, set(node.hosts))
                self._look_deeper(gate, door, look.grown[name], node.hosts)

    def _look_deeper(self, gate: Door, door: Definition, look: Look, hosts: Iterable[str]) -> None:
        for host in hosts:
            for more in self.returned.get((look.node, host), ()):
                self._look_at(gate, door, look, more)

    def _follow(self, other: Act, on: On, returned: Returned) -> None:
        """An action waits for the exits of a fragment, and of what those have returned for others before."""
        around = {group for group, _ in self.rescues_of(returned.by)}
        inside = frozenset(around & {group for group, _ in self.rescues_of(other)})
        exits = returned.exits
        if returned.last and inside != around:
            if inside not in returned.beyond:
                returned.beyond[inside] = self._add_beyond(returned, inside)
            exits = [*(exit_ for exit_ in exits if exit_ not in returned.last), returned.beyond[inside]]
        for exit_ in exits:
            self.needs[other].append((exit_, on))
            for more in self.returned.get(exit_, ()):  # type: ignore[arg-type]
                self._follow(other, on, more)

    def _add_beyond(self, returned: Returned, groups: frozenset[str]) -> Door:
        """A gate behind a fragment for those who are in some of its groups only: what counts after the rescue."""
        name, parts = returned.last[0][0], returned.parts
        door = (name, sum(each == name for each, _ in self.doors))
        looks = [
            Look(each, On.SUCCESS, set(node.hosts), whole=False)
            for each, node in returned.nodes.items()
            if each not in parts
        ]
        made = self.doors[door] = Definition(
            relay=False, looks=looks, doors=[(part, On.DONE) for part in parts.values()]
        )
        self.beyond[door] = groups
        for look in tuple(looks):
            self._look_deeper(door, made, look, look.hosts)
        return door

    def groups_of(self, door: Door) -> frozenset[str]:
        """The groups that a gate stands in."""
        return self.beyond.get(door, frozenset(each.group for each in self.nodes[door[0]].groups))

    def _link_inside(
        self,
        act: Act,
        fragment: dict[str, ExecutionNode],
        parts: dict[str, Door],
        mine: Act | Door,
        other: str,
        on: On,
        limited: tuple[str, ...] | None,
        was_there: set[Act],
        followed: set[Act | Door],
    ) -> None:
        door = self.doors.get(mine)  # type: ignore[arg-type]
        if door is not None:
            if other in parts:
                if self.is_gate(other) or not door.relay:
                    door.doors.append((parts[other], on))
                    followed.add(parts[other])
            elif not door.relay:
                chosen = {act[1]} if other == act[0] else set(fragment[other].hosts)
                if limited is not None and other != act[0]:
                    chosen &= set(limited)
                look = Look(other, on, chosen, whole=False)
                door.looks.append(look)
                if other != act[0]:
                    followed.update((other, each) for each in chosen)
                    self._look_deeper(mine, door, look, chosen)  # type: ignore[arg-type]
            return
        here = str(mine[1])
        if limited is not None and here not in limited:
            return
        need: Act | Door
        if other == act[0]:
            need = act
        elif other in parts:
            if not self.is_gate(other):
                return
            need = parts[other]
            followed.add(need)
        elif here in fragment[other].hosts:
            need = (other, here)
            followed.add(need)
        else:
            return
        if (mine[0], here) not in was_there:
            self.needs[mine[0], here].append((need, on))
            for more in self.returned.get(need, ()) if need != act else ():  # type: ignore[arg-type]
                self._follow((mine[0], here), on, more)

    def _look_also(self, door: Definition, because: Look, name: str, hosts: set[str]) -> None:
        if name not in because.grown:
            because.grown[name] = Look(name, because.on, set(), because.whole)
            door.looks.append(because.grown[name])
        because.grown[name].hosts |= hosts
