"""Pass: links nodes to fragments, task to module to pipeline, with gates as barriers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kubexm_exec.compile.state import ModuleDraft, State, StepDraft, TaskDraft
from kubexm_exec.graph import Dependency, ExecutionFragment, ExecutionNode, Hook, Mode, NodeID, NodeKind, On
from kubexm_spec.models import ForEachSpec, StepSpec

_DIRECT = 4
"""So many entries times needs are linked directly; more get a gate in between, so that edges stay linear."""


def gate(gate_id: NodeID, waits_for: Iterable[Dependency], *, module: str = "", task: str = "", pause: float = 0.0,
         budget: str | None = None) -> ExecutionNode:  # fmt: skip
    """A virtual node that waits."""
    return ExecutionNode(
        id=gate_id, kind=NodeKind.GATE, name=gate_id.rpartition("/")[2], module=module, task=task,
        dependencies=tuple(waits_for), pause=pause, batch_budget=budget,
    )  # fmt: skip


def barrier(node: NodeID, on: On = On.SUCCESS, hosts: tuple[str, ...] | None = None) -> Dependency:
    """Wait for all hosts of a node, or for a gate."""
    return Dependency(node, Mode.BARRIER, on, hosts)


@dataclass(slots=True)
class Linked:
    """A scope whose nodes are linked: what it is made of and how to wait for it."""

    nodes: list[ExecutionNode] = field(default_factory=list)
    end: NodeID = ""
    exits: tuple[NodeID, ...] = ()
    """Exit steps that a host-aligned task may wait for; empty if only the end gate will do."""
    hosts: tuple[str, ...] = ()


def link(state: State) -> None:
    """Assemble the graph: fill ``state.nodes`` in graph order."""
    done: dict[str, Linked] = {}
    order = _order(state)
    begin = _begin(state.hooks, "", [])
    nodes: dict[str, list[ExecutionNode]] = {"": list(begin.nodes)}
    incoming: dict[str, list[Dependency]] = {}
    ends: dict[str, NodeID] = {f"{t.id}": f"{t.id}#end" for m in state.modules for t in m.tasks}
    ends.update({module.id: f"{module.id}#end" for module in state.modules})
    for draft in order:
        if isinstance(draft, ModuleDraft):
            waits = [barrier(ends[need.target]) for need in draft.needs] or list(begin.opens)
            opened = _begin(draft.hooks, draft.id, waits, draft.name)
            incoming[draft.id] = opened.opens
            nodes[draft.id] = list(opened.nodes)
        else:
            linked = _link_task(draft, incoming[draft.module], ends, done)
            done[draft.id] = linked
            nodes[draft.id] = linked.nodes
    result: list[ExecutionNode] = list(nodes[""])
    for module in state.modules:
        result.extend(nodes[module.id])
        for task in module.tasks:
            result.extend(nodes[task.id])
        pre = [node for draft in module.hooks.get(Hook.PRE, []) for node in draft.nodes]
        members = [barrier(node.id) for node in pre] + [barrier(ends[task.id]) for task in module.tasks]
        result.extend(_close(module.hooks, module.id, members, module.name))
    pre = [node for draft in state.hooks.get(Hook.PRE, []) for node in draft.nodes]
    members = [barrier(node.id) for node in pre] + [barrier(ends[module.id]) for module in state.modules]
    result.extend(_close(state.hooks, "", members, ""))
    state.nodes = {node.id: node for node in result}
    for step in state.all_drafts():
        for node in step.nodes:
            state.drafts[node.id] = step


def _order(state: State) -> list[TaskDraft | ModuleDraft]:
    """Modules before their tasks, everything in the order of writing: links only name ids, so any order would do."""
    found: list[TaskDraft | ModuleDraft] = []
    for module in state.modules:
        found.append(module)
        found.extend(module.tasks)
    return found


@dataclass(slots=True)
class _Begin:
    nodes: list[ExecutionNode]
    opens: list[Dependency]


def _begin(
    hooks: dict[Hook, list[StepDraft]], scope: str, waits: list[Dependency], module: str = "", task: str = ""
) -> _Begin:
    """The pre hooks of a scope; what is inside waits for their gate, or for what the scope waits for."""
    pre = hooks.get(Hook.PRE, [])
    if not pre:
        return _Begin([], waits)
    nodes = _chain(pre, waits, On.SUCCESS)
    opened = gate(f"{scope}#begin", [barrier(node.id) for node in nodes if not node.is_gate], module=module, task=task)
    return _Begin([*nodes, opened], [barrier(opened.id)])


def _close(
    hooks: dict[Hook, list[StepDraft]], scope: str, members: list[Dependency], module: str, task: str = ""
) -> list[ExecutionNode]:
    """The post, onFailure and always hooks of a scope, and its end gate."""
    if not any(hooks.get(kind) for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)):
        return [gate(f"{scope}#end", members, module=module, task=task)]
    body = gate(f"{scope}#body", members, module=module, task=task)
    result = [body]
    done = body.id
    post = _chain(hooks.get(Hook.POST, []), [barrier(body.id)], On.SUCCESS)
    if post:
        result.extend(post)
        outcome = gate(f"{scope}#outcome", [barrier(body.id), *_members(post)], module=module, task=task)
        result.append(outcome)
        done = outcome.id
    on_failure = _chain(hooks.get(Hook.ON_FAILURE, []), [barrier(done, On.FAILURE)], On.SUCCESS, repeat=True)
    result.extend(on_failure)
    always_waits = [barrier(done, On.DONE)]
    if on_failure and hooks.get(Hook.ALWAYS):
        handled = gate(
            f"{scope}#handled", [barrier(d.node, On.DONE) for d in _members(on_failure)], module=module, task=task
        )
        result.append(handled)
        always_waits.append(barrier(handled.id, On.DONE))
    always = _chain(hooks.get(Hook.ALWAYS, []), always_waits, On.DONE, repeat=True)
    result.extend(always)
    ends = [barrier(done), *_members(on_failure), *_members(always)]
    result.append(gate(f"{scope}#end", ends, module=module, task=task))
    return result


def _members(nodes: Iterable[ExecutionNode]) -> list[Dependency]:
    return [barrier(node.id) for node in nodes if not node.is_gate]


def _chain(
    drafts: Sequence[StepDraft], waits: list[Dependency], on: On, *, repeat: bool = False
) -> list[ExecutionNode]:
    """Hook steps one after another; ``repeat``: each one also has the conditions that the first waits for."""
    result: list[ExecutionNode] = []
    before: list[ExecutionNode] = []
    for draft in drafts:
        linked: list[ExecutionNode] = []
        follows: list[Dependency] = []
        if before:
            same = all(node.hosts == draft.hosts for node in before)
            if same:
                follows = [Dependency(node.id, Mode.HOST, on) for node in before]
            else:
                between = gate(
                    f"{draft.id}#begin", [barrier(n.id, on) for n in before], module=draft.module, task=draft.task
                )
                result.append(between)
                follows = [barrier(between.id, on)]
        for node in _items_in_order(draft, [*(waits if repeat or not before else []), *follows], linked):
            linked.append(node)
        result.extend(linked)
        before = _last(draft, linked)
    return result


def _items_in_order(draft: StepDraft, waits: list[Dependency], made: list[ExecutionNode]) -> Iterable[ExecutionNode]:
    """The nodes of a step with what they wait for; items of a loop follow one another unless they may run side by side."""
    parallel = _parallel(draft)
    for number, node in enumerate(draft.nodes):
        extra = [] if parallel or not number else [Dependency(made[-1].id, Mode.HOST)]
        own = waits if parallel or not number else [*_after_first(waits, node, draft.nodes[:number]), *extra]
        yield replace(node, dependencies=tuple(own))


def _after_first(waits: list[Dependency], node: ExecutionNode, earlier: Sequence[ExecutionNode]) -> list[Dependency]:
    """What a later item must wait for itself: hosts that no earlier item had have nobody to wait for them."""
    covered = set(earlier[-1].hosts) if earlier else set()
    return [] if covered.issuperset(node.hosts) else waits


def _parallel(draft: StepDraft) -> bool:
    loop = draft.spec.for_each
    return isinstance(loop, ForEachSpec) and loop.parallel


def _last(draft: StepDraft, linked: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """The nodes that whoever comes after a step waits for."""
    nodes = [node for node in linked if not node.is_gate]
    if not nodes or _parallel(draft):
        return nodes
    last = nodes[-1]
    # With different items on different hosts the last item does not speak for all of them.
    return [last] if all(set(node.hosts) <= set(last.hosts) for node in nodes) else nodes


def _link_task(draft: TaskDraft, opens: list[Dependency], ends: dict[str, NodeID], done: dict[str, Linked]) -> Linked:
    siblings = any(need.target.startswith(f"{draft.module}/") for need in draft.needs)
    waits: list[Dependency] = [] if siblings else list(opens)
    aligned: list[Linked] = []
    extra_ends: list[Dependency] = []
    for need in draft.needs:
        target = done.get(need.target)
        if draft.align == "host" and target is not None and target.exits and not draft.hooks.get(Hook.PRE):
            aligned.append(target)
            extra_ends.append(barrier(ends[need.target]))
        else:
            waits.append(barrier(ends[need.target]))
    begin = _begin(draft.hooks, draft.id, waits, draft.module, draft.name)
    result = list(begin.nodes)
    opens_body = begin.opens
    if len(opens_body) * len(draft.steps) > _DIRECT and len(opens_body) > 1:
        joint = gate(f"{draft.id}#begin", opens_body, module=draft.module, task=draft.name)
        result.append(joint)
        opens_body = [barrier(joint.id)]
    for target in aligned:
        shared = set(target.hosts)
        opens_body = [*opens_body, *(Dependency(node, Mode.HOST) for node in target.exits)]
        others = tuple(host for host in draft.hosts if host not in shared)
        if others:
            opens_body.append(barrier(target.end, hosts=others))
    fragment = _body(draft, opens_body)
    result.extend(fragment.nodes)
    pre = [node for step in draft.hooks.get(Hook.PRE, []) for node in step.nodes]
    steps = [node.id for node in fragment.nodes if not node.is_gate]
    members = [*(barrier(node.id) for node in pre), *(barrier(node) for node in steps), *extra_ends]
    closing = _close(draft.hooks, draft.id, members, draft.module, draft.name)
    result.extend(closing)
    plain = not any(draft.hooks.get(kind) for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS))
    return Linked(result, closing[-1].id, fragment.exit_nodes if plain else (), draft.hosts)


def _body(draft: TaskDraft, opens: list[Dependency]) -> ExecutionFragment:
    """The steps of a task: host by host (free) or step by step (linear), batch after batch."""
    batched = len(draft.batches) > 1
    by_name: dict[str, list[ExecutionNode]] = {}
    result: list[ExecutionNode] = []
    entries: list[NodeID] = []
    waited_for: set[NodeID] = set()
    previous: StepDraft | None = None
    batch_waits = [
        barrier(f"{draft.id}#batch{number + 1}", hosts=hosts) for number, hosts in enumerate(draft.batches) if number
    ]
    for step in draft.steps:
        spec = step.spec
        needs = spec.needs if isinstance(spec, StepSpec) else None
        names = [previous.spec.name] if needs is None and previous is not None else list(needs or ())
        before = [node for name in names for node in by_name.get(name, [])]
        waited_for.update(node.id for node in before)
        waits: list[Dependency]
        if not before:
            waits = [*opens, *batch_waits]
        elif draft.strategy == "linear":
            waits = []
            for number, hosts in enumerate(draft.batches):
                suffix = f"#all{number + 1}" if batched else "#all"
                limited = hosts if batched else None
                between = gate(
                    f"{step.id}{suffix}",
                    [barrier(node.id, hosts=limited) for node in before],
                    module=draft.module,
                    task=draft.name,
                )
                result.append(between)
                waits.append(barrier(between.id, hosts=limited))
        else:
            waits = [Dependency(node.id, Mode.HOST) for node in before]
        nodes, last = _step_nodes(step, waits)
        result.extend(nodes)
        if not before:
            entries.extend(node.id for node in nodes if node.hook is Hook.NONE)
        by_name[spec.name] = last
        previous = step
    steps = [node for node in result if not node.is_gate]
    if batched:
        result.extend(_batch_gates(draft, steps))
    exits = tuple(node.id for last in by_name.values() for node in last if node.id not in waited_for)
    return ExecutionFragment(tuple(result), tuple(entries), exits)


def _batch_gates(draft: TaskDraft, steps: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    gates: list[ExecutionNode] = []
    for number in range(1, len(draft.batches)):
        waits = [barrier(node.id, hosts=draft.batches[number - 1]) for node in steps]
        if gates:
            waits.append(barrier(gates[-1].id))
        gates.append(
            gate(
                f"{draft.id}#batch{number + 1}", waits, module=draft.module, task=draft.name,
                pause=draft.pause, budget=draft.batch_budget,
            )
        )  # fmt: skip
    return gates


def _step_nodes(step: StepDraft, waits: list[Dependency]) -> tuple[list[ExecutionNode], list[ExecutionNode]]:
    """The nodes of a step with its own hooks, host by host; and those that the next step waits for."""
    pre = step.hooks.get(Hook.PRE, [])
    result: list[ExecutionNode] = []
    if pre:
        result.extend(_chain(pre, waits, On.SUCCESS))
        waits = [Dependency(node.id, Mode.HOST) for node in _last(pre[-1], result)]
    own: list[ExecutionNode] = []
    for node in _items_in_order(step, waits, own):
        own.append(node)
    result.extend(own)
    last = _last(step, own)
    after = [Dependency(node.id, Mode.HOST) for node in own]
    post = step.hooks.get(Hook.POST, [])
    if post:
        linked = _chain(post, [Dependency(node.id, Mode.HOST) for node in last], On.SUCCESS)
        result.extend(linked)
        last = _last(post[-1], linked)
        after.extend(Dependency(node.id, Mode.HOST) for node in linked)
    failed = _on_failure(step, own)
    result.extend(failed)
    always = step.hooks.get(Hook.ALWAYS, [])
    if always:
        waits_for_all = [replace(d, on=On.DONE) for d in (*after, *(Dependency(n.id, Mode.HOST) for n in failed))]
        result.extend(_chain(always, waits_for_all, On.DONE, repeat=True))
    return result, last


def _on_failure(step: StepDraft, own: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """What runs on a host when the step failed there; each item of a loop has its own."""
    hooks = step.hooks.get(Hook.ON_FAILURE, [])
    if step.spec.for_each is None:
        return _chain(hooks, [Dependency(node.id, Mode.HOST, On.FAILURE) for node in own], On.SUCCESS, repeat=True)
    result: list[ExecutionNode] = []
    for number, watched in enumerate(own):
        waits = [Dependency(watched.id, Mode.HOST, On.FAILURE)]
        for hook in hooks:
            node = replace(hook.nodes[number], dependencies=tuple(waits))
            result.append(node)
            waits = [waits[0], Dependency(node.id, Mode.HOST)]
    return result
