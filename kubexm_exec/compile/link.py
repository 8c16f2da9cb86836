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
    link_handlers,
    link_items,
    members_of,
    needs_of,
    same_host,
)
from kubexm_exec.compile.ready import ready_fragment
from kubexm_exec.compile.state import EntryDraft, FlushDraft, GroupDraft, State, StepDraft, TaskDraft
from kubexm_exec.model.graph import Dependency, ExecutionFragment, ExecutionNode, Hook, Membership, NodeID, On, Part
from kubexm_exec.values.evaluate import NO_ITEMS
from kubexm_spec.models import FlushSpec

_END = FlushSpec.model_construct(name="#handlers", flush=True)
"""The flush at the end of each task that has handlers."""
_DIRECT = 4
"""Up to this many edges (entries times needs) are direct; a gate replaces more, so that their number stays linear."""

_AT_THE_END = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)
_CLEANS_UP = (Hook.ON_FAILURE, Hook.ALWAYS)
"""Hooks that also run where nothing was begun."""


def link(state: State) -> None:
    """Assemble the graph: fill ``state.nodes`` in graph order."""
    ready = ready_fragment(state)
    first = _begin(state.hooks, "", _after(ready, []))
    begins: dict[str, ExecutionFragment] = {}
    opens: dict[str, list[Dependency]] = {}
    for module in state.modules:
        waits = [barrier(_end(need.target)) for need in module.needs] or _after(first, _after(ready, []))
        begins[module.id] = _begin(module.hooks, module.id, waits, module.name)
        opens[module.id] = _after(begins[module.id], waits)
    bodies: dict[str, ExecutionFragment] = {}
    tasks = {draft.id: _link_task(draft, opens[draft.module], bodies) for draft in _order(state)}
    modules = [
        _around(
            module.hooks, module.handlers, module.id, begins[module.id], [tasks[task.id] for task in module.tasks],
            module.name,
        )
        for module in state.modules
    ]  # fmt: skip
    state.nodes = {node.id: node for node in _around(state.hooks, state.handlers, "", first, modules, lead=ready).nodes}
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
    hooks: dict[Hook, list[StepDraft]], handlers: Sequence[StepDraft], scope: str, begin: ExecutionFragment,
    parts: Sequence[ExecutionFragment], module: str = "", lead: ExecutionFragment | None = None,
) -> ExecutionFragment:  # fmt: skip
    """A module of its tasks, or the pipeline of its modules, with what comes before its ``pre`` hooks.

    Its handlers are like a last task or module.
    """
    before = lead.nodes if lead is not None else ()
    pre = [node for node in before if not node.is_gate]
    pre += [node for draft in hooks.get(Hook.PRE, []) for node in draft.nodes]
    members = [barrier(node.id) for node in pre] + [wait for part in parts for wait in _after(part, [])]
    inside = [node for part in parts for node in part.nodes]
    if handlers:
        opened = gate(f"{scope}#handlers", members, module=module)
        nodes, _ = link_handlers(handlers, [barrier(opened.id)])
        inside += [opened, *nodes]
        members = [barrier(opened.id), *members_of(nodes)]
    return ExecutionFragment.of([*before, *begin.nodes, *inside, *_close(hooks, scope, members, module)], [_end(scope)])


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
    hooks: dict[Hook, list[StepDraft]], scope: str, members: list[Dependency], module: str, task: str = "",
    begun: Sequence[Dependency] = (), failures: ExecutionNode | None = None,
) -> list[ExecutionNode]:  # fmt: skip
    """The post, onFailure and always hooks of a scope, and its end gate.

    ``begun``: the always and onFailure hooks run only if one of these has begun. ``failures``: a gate that fails if the
    scope has, besides what its members say.
    """
    if not any(hooks.get(kind) for kind in _AT_THE_END):
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
    failed = [barrier(done, On.FAILURE)]
    always_waits = [barrier(done, On.DONE)]
    if begun:
        begun = [*begun, *(barrier(each.node, On.BEGUN) for each in members_of(post))]
        entered = gate(f"{scope}#begun", begun, module=module, task=task)
        result.append(entered)
        failed.append(barrier(entered.id))
        always_waits.append(barrier(entered.id))
    if failures is not None and hooks.get(Hook.ON_FAILURE):
        result.append(failures)
        failed.append(barrier(failures.id, On.FAILURE))
    on_failure = link_chain(hooks.get(Hook.ON_FAILURE, []), failed, On.SUCCESS, repeat=True)
    result.extend(on_failure)
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
        before = (draft.hooks, *draft.batch_hooks)
        by_host = draft.align == "host" and not draft.once and not any(hooks.get(Hook.PRE) for hooks in before)
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
    gates = [barrier(node.id) for node in (*chooses, *body.nodes) if node.opens_batch or node.candidates]
    extra_ends = [barrier(_end(target)) for target in aligned]
    members = [*(barrier(node.id) for node in pre), *members_of(body.nodes), *gates, *extra_ends]
    result.extend(_close(draft.hooks, draft.id, members, draft.module, draft.name))
    # Hooks at the end of a task or a batch are for all its hosts: who waits for them waits for all.
    around = (draft.hooks, *draft.batch_hooks)
    if not draft.once and not any(hooks.get(kind) for hooks in around for kind in _AT_THE_END):
        bodies[draft.id] = body
    return ExecutionFragment.of(result, [_end(draft.id)])


