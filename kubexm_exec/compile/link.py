"""Pass: links tasks to modules and modules to the pipeline, with gates as barriers and hooks around them."""

from __future__ import annotations

from graphlib import TopologicalSorter

from msgspec import Struct, field

from kubexm_exec.compile.chains import barrier, gate, link_chain, members_of
from kubexm_exec.compile.state import ModuleDraft, State, StepDraft, TaskDraft
from kubexm_exec.compile.steps import link_steps
from kubexm_exec.model.graph import Dependency, ExecutionNode, Hook, Mode, NodeID, On

_DIRECT = 4
"""So many entries times needs are linked directly; more get a gate in between, so that edges stay linear."""


class Linked(Struct):
    """A scope whose nodes are linked: what it is made of and how to wait for it."""

    nodes: list[ExecutionNode] = field(default_factory=list)
    end: NodeID = ""
    exits: tuple[ExecutionNode, ...] = ()
    """Exit steps that a host-aligned task may wait for; empty if only the end gate will do."""


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
    """Modules before tasks, and each task behind those it needs: a host-aligned one must know where they end.

    The graph is in the order of writing all the same; here it only matters what is linked first.
    """
    tasks = {task.id: task for module in state.modules for task in module.tasks}
    sorter = TopologicalSorter({task.id: [need.target for need in task.needs] for task in tasks.values()})
    return [*state.modules, *(tasks[name] for name in sorter.static_order() if name in tasks)]


class _Begin(Struct):
    nodes: list[ExecutionNode]
    opens: list[Dependency]


def _begin(
    hooks: dict[Hook, list[StepDraft]], scope: str, waits: list[Dependency], module: str = "", task: str = ""
) -> _Begin:
    """The pre hooks of a scope; what is inside waits for their gate, or for what the scope waits for."""
    pre = hooks.get(Hook.PRE, [])
    if not pre:
        return _Begin([], waits)
    nodes = link_chain(pre, waits, On.SUCCESS)
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
    post = link_chain(hooks.get(Hook.POST, []), [barrier(body.id)], On.SUCCESS)
    if post:
        result.extend(post)
        outcome = gate(f"{scope}#outcome", [barrier(body.id), *members_of(post)], module=module, task=task)
        result.append(outcome)
        done = outcome.id
    on_failure = link_chain(hooks.get(Hook.ON_FAILURE, []), [barrier(done, On.FAILURE)], On.SUCCESS, repeat=True)
    result.extend(on_failure)
    always_waits = [barrier(done, On.DONE)]
    if on_failure and hooks.get(Hook.ALWAYS):
        handled = gate(
            f"{scope}#handled", [barrier(d.node, On.DONE) for d in members_of(on_failure)], module=module, task=task
        )
        result.append(handled)
        always_waits.append(barrier(handled.id, On.DONE))
    always = link_chain(hooks.get(Hook.ALWAYS, []), always_waits, On.DONE, repeat=True)
    result.extend(always)
    ends = [barrier(done), *members_of(on_failure), *members_of(always)]
    result.append(gate(f"{scope}#end", ends, module=module, task=task))
    return result


def _link_task(draft: TaskDraft, opens: list[Dependency], ends: dict[str, NodeID], done: dict[str, Linked]) -> Linked:
    siblings = any(need.target.startswith(f"{draft.module}/") for need in draft.needs)
    waits: list[Dependency] = [] if siblings else list(opens)
    aligned: list[Linked] = []
    extra_ends: list[Dependency] = []
    for need in draft.needs:
        target = done.get(need.target)
        if (
            draft.align == "host"
            and not draft.once
            and target is not None
            and target.exits
            and not draft.hooks.get(Hook.PRE)
        ):
            aligned.append(target)
            extra_ends.append(barrier(ends[need.target]))
        else:
            waits.append(barrier(ends[need.target]))
    chooses: list[ExecutionNode] = []
    if draft.once:
        chooses = [gate(draft.once, waits, module=draft.module, task=draft.name, candidates=draft.hosts)]
        waits = [barrier(draft.once)]
    begin = _begin(draft.hooks, draft.id, waits, draft.module, draft.name)
    result = [*chooses, *begin.nodes]
    opens_body = begin.opens
    if len(opens_body) * len(draft.steps) > _DIRECT and len(opens_body) > 1:
        joint = gate(f"{draft.id}#begin", opens_body, module=draft.module, task=draft.name)
        result.append(joint)
        opens_body = [barrier(joint.id)]
    for target in aligned:
        shared = {host for node in target.exits for host in node.hosts}
        opens_body = [*opens_body, *(Dependency(node.id, Mode.HOST) for node in target.exits)]
        others = tuple(host for host in draft.hosts if host not in shared)
        if others:
            opens_body.append(barrier(target.end, hosts=others))
    body = link_steps(draft, opens_body)
    result.extend(body.nodes)
    pre = [node for step in draft.hooks.get(Hook.PRE, []) for node in step.nodes]
    # A batch that was not let go is a failure of the task, even if no single step had too many failures; and so is it
    # that no host is left for what runs once.
    gates = [barrier(node.id) for node in (*chooses, *body.nodes) if node.batch_budget is not None or node.candidates]
    members = [*(barrier(node.id) for node in pre), *members_of(body.nodes), *gates, *extra_ends]
    closing = _close(draft.hooks, draft.id, members, draft.module, draft.name)
    result.extend(closing)
    plain = not any(draft.hooks.get(kind) for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS))
    return Linked(result, closing[-1].id, body.exits if plain and not draft.once else ())
