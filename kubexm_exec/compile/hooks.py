"""Drafts the hooks of pipelines, modules, tasks and steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from kubexm_exec.compile.scopes import Used
from kubexm_exec.compile.selectors import hosts_of, is_outside
from kubexm_exec.compile.state import Guard, State, StepDraft, hook_specs, once_gate
from kubexm_exec.model.graph import Hook, NodeID
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.diagnostics import Note
from kubexm_spec.models import HooksSpec, RunOnSpec, StepSpec
from kubexm_spec.yaml.source import Place


class Surroundings(Struct, frozen=True):
    """What the steps of a hook take over from the pipeline, module or task that the hook belongs to."""

    prefix: str
    module: str = ""
    task: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
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
            if step.run_on is not None:
                who, runs_on = f'hook "{step.name}"', where.child("runOn")
                hosts = hosts_of(state, step.run_on, runs_on, scope, who, candidates=True)
                outside = is_outside(state, step.run_on, runs_on, scope, hosts)
                once = once_gate(name, step.run_on, hosts)
            found.setdefault(hook, []).append(
                StepDraft(
                    spec=step, place=where, id=name, module=around.module, task=around.task, scope=scope, hosts=hosts,
                    hook=hook, once=once, for_host=False, guards=around.guards, outside=outside,
                    tags=(*around.tags, *step.tags), defaults=around.defaults,
                )
            )  # fmt: skip
    return found


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


def draft_step_hooks(state: State, draft: StepDraft, step: StepSpec) -> None:
    """The hooks of a step work for each of its hosts, on that host or where they say, each after its own host."""
    sources = [(hook, draft.place.child("hooks", key), steps) for hook, key, steps in hook_specs(step.hooks)]
    sources.append((Hook.ON_FAILURE, draft.place.child("onFailure"), step.on_failure))
    for hook, where, steps in sources:
        for number, spec in enumerate(steps):
            child = draft.child(spec, where.child(number), f"{draft.id}/hooks/{hook.value}/{spec.name}", hook)
            child.tags = (*draft.tags, *spec.tags)
            if spec.run_on is not None:
                child.served = _served(state, child, spec.run_on)
            draft.hooks.setdefault(hook, []).append(child)


def _served(state: State, hook: StepDraft, run_on: RunOnSpec) -> dict[str, tuple[str, ...]]:
    """By place the hosts that a hook of a step serves there; a limit chooses who is served, not the places."""
    place, who = hook.place.child("runOn"), f'hook "{hook.spec.name}"'
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
