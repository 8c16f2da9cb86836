"""Drafts the hooks of pipelines, modules, tasks, batches, hosts and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.compile.delegation import Delegation, delegate
from kubexm_exec.compile.scopes import Used
from kubexm_exec.compile.selectors import hosts_of, is_outside
from kubexm_exec.compile.state import Guard, State, StepDraft, Variable, hook_specs, once_gate, with_tags
from kubexm_exec.model.graph import Batch, Hook, Membership, NodeID
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.diagnostics import Note
from kubexm_spec.documents.loader import Loaded
from kubexm_spec.models import HooksSpec, HookStepSpec, RunOnSpec, StepSpec, TaskDocument
from kubexm_spec.yaml.source import Place


class Surroundings(Struct, frozen=True):
    """What the steps of a hook take over from the pipeline, module or task that the hook belongs to."""

    prefix: str
    module: str = ""
    task: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    env: Mapping[str, Variable] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    hosts: tuple[str, ...] = (CONTROL_NODE,)
    once: NodeID = ""


def draft_hooks(
    state: State, hooks: HooksSpec | None, place: Place, scope: str, around: Surroundings
) -> dict[Hook, list[StepDraft]]:
    """The steps of all hooks in one ``hooks`` mapping."""
    found: dict[Hook, list[StepDraft]] = {}
    for hook, key, steps in hook_specs(hooks):
        for number, step in enumerate(steps):
            where = place.child(key, number)
            hosts, once, name = around.hosts, around.once, f"{around.prefix}/{key}/{step.name}"
            outside = False
            if step.delegate_to is not None:
                _refuse_delegation(state, step, where)
            if step.run_on is not None:
                who, runs_on = f'hook "{step.name}"', where.child("runOn")
                hosts = hosts_of(state, step.run_on, runs_on, scope, who, candidates=True)
                outside = is_outside(state, step.run_on, runs_on, scope, hosts)
                once = once_gate(name, step.run_on, hosts)
            found.setdefault(hook, []).append(
                StepDraft(
                    spec=step, place=where, id=name, module=around.module, task=around.task, scope=scope, hosts=hosts,
                    hook=hook, once=once, for_host=False, guards=around.guards, env=around.env, outside=outside,
                    tags=with_tags(around.tags, step.tags), defaults=around.defaults,
                )
            )  # fmt: skip
    return found


def _refuse_delegation(state: State, step: HookStepSpec, place: Place) -> None:
    summary = f'hook "{step.name}" cannot be delegated: it does not serve a single host'
    hint = "use runOn; delegateTo is for steps, hooks of steps and hostHooks"
    state.diagnostics.error("no-origin", summary, place.child("delegateTo"), hint=hint)


def draft_all_hooks(
    state: State, own: HooksSpec | None, place: Place, used: Used, outer: str, inner: str, around: Surroundings
) -> dict[Hook, list[StepDraft]]:
    """The hooks of a module or task: those of the document it uses first, then its own, which see what is around it."""
    found: dict[Hook, list[StepDraft]] = {}
    sources = [(used.document.hooks, used.place("hooks"), inner)] if used is not None else []
    sources.append((own, place.child("hooks"), outer if used is not None else inner))
    for hooks, where, scope in sources:
        for hook, drafts in draft_hooks(state, hooks, where, scope, around).items():
            found.setdefault(hook, []).extend(drafts)
    return found


def draft_host_hooks(
    state: State,
    own: HooksSpec | None,
    place: Place,
    used: Loaded[TaskDocument] | None,
    outer: str,
    inner: str,
    around: Surroundings,
) -> dict[Hook, list[StepDraft]]:
    """The hooks of each host of a task; those of the document it uses first, as with other hooks."""
    found: dict[Hook, list[StepDraft]] = {}
    sources = [(used.document.host_hooks, used.place("hostHooks"), inner)] if used is not None else []
    sources.append((own, place.child("hostHooks"), outer if used is not None else inner))
    for hooks, where, scope in sources:
        for hook, key, steps in hook_specs(hooks):
            for number, spec in enumerate(steps):
                draft = StepDraft(
                    spec=spec, place=where.child(key, number), id=f"{around.prefix}/{key}/{spec.name}",
                    module=around.module, task=around.task, scope=scope, hosts=around.hosts, hook=hook,
                    once=around.once, guards=around.guards, env=around.env, tags=with_tags(around.tags, spec.tags),
                    defaults=around.defaults,
                )  # fmt: skip
                set_places(state, draft, spec)
                found.setdefault(hook, []).append(draft)
    return found


def draft_group_hooks(
    state: State,
    specs: Sequence[HookStepSpec],
    place: Place,
    scope: str,
    around: Surroundings,
    groups: tuple[Membership, ...],
) -> list[StepDraft]:
    """The ``always`` of a group of steps, for each of its hosts."""
    found: list[StepDraft] = []
    for number, spec in enumerate(specs):
        draft = StepDraft(
            spec=spec, place=place.child(number), id=f"{around.prefix}/{spec.name}", module=around.module,
            task=around.task, scope=scope, hosts=around.hosts, hook=Hook.ALWAYS, once=around.once,
            guards=around.guards, env=around.env, tags=with_tags(around.tags, spec.tags), defaults=around.defaults,
            groups=groups,
        )  # fmt: skip
        set_places(state, draft, spec)
        found.append(draft)
    return found


def draft_batch_hooks(
    state: State,
    hooks: HooksSpec | None,
    place: Place,
    scope: str,
    around: Surroundings,
    batches: Sequence[tuple[str, ...]],
) -> list[dict[Hook, list[StepDraft]]]:
    """The hooks of each batch of a task."""
    drafted = draft_hooks(state, hooks, place, scope, around)
    return [
        {
            hook: [_of_batch(draft, around.prefix, Batch(number, len(batches), hosts)) for draft in drafts]
            for hook, drafts in drafted.items()
        }
        for number, hosts in enumerate(batches, 1)
        if drafted
    ]


def _of_batch(draft: StepDraft, prefix: str, batch: Batch) -> StepDraft:
    """The hook of one batch: on its hosts, or where it says; nowhere if there is no host in it."""
    own = draft.spec.run_on if isinstance(draft.spec, HookStepSpec) else None
    name = f"{prefix}/{batch.number}/{draft.id.removeprefix(f'{prefix}/')}"
    hosts = batch.hosts if own is None or not batch.hosts else draft.hosts
    once = once_gate(name, own, hosts) if own is not None else draft.once
    return replace(draft, id=name, hosts=hosts, once=once, batch=batch, nodes=[], hooks={})


def draft_step_hooks(state: State, draft: StepDraft, step: StepSpec) -> None:
    """The hooks of a step work for each of its hosts, on that host or where they say, each after its own host."""
    sources = [(hook, draft.place.child("hooks", key), steps) for hook, key, steps in hook_specs(step.hooks)]
    sources.append((Hook.ON_FAILURE, draft.place.child("onFailure"), step.on_failure))
    for hook, where, steps in sources:
        for number, spec in enumerate(steps):
            child = draft.child(spec, where.child(number), f"{draft.id}/hooks/{hook.value}/{spec.name}", hook)
            child.tags = with_tags(draft.tags, spec.tags)
            set_places(state, child, spec)
            draft.hooks.setdefault(hook, []).append(child)


def set_places(state: State, hook: StepDraft, spec: HookStepSpec) -> None:
    """Where a hook or a handler works that serves single hosts."""
    if spec.run_on is not None:
        hook.served = _served_by(state, hook, spec.run_on)
    elif spec.delegate_to is not None:
        delegate(state, hook, Delegation(spec.delegate_to, hook.place.child("delegateTo"), hook.scope))


def _served_by(state: State, hook: StepDraft, run_on: RunOnSpec) -> dict[str, tuple[str, ...]]:
    """By place the hosts that a hook serves there, one at a time; a limit chooses who is served, not the places."""
    place, who = hook.place.child("runOn"), hook.called
    if not is_dynamic(run_on.model_dump()):
        places = hosts_of(state, run_on, place, hook.scope, who, reach=state.reach)
        return dict.fromkeys(places, hook.hosts)
    found: dict[str, list[str]] = {}
    for host in hook.hosts:
        findings = len(state.diagnostics)
        for name in hosts_of(state, run_on, place, hook.scope, who, reach=state.reach, origin=host):
            found.setdefault(name, []).append(host)
        if len(state.diagnostics) > findings:
            break  # one finding is enough, however many hosts there are
    return {name: tuple(found[name]) for name in state.hosts if name in found}


def check_ids(state: State) -> None:
    """Pass: every draft has an id of its own; hooks that are put together can clash where siblings do not."""
    if any(finding.code == "duplicate-name" for finding in state.diagnostics):
        return  # all that is below two modules of one name has one id, too
    first: dict[str, StepDraft] = {}
    for draft in state.all_drafts():
        other = first.setdefault(draft.id, draft)
        if other is not draft and other.place != draft.place:
            summary, where = f'there are two steps with the id "{draft.id}"', draft.place.child("name")
            notes = (Note("the first one", other.place.child("name").span()), *where.notes)
            state.diagnostics.error("duplicate-name", summary, where, hint="rename one of them", notes=notes)
