"""The small pieces that graphs are linked from: gates, barriers, loops and chains of steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kubexm_exec.compile.state import EntryDraft, StepDraft
from kubexm_exec.model.graph import Dependency, ExecutionNode, Hook, Membership, Mode, NodeID, NodeKind, On
from kubexm_exec.values.evaluate import NO_ITEMS
from kubexm_spec.models import FlushSpec, StepGroupSpec, StepSpec


def gate(gate_id: NodeID, waits_for: Iterable[Dependency], *, module: str = "", task: str = "", pause: float = 0.0,
         budget: str | None = None, candidates: tuple[str, ...] = (),
         hook: Hook = Hook.NONE, groups: tuple[Membership, ...] = ()) -> ExecutionNode:  # fmt: skip
    """A virtual node that waits."""
    return ExecutionNode(
        id=gate_id, kind=NodeKind.GATE, name=gate_id.rpartition("/")[2], module=module, task=task,
        dependencies=tuple(waits_for), pause=pause, batch_budget=budget,
        candidates=candidates, hook=hook, groups=groups,
    )  # fmt: skip


def barrier(node: NodeID, on: On = On.SUCCESS, hosts: tuple[str, ...] | None = None) -> Dependency:
    """Wait for all hosts of a node, or for a gate."""
    return Dependency(node, Mode.BARRIER, on, hosts)


def same_host(nodes: Iterable[ExecutionNode], on: On = On.SUCCESS) -> list[Dependency]:
    """Wait for some nodes host by host."""
    return [Dependency(node.id, Mode.HOST, on) for node in nodes]


def members_of(nodes: Iterable[ExecutionNode]) -> list[Dependency]:
    """Wait for all the work among some nodes."""
    return [barrier(node.id) for node in nodes if not node.is_gate]


def needs_of(steps: Sequence[EntryDraft]) -> dict[str, list[str]]:
    """By name the steps beside it that each one waits for: declared, or else the one before."""
    found: dict[str, list[str]] = {}
    names = {step.spec.name for step in steps}
    previous: list[str] = []
    for step in steps:
        declared = step.spec.needs if isinstance(step.spec, StepSpec | FlushSpec | StepGroupSpec) else None
        own = previous if declared is None else [name for name in dict.fromkeys(declared) if name in names]
        found[step.spec.name] = own
        previous = [step.spec.name]
    return found


def link_chain(
    drafts: Sequence[StepDraft], waits: list[Dependency], on: On, *, repeat: bool = False
) -> list[ExecutionNode]:
    """Hook steps one after another; ``repeat``: each one also has the conditions that the first waits for."""
    result: list[ExecutionNode] = []
    before: list[ExecutionNode] = []
    for draft in drafts:
        follows: list[Dependency] = []
        first = repeat or not before
        if draft.once == f"{draft.id}#once":
            # A host of its own, which is chosen when it begins.
            chooses = gate(
                draft.once, [*(waits if first else []), *(barrier(node.id, on) for node in before)],
                module=draft.module, task=draft.task, candidates=draft.hosts, hook=draft.hook,
            )  # fmt: skip
            result.append(chooses)
            follows, first = [barrier(chooses.id)], False
        elif before and (draft.for_host or all(node.hosts == draft.hosts for node in before)):
            follows = same_host(before, on)
            first = repeat or not covers(before, draft.hosts)
        elif before:
            waited = [barrier(node.id, on) for node in before]
            between = gate(f"{draft.id}#begin", waited, module=draft.module, task=draft.task)
            result.append(between)
            follows = [barrier(between.id, on)]
        linked = link_items(draft, [*(waits if first else []), *follows])
        result.extend(linked)
        before = last_of(draft, linked) or before
    return result


def link_handlers(
    drafts: Sequence[StepDraft], waits: list[Dependency]
) -> tuple[list[ExecutionNode], list[ExecutionNode]]:
    """Handlers one after another on each host, whichever hosts they have; and the last ones of all hosts."""
    result: list[ExecutionNode] = []
    latest: dict[str, list[ExecutionNode]] = {}
    for draft in drafts:
        hosts = dict.fromkeys(host for node in draft.nodes for host in node.hosts)
        before = {node.id: node for host in hosts for node in latest.get(host, ())}.values()
        first = not before or any(host not in latest for host in hosts)
        linked = link_items(draft, [*(waits if first else ()), *same_host(before)])
        result.extend(linked)
        last: dict[str, list[ExecutionNode]] = {}
        for node in last_of(draft, linked):
            for host in node.hosts:
                last.setdefault(host, []).append(node)
        latest.update(last)
    return result, list({node.id: node for several in latest.values() for node in several}.values())


def covers(nodes: Sequence[ExecutionNode], hosts: tuple[str, ...]) -> bool:
    """Whether each host has one of the nodes."""
    if any(node.hosts == hosts for node in nodes):
        return True
    return bool(nodes) and {host for node in nodes for host in node.hosts}.issuperset(hosts)


def link_items(draft: StepDraft, waits: list[Dependency]) -> list[ExecutionNode]:
    """The nodes of a step with what they wait for; items of a loop follow one another on each host, unless parallel."""
    if len(draft.nodes) == 1 or is_parallel(draft):
        return [replace(node, dependencies=tuple(waits)) for node in draft.nodes]
    return [node for nodes in _by_place(draft.nodes) for node in _link_loop(nodes, waits)]


def _by_place(nodes: Sequence[ExecutionNode]) -> Iterable[list[ExecutionNode]]:
    """The nodes of a step, those of each place together: one place never waits for another."""
    found: dict[str, list[ExecutionNode]] = {}
    for node in nodes:
        found.setdefault(node.id.rpartition("[")[0] if node.is_item else node.id, []).append(node)
    return found.values()


def _link_loop(nodes: Sequence[ExecutionNode], waits: list[Dependency]) -> list[ExecutionNode]:
    result: list[ExecutionNode] = []
    latest: dict[str, NodeID] = {}
    for node in nodes:
        if result and result[-1].hosts == node.hosts:
            own = [Dependency(result[-1].id, Mode.HOST)]
        else:
            # Hosts can have different items: each waits for the one before on that very host, if there is one.
            before = dict.fromkeys(latest[host] for host in node.hosts if host in latest)
            alone = not before or any(host not in latest for host in node.hosts)
            own = [*(waits if alone else ()), *(Dependency(other, Mode.HOST) for other in before)]
        latest.update(dict.fromkeys(node.hosts, node.id))
        result.append(replace(node, dependencies=tuple(own)))
    return result


def is_parallel(draft: StepDraft) -> bool:
    """Whether the items of the step's loop may run at the same time on a host."""
    return draft.spec.for_each is not None and draft.spec.for_each.parallel


def last_of(draft: StepDraft, linked: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """The linked nodes of a step that the next one waits for; none of an empty loop."""
    own = {node.id for node in draft.nodes if node.skip != NO_ITEMS}
    nodes = [node for node in linked if node.id in own]
    if len(nodes) < 2 or is_parallel(draft):
        return nodes
    return [node for several in _by_place(nodes) for node in _last(several)]


def last_of_chain(drafts: Sequence[StepDraft], linked: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """The nodes that work after a chain of hooks waits for."""
    return next((last for draft in reversed(drafts) if (last := last_of(draft, linked))), [])


def _last(nodes: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    last = nodes[-1]
    if all(node.hosts == last.hosts for node in nodes):
        return [last]
    # With different items on different hosts the last item does not speak for all of them.
    latest = {host: node for node in nodes for host in node.hosts}
    ends = {node.id for node in latest.values()}
    return [node for node in nodes if node.id in ends]
