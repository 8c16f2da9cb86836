"""Pass: links steps, tasks, modules and the pipeline, with gates as barriers and hooks around them.

The steps of a task run host by host (free) or step by step (linear), batch after batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

from msgspec.structs import replace

from kubexm_exec.compile.chains import (
    barrier,
    covers,
    gate,
    last_of,
    last_of_chain,
    link_chain,
    link_items,
    members_of,
    needs_of,
    same_host,
)
from kubexm_exec.compile.state import State, StepDraft, TaskDraft
from kubexm_exec.model.graph import Dependency, ExecutionFragment, ExecutionNode, Hook, NodeID, On
from kubexm_exec.values.evaluate import NO_ITEMS

_DIRECT = 4
"""Up to this many edges (entries times needs) are direct; a gate replaces more, so that their number stays linear."""


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
    """Wait for a fragment, or, if it is empty, for what it would wait for."""
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
    body = _link_steps(draft, opens_body)
    result.extend(body.nodes)
    pre = [node for step in draft.hooks.get(Hook.PRE, []) for node in step.nodes]
    # The task fails if a batch was not started, even if no single step had too many failures, or if no host is left
    # for what runs once.
    gates = [barrier(node.id) for node in (*chooses, *body.nodes) if node.batch_budget is not None or node.candidates]
    extra_ends = [barrier(_end(target)) for target in aligned]
    members = [*(barrier(node.id) for node in pre), *members_of(body.nodes), *gates, *extra_ends]
    result.extend(_close(draft.hooks, draft.id, members, draft.module, draft.name))
    if not draft.once and not any(draft.hooks.get(kind) for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)):
        bodies[draft.id] = body
    return ExecutionFragment.of(result, [_end(draft.id)])


def _link_steps(draft: TaskDraft, opens: list[Dependency]) -> ExecutionFragment:
    """The steps of a task; what waits for nothing in it waits for ``opens``, and for its batch."""
    batches = [
        barrier(f"{draft.id}#batch{number + 1}", hosts=hosts) for number, hosts in enumerate(draft.batches) if number
    ]
    linker = _Linker(draft, [*opens, *batches])
    nodes = linker.link()
    if len(draft.batches) > 1:
        nodes.extend(_batch_gates(draft, [node for node in nodes if node.hosts]))
    return ExecutionFragment.of(nodes, linker.exits())


class _Linker:
    def __init__(self, draft: TaskDraft, opens: list[Dependency]) -> None:
        self.draft = draft
        self.opens = opens
        self.steps = {step.spec.name: step for step in draft.steps}
        self.ends: dict[str, list[ExecutionNode]] = {}
        """What the next step waits for: on each host the last node of a step, or of the steps before it."""
        self.needed: set[str] = set()

    def link(self) -> list[ExecutionNode]:
        """All nodes; steps are linked behind those they need, wherever those are written."""
        needs = needs_of(self.draft.steps)
        made = {name: self._step(self.steps[name], needs[name]) for name in TopologicalSorter(needs).static_order()}
        return [node for name in self.steps for node in made[name]]

    def exits(self) -> list[NodeID]:
        """The last nodes of the steps that no other step needs."""
        return [node.id for name, ends in self.ends.items() if name not in self.needed for node in ends]

    def _step(self, step: StepDraft, needs: list[str]) -> list[ExecutionNode]:
        self.needed.update(needs)
        before = list({node.id: node for name in needs for node in self.ends[name]}.values())
        result: list[ExecutionNode] = []
        if before and self.draft.strategy == "linear":
            result = self._all_hosts(step, before)
            waits = [barrier(one.id, hosts=hosts) for one, (hosts, _) in zip(result, self._batches(), strict=True)]
        else:
            waits = [*same_host(before), *([] if covers(before, step.hosts) else self.opens)]
        nodes, last = _with_hooks(step, waits)
        # Nothing waits for an empty loop, which has no hosts; but it has its place, and its outputs are known.
        empty = [node for node in nodes if node.skip == NO_ITEMS]
        self.ends[step.spec.name] = [*([] if covers(last, step.hosts) else before), *last, *empty]
        return [*result, *nodes]

    def _batches(self) -> list[tuple[tuple[str, ...] | None, str]]:
        """The hosts of each batch (None for all hosts) with the end of its gates' names."""
        if len(self.draft.batches) == 1:
            return [(None, "#all")]
        return [(hosts, f"#all{number}") for number, hosts in enumerate(self.draft.batches, 1)]

    def _all_hosts(self, step: StepDraft, before: Sequence[ExecutionNode]) -> list[ExecutionNode]:
        """A gate for each batch that waits for the steps before on all its hosts."""
        gates: list[ExecutionNode] = []
        for number, (hosts, suffix) in enumerate(self._batches(), 1):
            waits = [barrier(node.id, hosts=hosts) for node in before]
            if number > 1:
                # What failed in earlier batches counts too: the gate of this batch carries it.
                waits.append(barrier(f"{self.draft.id}#batch{number}"))
            gates.append(gate(f"{step.id}{suffix}", waits, module=step.module, task=step.task))
        return gates


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


def _with_hooks(step: StepDraft, waits: list[Dependency]) -> tuple[list[ExecutionNode], list[ExecutionNode]]:
    """The nodes of a step with its own hooks, host by host; and those that the next step waits for."""
    pre = link_chain(step.hooks.get(Hook.PRE, []), waits, On.SUCCESS)
    if pre:
        first = last_of_chain(step.hooks[Hook.PRE], pre)
        waits = same_host(first) if covers(first, step.hosts) else [*waits, *same_host(first)]
    own = link_items(step, waits)
    last = last_of(step, own)
    post = link_chain(step.hooks.get(Hook.POST, []), same_host(last), On.SUCCESS)
    if post:
        last = last_of_chain(step.hooks[Hook.POST], post) or last
    failed = _on_failure(step, own, [*pre, *post])
    done = same_host([*own, *post, *failed], On.DONE)
    always = link_chain(step.hooks.get(Hook.ALWAYS, []), done, On.DONE, repeat=True)
    return [*pre, *own, *post, *failed, *always], last


def _on_failure(step: StepDraft, own: Sequence[ExecutionNode], hooks: Sequence[ExecutionNode]) -> list[ExecutionNode]:
    """What runs for a host when the step, or one of the other ``hooks`` around it, failed there.

    Each item of a loop has its own; a hook around the loop has failed for all of them.
    """
    around = [node for node in hooks if not node.is_gate and not node.policy.ignore_errors]
    drafts = step.hooks.get(Hook.ON_FAILURE, [])
    if step.spec.for_each is None:
        return link_chain(drafts, same_host([*own, *around], On.FAILURE), On.SUCCESS, repeat=True)
    result: list[ExecutionNode] = []
    of_items = [_of_items(draft) for draft in drafts]
    for watched in own:
        failed = same_host([watched, *around], On.FAILURE)
        waits = failed
        for of_item in of_items:
            nodes = [replace(node, dependencies=tuple(waits)) for node in of_item.get(watched.id, ())]
            result.extend(nodes)
            waits = [*failed, *same_host(nodes)]
    return result


def _of_items(hook: StepDraft) -> dict[NodeID, list[ExecutionNode]]:
    """The nodes of a loop's hook by the item that they are for; there is one for each place."""
    found: dict[NodeID, list[ExecutionNode]] = {}
    for node in hook.nodes:
        found.setdefault(node.id.rpartition("/hooks/")[0], []).append(node)
    return found
