"""Links the steps of a task: host by host (free) or step by step (linear), batch after batch."""

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
    same_host,
)
from kubexm_exec.compile.state import StepDraft, TaskDraft
from kubexm_exec.model.graph import Dependency, ExecutionFragment, ExecutionNode, Hook, NodeID, On
from kubexm_exec.values.evaluate import NO_ITEMS
from kubexm_spec.models import StepSpec


def link_steps(draft: TaskDraft, opens: list[Dependency]) -> ExecutionFragment:
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
        """What whoever comes after a step waits for: on each host its last node, or that of the steps before it."""
        self.needed: set[str] = set()

    def link(self) -> list[ExecutionNode]:
        """All nodes; steps are linked behind those they need, wherever those are written."""
        needs = {step.spec.name: self._needs(number) for number, step in enumerate(self.draft.steps)}
        made = {name: self._step(self.steps[name], needs[name]) for name in TopologicalSorter(needs).static_order()}
        return [node for name in self.steps for node in made[name]]

    def exits(self) -> list[NodeID]:
        """The last nodes of the steps that no other step needs."""
        return [node.id for name, ends in self.ends.items() if name not in self.needed for node in ends]

    def _needs(self, number: int) -> list[str]:
        spec = self.draft.steps[number].spec
        if isinstance(spec, StepSpec) and spec.needs is not None:
            return [name for name in dict.fromkeys(spec.needs) if name in self.steps]
        return [self.draft.steps[number - 1].spec.name] if number else []

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
        # Nobody really waits for an empty loop, which has no hosts; but it has its place, and no outputs are known too.
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
