"""Grafts a fragment that a running action has returned onto the board, before everything that waits for that action."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubexm_exec.model.graph import Dependency, ExecutionNode, digest
from kubexm_exec.scheduler.setup import Board, chosen, link_gates, watch_some
from kubexm_exec.scheduler.state import ON, ON_DONE, ON_SUCCESS, PENDING, Act, Gate, Node, Watch
from kubexm_exec.scheduler.validate import check


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

    def open_gates(self) -> Iterator[Gate]:
        """The gates that wait for nothing."""
        return (gate for gate in (*self.gates.values(), *self._outside.values()) if not gate.left)

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
                        link_acts(source, act, on)

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
            watch_some(gate, watch, acts)

    def _hold_back_actions(self) -> None:
        """Whoever waits for the action waits for the exits of the fragment on that host, and for its exit gates."""
        act, owner = self._act, self._owner
        waiting = [(at[act.host], on) for at, on in owner.edges if act.host in at]
        # What the same node has returned before also waits for the action, but not for what it returns later.
        waiting += [edge for edge in act.edges or () if edge[0].node.owner is not owner]
        # Of a loop all items count: one that failed has failed, whichever was to come after it.
        exits = [
            exit_
            for acts in self._acts.values()
            for exit_ in acts
            if exit_.host == act.host and (exit_ not in self._followed or owner.spec.loop is not None)
        ]
        exit_gates = [gate for gate in self.gates.values() if gate not in self._followed]
        for to, on in waiting:
            if to.state == PENDING:
                for source in exits:
                    link_acts(source, to, on)
                for gate in self._gates_for(to, exit_gates):
                    link_gate(gate, to, on)

    def _gates_for(self, to: Act, exits: Sequence[Gate]) -> Sequence[Gate]:
        """The gates at the end of the fragment as an action sees them: outside a group with what its rescue did."""
        around = [rescue for rescue, _ in self._act.rescues]
        inside = frozenset(rescue.group for rescue in around if to.is_inside(rescue))
        if not exits or len(inside) == len(around):
            return exits
        if inside not in self._outside:
            gate = self._outside[inside] = self._board.add_gate(exits[0].node)
            gate.groups = inside
            for acts in self._acts.values():
                watch = Watch(acts[0].node, ON_SUCCESS, members=set(), partial=True)
                gate.watches.append(watch)
                watch_some(gate, watch, acts)
            for inner in self.gates.values():
                link_gates(inner, gate, ON_DONE)
        return [self._outside[inside]]

    def _hold_back_gates(self) -> None:
        """Gates that wait for the action wait for all of the fragment."""
        for gate, watch in [*self._owner.gates, *(self._act.watch or ())]:
            if gate.node.owner is self._owner:
                continue
            for acts in self._acts.values():
                node = acts[0].node
                grown = watch.grown.get(node)
                if grown is None:
                    grown = Watch(node, watch.on, members=set(), partial=watch.partial)
                    watch.grown[node] = grown
                    gate.watches.append(grown)
                watch_some(gate, grown, acts)
            for inner in self.gates.values():
                # Inside a group it has perhaps closed because of what a rescue handles; the actions tell what counts.
                link_gates(inner, gate, watch.on if inner.groups <= gate.groups else ON_DONE)


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
    """An action waits for a gate of its own fragment, or of one it is held back by."""
    gate.targets.append(((to,), on))
    to.pending += 1
