"""Pass: links tasks to modules and modules to the pipeline, with gates as barriers and hooks around them."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

from kubexm_exec.compile.chains import barrier, gate, link_chain, members_of, same_host
from kubexm_exec.compile.state import State, StepDraft, TaskDraft
from kubexm_exec.compile.steps import link_steps
from kubexm_exec.model.graph import Dependency, ExecutionFragment, ExecutionNode, Hook, NodeID, On

_DIRECT = 4
"""So many entries times needs are linked directly; more get a gate in between, so that edges stay linear."""


def link(state: State) -> None:
    """Assemble the graph: fill ``state.nodes`` in graph order."""
    first = _begin(state.hooks, "", [])
    begins: dict[str, ExecutionFragment] = {}
    opens: dict[str, list[Dependency]] = {}
    for module in state.modules:
        waits = [barrier(_end(need.target)) for need in module.needs] or _after(first, [])
        begins[module.id] = _begin(module.hooks, module.id, waits, module.name)
        opens[module.id] = _after(begins[module.id], waits)
    bodies: dict[str, ExecutionFragment] = {}
    tasks = {draft.id: _link_task(draft, opens[draft.module], bodies) for draft in _order(state)}
    modules = [
        _around(module.hooks, module.id, begins[module.id], [tasks[task.id] for task in module.tasks], module.name)
        for module in state.modules
    ]
    state.nodes = {node.id: node for node in _around(state.hooks, "", first, modules).nodes}
    for step in state.all_drafts():
        for node in step.nodes:
            state.drafts[node.id] = step


def _end(scope: str) -> NodeID:
    """The gate at the end of a task, a module or the pipeline: its one exit."""
    return f"{scope}#end"


def _after(fragment: ExecutionFragment, waits: list[Dependency]) -> list[Dependency]:
    """Wait for a fragment; for what it would wait for itself, if it is empty."""
    return [barrier(node) for node in fragment.exit_nodes] or waits


def _around(
    hooks: dict[Hook, list[StepDraft]], scope: str, begin: ExecutionFragment, parts: Sequence[ExecutionFragment],
    module: str = "",
) -> ExecutionFragment:  # fmt: skip
    """A module of its tasks, or the pipeline of its modules."""
    pre = [node for draft in hooks.get(Hook.PRE, []) for node in draft.nodes]
    members = [barrier(node.id) for node in pre] + [wait for part in parts for wait in _after(part, [])]
    inside = [node for part in parts for node in part.nodes]
    return ExecutionFragment.of([*begin.nodes, *inside, *_close(hooks, scope, members, module)], [_end(scope)])


def _order(state: State) -> list[TaskDraft]:
    """Each task behind those it needs: a host-aligned one must know where they end.

    The graph is in the order of writing all the same; here it only matters what is linked first.
    """
    tasks = {task.id: task for module in state.modules for task in module.tasks}
    sorter = TopologicalSorter({task.id: [need.target for need in task.needs] for task in tasks.values()})
    return [tasks[name] for name in sorter.static_order() if name in tasks]


def _begin(
    hooks: dict[Hook, list[StepDraft]], scope: str, waits: list[Dependency], module: str = "", task: str = ""
) -> ExecutionFragment:
    """The pre hooks of a scope, with a gate that what is inside waits for."""
    pre = hooks.get(Hook.PRE, [])
    if not pre:
        return ExecutionFragment()
    nodes = link_chain(pre, waits, On.SUCCESS)
    opened = gate(f"{scope}#begin", [barrier(node.id) for node in nodes if not node.is_gate], module=module, task=task)
    return ExecutionFragment.of([*nodes, opened], [opened.id])


def _close(
    hooks: dict[Hook, list[StepDraft]], scope: str, members: list[Dependency], module: str, task: str = ""
) -> list[ExecutionNode]:
    """The post, onFailure and always hooks of a scope, and its end gate."""
    if not any(hooks.get(kind) for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)):
        return [gate(_end(scope), members, module=module, task=task)]
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
    result.append(gate(_end(scope), ends, module=module, task=task))
    return result


def _link_task(draft: TaskDraft, opens: list[Dependency], bodies: dict[str, ExecutionFragment]) -> ExecutionFragment:
    """``bodies``: the steps of tasks that host-aligned ones may wait for without their end gate; gets this one's."""
    siblings = any(need.target.startswith(f"{draft.module}/") for need in draft.needs)
    waits: list[Dependency] = [] if siblings else list(opens)
    aligned: list[str] = []
    for need in draft.needs:
        by_host = draft.align == "host" and not draft.once and not draft.hooks.get(Hook.PRE)
        if by_host and need.target in bodies and bodies[need.target].exit_nodes:
            aligned.append(need.target)
        else:
            waits.append(barrier(_end(need.target)))
    chooses: list[ExecutionNode] = []
    if draft.once:
        chooses = [gate(draft.once, waits, module=draft.module, task=draft.name, candidates=draft.hosts)]
        waits = [barrier(draft.once)]
    begin = _begin(draft.hooks, draft.id, waits, draft.module, draft.name)
    result = [*chooses, *begin.nodes]
    opens_body = _after(begin, waits)
    if len(opens_body) * len(draft.steps) > _DIRECT and len(opens_body) > 1:
        joint = gate(f"{draft.id}#begin", opens_body, module=draft.module, task=draft.name)
        result.append(joint)
        opens_body = [barrier(joint.id)]
    for target in aligned:
        exits = bodies[target].exits
        shared = {host for node in exits for host in node.hosts}
        opens_body = [*opens_body, *same_host(exits)]
        others = tuple(host for host in draft.hosts if host not in shared)
        if others:
            opens_body.append(barrier(_end(target), hosts=others))
    body = link_steps(draft, opens_body)
    result.extend(body.nodes)
    pre = [node for step in draft.hooks.get(Hook.PRE, []) for node in step.nodes]
    # A batch that was not let go is a failure of the task, even if no single step had too many failures; and so is it
    # that no host is left for what runs once.
    gates = [barrier(node.id) for node in (*chooses, *body.nodes) if node.batch_budget is not None or node.candidates]
    extra_ends = [barrier(_end(target)) for target in aligned]
    members = [*(barrier(node.id) for node in pre), *members_of(body.nodes), *gates, *extra_ends]
    result.extend(_close(draft.hooks, draft.id, members, draft.module, draft.name))
    if not draft.once and not any(draft.hooks.get(kind) for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)):
        bodies[draft.id] = body
    return ExecutionFragment.of(result, [_end(draft.id)])
