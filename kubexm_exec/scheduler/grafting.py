"""Grafts a fragment that a running action has returned onto the board, before everything that waits for that action."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from kubexm_exec.model.graph import Dependency, ExecutionNode, digest
from kubexm_exec.scheduler.setup import Board, chosen, link_gates, watch_some
from kubexm_exec.scheduler.state import ON, ON_DONE, ON_SUCCESS, PENDING, Act, Blame, Gate, Node, Watch, further
from kubexm_exec.scheduler.validate import check

_EDGES: Final = 2
"""From a gate over the action that waits for it to what that action returns."""


class Graft:
    """One fragment, returned by one action.

    Its nodes may be there already, from another host: then the hosts are added, each once. An action that is there
    already keeps its dependencies. A gate is a gate of its own for each fragment that names it: it waits for the
    actions of this fragment, however many hosts return the same one later. A dependency on the node that returned the
    fragment is one on the action that returned it, wherever the waiting node runs.
    """

    def __init__(self, board: Board, act: Act, specs: Sequence[ExecutionNode]) -> None:
        self._specs = {spec.id: spec for spec in specs}
        self._board = board
        self._act = act
        self._owner = act.node
        self._digests = self._check(specs)
        self.new: list[Act] = []
        """Actions that were not there before."""
        self.gates: dict[str, Gate] = {}
        """Gates of this fragment, and relays for its nodes without hosts."""
        self._outside: dict[frozenset[str], Gate] = {}
        """What stands in for the gates at its end for those who are in some of its groups only."""
        self._acts: dict[str, list[Act]] = {}
        self._followed: set[Act | Gate] = set()
        """Not exits: something in the fragment waits for them."""
        self._made: list[Gate] = []
        """Gates that have been added for it, or for what its actions had returned before it named them, too."""

    def apply(self) -> None:
        """Change the board."""
        for spec in self._specs.values():
            self._set_up(spec)
        new = set(self.new)
        for spec in self._specs.values():
            for dep in spec.dependencies:
                if spec.id in self.gates:
                    self._wire_gate(self.gates[spec.id], dep)
                else:
                    self._wire_step(spec.id, dep, new)
        self._hold_back_actions()
        self._hold_back_gates()
        self._act.shared = self._left_before()
        self._act.grafts += (self,)

    def _left_before(self) -> tuple[dict[str, Blame], int] | None:
        """The hosts that have left the run, as far as every action knows that may return the same fragment.

        What only some of them know would make a difference by who is first. Who waits for the fragment waits for the
        action as well, and hears the rest from there.
        """
        root = self._act.root or self._act
        if root.out is None:
            return None
        if root.node.certain is None:
            root.node.certain = tuple(_certain(self._board, root.node))
        left: dict[str, Blame] = {}
        for gate, edges, hosts in root.node.certain:
            if root.host in hosts:
                for host, blame in gate.out.items():
                    # Its own may have been rescued.
                    if host in root.out[0] or host != root.host:
                        seen = further(blame, edges)
                        left[host] = min(seen, left.get(host, seen))
        return left, _EDGES

    def open_gates(self) -> Iterator[Gate]:
        """The gates that wait for nothing."""
        return (gate for gate in (*self.gates.values(), *self._made) if not gate.left)

    def _check(self, specs: Sequence[ExecutionNode]) -> dict[str, str]:
        """Raise ValueError if the fragment does not fit; what defines each node otherwise."""
        if len(self._specs) != len(specs):
            raise ValueError(f"the fragment of {self._owner.id} has two nodes of the same name")
        check(self._specs, self._owner.id)
        digests = {}
        for spec in specs:
            if (
                spec.candidates
                and self._act.out is not None
                and not self._act.out[0].keys().isdisjoint(spec.candidates)
            ):
                raise ValueError(f"{spec.id} runs once, on {spec.candidates[0]}, which has left the run")
            content = spec.content()
            for key in ("hosts", "places", "choices", "choice"):
                content.pop(key, None)
            if self._owner.spec.loop is not None:
                # Which item follows which is a matter of the host.
                content.pop("dependencies", None)
            digests[spec.id] = digest(content)
            known = self._board.nodes.get(spec.id)
            if known is not None and (known.owner is not self._owner or known.digest != digests[spec.id]):
                raise ValueError(
                    f"{spec.id} exists already and is something else: give the fragment's step another name"
                )
        return digests

    def _set_up(self, spec: ExecutionNode) -> None:
        board, owner = self._board, self._owner
        node = board.nodes.get(spec.id)
        if node is None:
            node = board.nodes[spec.id] = Node.of(spec, owner.rank, owner)
            node.digest = self._digests[spec.id]
            owner.children += (node,)
        if spec.is_gate or not spec.hosts:
            self.gates[spec.id] = board.add_gate(node, relay=not spec.is_gate)
            return
        acts = self._acts[spec.id] = []
        for host in spec.hosts:
            act = node.at.get(host)
            if act is None:
                act = board.add_act(node, host, spec.place(host), spec.places_for(host))
                act.join(self._act.rescues)
                act.root = self._act.root or self._act
                self.new.append(act)
            acts.append(act)

    def _wire_step(self, name: str, dep: Dependency, new: set[Act]) -> None:
        on = ON[dep.on]
        here = {act.host: act for act in self._acts[name]}
        waiting = list(here.values()) if dep.hosts is None else chosen(here, dep.hosts)
        if dep.node == self._owner.id:
            for act in waiting:
                if act in new:
                    link_acts(self._act, act, on)
        elif dep.node in self.gates:
            gate = self.gates[dep.node]
            if not gate.relay and waiting:
                self._followed.add(gate)
                for act in waiting:
                    if act in new:
                        link_gate(gate, act, on)
        else:
            sources = {act.host: act for act in self._acts[dep.node]}
            for act in waiting:
                source = sources.get(act.host)
                if source is not None:
                    self._followed.add(source)
                    if act in new:
                        self._wait(act, source, on)

    def _wire_gate(self, gate: Gate, dep: Dependency) -> None:
        on = ON[dep.on]
        if dep.node in self.gates:
            source = self.gates[dep.node]
            if not (gate.relay and source.relay):
                self._followed.add(source)
                link_gates(source, gate, on)
        elif not gate.relay:
            if dep.node == self._owner.id:
                node, acts = self._owner, [self._act]
            else:
                acts = self._acts[dep.node]
                node = acts[0].node
                if dep.hosts is not None:
                    acts = chosen({act.host: act for act in acts}, dep.hosts)
                self._followed.update(acts)
            watch = Watch(node, on, members=set(), partial=True)
            gate.watches.append(watch)
            self._watch(gate, watch, acts, grown=dep.node != self._owner.id)

    def _wait(self, to: Act, source: Act, on: int) -> None:
        """An action waits for one of the fragment, and for what that one has returned already, for another host."""
        link_acts(source, to, on)
        for graft in source.grafts:
            self._made += graft.hold_back(to, on)

    def _watch(self, gate: Gate, watch: Watch, acts: Iterable[Act], *, grown: bool = True) -> None:
        """The same for a gate; not ``grown``: only for the actions."""
        watch_some(gate, watch, acts)
        for act in acts if grown else ():
            for graft in act.grafts:
                graft.hold_back_gate(gate, watch)

    def _hold_back_actions(self) -> None:
        """Whoever waits for the action waits for the exits of the fragment on that host, and for its exit gates."""
        act, owner = self._act, self._owner
        waiting = [(at[act.host], on) for at, on in owner.edges if act.host in at]
        # What the same node has returned before also waits for the action, but not for what it returns later.
        waiting += [edge for edge in act.edges or () if edge[0].node.owner is not owner]
        for to, on in waiting:
            if to.state == PENDING:
                self._made += self.hold_back(to, on)

    def hold_back(self, to: Act, on: int) -> list[Gate]:
        """Have an action wait for the exits of the fragment; gates that had to be added for that."""
        owner, host = self._owner, self._act.host
        known, self._made = self._made, []
        for acts in self._acts.values():
            for source in acts:
                # Of a loop all items count: one that failed has failed, whichever was to come after it.
                if source.host == host and (source not in self._followed or owner.spec.loop is not None):
                    self._wait(to, source, on)
        for gate in self._gates_for(to, [gate for gate in self.gates.values() if gate not in self._followed]):
            link_gate(gate, to, on)
        made, self._made = self._made, known
        return made

    def _gates_for(self, to: Act, exits: Sequence[Gate]) -> Sequence[Gate]:
        """The gates at the end of the fragment as an action sees them: outside a group with what its rescue did."""
        around = [rescue for rescue, _ in self._act.rescues]
        inside = frozenset(rescue.group for rescue in around if to.is_inside(rescue))
        if not exits or len(inside) == len(around):
            return exits
        if inside not in self._outside:
            gate = self._outside[inside] = self._board.add_gate(exits[0].node)
            self._made.append(gate)
            gate.groups = inside
            for acts in self._acts.values():
                watch = Watch(acts[0].node, ON_SUCCESS, members=set(), partial=True)
                gate.watches.append(watch)
                self._watch(gate, watch, acts)
            for inner in self.gates.values():
                link_gates(inner, gate, ON_DONE)
        return [self._outside[inside]]

    def _hold_back_gates(self) -> None:
        """Gates that wait for the action wait for all of the fragment."""
        for gate, watch in [*self._owner.gates, *(self._act.watch or ())]:
            if gate.node.owner is not self._owner:
                self.hold_back_gate(gate, watch)

    def hold_back_gate(self, gate: Gate, watch: Watch) -> None:
        """Have a gate that waits for the action wait for all of the fragment."""
        for acts in self._acts.values():
            node = acts[0].node
            grown = watch.grown.get(node)
            if grown is None:
                grown = Watch(node, watch.on, members=set(), partial=watch.partial)
                watch.grown[node] = grown
                gate.watches.append(grown)
            self._watch(gate, grown, acts)
        for inner in self.gates.values():
            # Inside a group it has perhaps closed because of what a rescue handles; the actions tell what counts.
            link_gates(inner, gate, watch.on if inner.groups <= gate.groups else ON_DONE)


def _certain(board: Board, node: Node) -> Iterator[tuple[Gate, int, Collection[str]]]:
    """See ``Node.certain``; what the graph says, not what fragments have added to it by now."""
    heard: dict[Gate, tuple[int, set[str]]] = {}
    seen: dict[str, set[str]] = {}
    waiting = [(node, set(node.at))]
    while waiting:
        step, hosts = waiting.pop()
        if hosts <= seen.setdefault(step.id, set()):
            continue
        seen[step.id] |= hosts
        for dep in step.spec.dependencies:
            if ON[dep.on] != ON_SUCCESS:
                continue
            source = board.nodes[dep.node]
            some = hosts if dep.hosts is None else hosts.intersection(dep.hosts)
            if source.at:
                waiting.append((source, some & source.at.keys()))
            elif source.gate:
                for gate, edges in _before(source.parts[0], only_success=True).items():
                    near, known = heard.get(gate, (edges, set()))
                    heard[gate] = min(near, edges), known | some
    around = {each.group for each in node.spec.groups}
    for gate, (edges, hosts) in heard.items():
        earlier = {
            act.host
            for each in _before(gate, only_success=False)
            for watch in each.watches
            if watch.node is node
            for act in (node.at.values() if watch.members is None else watch.members)
        }
        # What a gate inside a group has seen, a rescue may handle.
        if hosts | earlier >= node.at.keys() and gate.groups <= around:
            yield gate, edges, hosts


def _before(gate: Gate, *, only_success: bool) -> dict[Gate, int]:
    """A gate and those that it waits for in the graph, directly or over others, with the edges between."""
    found = {gate: 0}
    waiting = deque([gate])
    while waiting:
        to = waiting.popleft()
        for source, on in to.sources:
            if source not in found and source.node.owner is None and (on == ON_SUCCESS or not only_success):
                found[source] = found[to] + 1
                waiting.append(source)
    return found


def link_acts(source: Act, to: Act, on: int) -> None:
    """One action waits for another, which may have ended already."""
    if source.is_known_to(to):
        to.hear(source, on)
        return
    if source.edges is None:
        source.edges = []
    source.edges.append((to, on))
    to.pending += 1


def link_gate(gate: Gate, to: Act, on: int) -> None:
    """An action waits for a gate of its own fragment, or of one it is held back by, which may have opened already."""
    if gate.ended:
        to.hear_gate(gate, on)
        return
    gate.targets.append(((to,), on))
    to.pending += 1