def _link_steps(draft: TaskDraft, opens: list[Dependency]) -> ExecutionFragment:
    """The steps of a task; what waits for nothing in it waits for ``opens``, and for its batch."""
    batches = [
        barrier(f"{draft.id}#batch{number + 1}", hosts=hosts) for number, hosts in enumerate(draft.batches) if number
    ]
    begins = [_begin_batch(draft, number, hooks, opens) for number, hooks in enumerate(draft.batch_hooks)]
    begun = [barrier(_begin_of(draft, number), hosts=draft.batches[number])
             for number, begin in enumerate(begins) if begin.nodes]  # fmt: skip
    inside = _link_hosts(draft, [*opens, *batches, *begun])
    ends = [
        _end_batch(draft, number, hooks, inside.nodes, begins[number]) for number, hooks in enumerate(draft.batch_hooks)
    ]
    nodes = [*(node for begin in begins for node in begin.nodes), *inside.nodes]
    nodes.extend(node for end in ends for node in end)
    if len(draft.batches) > 1:
        hooks = [[*begin.nodes, *end] for begin, end in zip(begins, ends, strict=True)]
        nodes.extend(_batch_gates(draft, [node for node in inside.nodes if node.hosts], hooks))
    return ExecutionFragment.of(nodes, inside.exit_nodes)


def _begin_of(draft: TaskDraft, number: int) -> NodeID:
    return f"{draft.id}/batchHooks/{number + 1}#begin"


def _begin_batch(
    draft: TaskDraft, number: int, hooks: dict[Hook, list[StepDraft]], opens: list[Dependency]
) -> ExecutionFragment:
    """The pre hooks of a batch, with a gate that its hosts wait for."""
    waits = [*opens, barrier(f"{draft.id}#batch{number + 1}")] if number else opens
    return _begin(hooks, f"{draft.id}/batchHooks/{number + 1}", waits, draft.module, draft.name)


def _end_batch(
    draft: TaskDraft, number: int, hooks: dict[Hook, list[StepDraft]], inside: Sequence[ExecutionNode],
    begin: ExecutionFragment,
) -> list[ExecutionNode]:  # fmt: skip
    """The other hooks of a batch, and its end gate. Those that run in any case do so if something in it has begun."""
    hosts = draft.batches[number]
    pre = members_of(begin.nodes)
    members = [*pre, *(barrier(node.id, hosts=hosts) for node in inside if node.hosts)]
    cleans_up = {node.id for node in inside if node.hook in _CLEANS_UP}
    begun = [Dependency(each.node, each.mode, On.BEGUN, each.hosts) for each in members if each.node not in cleans_up]
    scope = f"{draft.id}/batchHooks/{number + 1}"
    # As the next batch counts: hosts that failed at any step, also in the batches before.
    counted = [barrier(node.id, hosts=hosts) for node in inside if node.hosts]
    before = [barrier(f"{draft.id}#batch{number + 1}")] if number else []
    failures = gate(
        f"{scope}#failures", [*counted, *before], module=draft.module, task=draft.name, budget=draft.batch_budget
    )
    return _close(hooks, scope, members, draft.module, draft.name, begun, failures)


def _link_hosts(draft: TaskDraft, opens: list[Dependency]) -> ExecutionFragment:
    """The steps of a task with the hooks of each host around all of them.

    Those that run in any case do so for each host on which something has begun, however far that has come.
    """
    hooks = draft.host_hooks
    pre = link_chain(hooks.get(Hook.PRE, []), opens, On.SUCCESS)
    if pre:
        first = last_of_chain(hooks[Hook.PRE], pre)
        opens = same_host(first) if covers(first, draft.hosts) else [*opens, *same_host(first)]
    linker = _Linker(draft, opens)
    nodes = [*pre, *linker.link()]
    if not any(hooks.get(kind) for kind in _AT_THE_END):
        return ExecutionFragment.of(nodes, linker.exits())
    inside = [node for node in nodes if not node.is_gate]
    post = link_chain(hooks.get(Hook.POST, []), same_host(inside), On.SUCCESS)
    counted = [node for node in (*inside, *post) if not node.policy.ignore_errors]
    failed = link_chain(hooks.get(Hook.ON_FAILURE, []), same_host(counted, On.FAILURE), On.SUCCESS, repeat=True)
    always = link_chain(hooks.get(Hook.ALWAYS, []), _begun([*inside, *post, *failed]), On.DONE, repeat=True)
    after = [*post, *failed, *always]
    return ExecutionFragment.of([*nodes, *after], [*linker.exits(), *(node.id for node in after)])


class _Linker:
    def __init__(self, draft: TaskDraft, opens: list[Dependency]) -> None:
        self.draft = draft
        self.opens = opens
        self._ends: list[ExecutionNode] = []
        self._rescued: set[str] = set()
        """Groups with a rescue."""

    def link(self) -> list[ExecutionNode]:
        """All nodes; steps are linked behind those they need, wherever those are written, and handlers behind all."""
        nodes, self._ends = self._sequence(self.draft.entries, self.opens)
        if self.draft.handlers:
            of, name = self.draft, _END.name
            end = FlushDraft(_END, of.place, f"{of.id}{name}", of.module, of.name, of.hosts, parts=of.handlers)
            made, self._ends = self._entry(end, self._ends, self.opens)
            nodes += made
        return nodes

    def exits(self) -> list[NodeID]:
        """The last nodes of the steps that no other step needs."""
        return [node.id for node in self._ends]

    def _sequence(
        self, entries: Sequence[EntryDraft], opens: list[Dependency]
    ) -> tuple[list[ExecutionNode], list[ExecutionNode]]:
        """The nodes of steps and groups in the order of writing, and the last ones, which what follows waits for.

        ``opens``: what those wait for that need nothing among them.
        """
        by_name = {entry.spec.name: entry for entry in entries}
        needs = needs_of(entries)
        made: dict[str, list[ExecutionNode]] = {}
        ends: dict[str, list[ExecutionNode]] = {}
        """What the next step waits for: on each host the last node of a step, or of the steps before it."""
        for name in TopologicalSorter(needs).static_order():
            before = list({node.id: node for need in needs[name] for node in ends[need]}.values())
            made[name], ends[name] = self._entry(by_name[name], before, opens)
        needed = {need for several in needs.values() for need in several}
        last = [node for name, nodes in ends.items() if name not in needed for node in nodes]
        return [node for name in by_name for node in made[name]], last

    def _entry(
        self, entry: EntryDraft, before: list[ExecutionNode], opens: list[Dependency]
    ) -> tuple[list[ExecutionNode], list[ExecutionNode]]:
        """The nodes of a step, a flush or a group behind those before it; and those that the next one waits for."""
        if isinstance(entry, FlushDraft) and not entry.parts:
            return [], before
        result: list[ExecutionNode] = []
        waits = [*same_host(before), *([] if covers(before, entry.hosts) else opens)]
        if before and self.draft.strategy == "linear" and not _is_rescue(entry.groups):
            # In a group with a rescue a host that fails is on its own: the others wait for its end, not for success.
            alone = any(each.group in self._rescued for each in entry.groups)
            result = self._all_hosts(entry, before, On.DONE if alone else On.SUCCESS)
            gates = [barrier(one.id, hosts=hosts) for one, (hosts, _) in zip(result, self._batches(), strict=True)]
            waits = [*waits, *gates] if alone else gates
        if isinstance(entry, GroupDraft):
            nodes, last = self._group(entry, waits)
        elif isinstance(entry, FlushDraft):
            nodes, last = link_handlers(entry.parts, waits)
        else:
            nodes, last = _with_hooks(entry, waits)
        # Nothing waits for an empty loop, which has no hosts; but it has its place, and its outputs are known.
        empty = [node for node in nodes if node.skip == NO_ITEMS]
        return [*result, *nodes], [*([] if covers(last, entry.hosts) else before), *last, *empty]

    def _group(self, group: GroupDraft, waits: list[Dependency]) -> tuple[list[ExecutionNode], list[ExecutionNode]]:
        """The steps of a group, its rescue, which follows on each host on which a step failed, and its always."""
        if group.rescue:
            self._rescued.add(group.id)
        body, last = self._sequence(group.steps, waits)
        steps = [node for node in body if not node.is_gate]
        rescue: list[ExecutionNode] = []
        if group.rescue:
            rescue, handled = self._sequence(group.rescue, same_host(steps, On.DONE))
            last = [*last, *handled]
        always = link_chain(group.always, _begun([*steps, *rescue]), On.DONE, repeat=True)
        return [*body, *rescue, *always], [*last, *last_of_chain(group.always, always)]

    def _batches(self) -> list[tuple[tuple[str, ...] | None, str]]:
        """The hosts of each batch (None for all hosts) with the end of its gates' names."""
        if len(self.draft.batches) == 1:
            return [(None, "#all")]
        return [(hosts, f"#all{number}") for number, hosts in enumerate(self.draft.batches, 1)]

    def _all_hosts(self, entry: EntryDraft, before: Sequence[ExecutionNode], on: On) -> list[ExecutionNode]:
        """A gate for each batch that waits for the steps before on all its hosts."""
        gates: list[ExecutionNode] = []
        for number, (hosts, suffix) in enumerate(self._batches(), 1):
            waits = [barrier(node.id, on, hosts) for node in before]
            if number > 1:
                # What failed in earlier batches counts too: the gate of this batch carries it.
                waits.append(barrier(f"{self.draft.id}#batch{number}"))
            groups = entry.groups if on is On.DONE else ()
            gates.append(gate(f"{entry.id}{suffix}", waits, module=entry.module, task=entry.task, groups=groups))
        return gates


def _is_rescue(groups: tuple[Membership, ...]) -> bool:
    return any(each.part is Part.RESCUE for each in groups)


def _begun(inside: Sequence[ExecutionNode]) -> list[Dependency]:
    """Wait on each host for all of some nodes, of which one must have begun; cleaning up is no begin."""
    steps = [node for node in inside if not node.is_gate]
    work = [node for node in steps if node.hook not in _CLEANS_UP]
    return [*same_host(work, On.BEGUN), *same_host([node for node in steps if node.hook in _CLEANS_UP], On.DONE)]


def _batch_gates(
    draft: TaskDraft, steps: Sequence[ExecutionNode], hooks: Sequence[Sequence[ExecutionNode]]
) -> list[ExecutionNode]:
    """The gates between batches; ``hooks``: those of each batch, if there are any."""
    gates: list[ExecutionNode] = []
    for number in range(1, len(draft.batches)):
        waits = [barrier(node.id, hosts=draft.batches[number - 1]) for node in steps]
        if hooks:
            waits += members_of(hooks[number - 1])
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
    if not step.hooks:
        own = link_items(step, waits)
        return own, last_of(step, own)
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
    if step.spec.for_each is None or any(node.loop for node in own):
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
