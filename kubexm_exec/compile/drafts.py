"""Pass: walks the documents and drafts modules, tasks and steps with their scopes, hosts and inherited policy."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.compile.hooks import Surroundings, draft_all_hooks, draft_hooks, draft_step_hooks
from kubexm_exec.compile.needs import NeedsOf, check_step_needs, check_unique
from kubexm_exec.compile.scopes import add_scope, guards_of
from kubexm_exec.compile.selectors import hosts_of, select, static_run_on
from kubexm_exec.compile.state import Guard, ModuleDraft, State, StepDraft, TaskDraft, once_gate
from kubexm_exec.model.graph import NodeID
from kubexm_spec.diagnostics import Note
from kubexm_spec.documents.loader import Loaded
from kubexm_spec.models import (
    ModuleBody,
    ModuleDocument,
    ModuleSpec,
    PipelineDocument,
    RunOnSpec,
    TaskBody,
    TaskDocument,
    TaskSpec,
)
from kubexm_spec.yaml.source import Path, Place

_D = TypeVar("_D")
_POLICY = ("retry", "timeout", "resources", "ignore_errors", "max_failures", "become", "sensitive")


def draft_modules(state: State) -> None:
    """Fill ``state.modules`` and the pipeline's hooks."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    defaults: dict[str, Any] = {"max_failures": document.max_failures}
    around = Surroundings(prefix="hooks", defaults=defaults, tags=tuple(document.tags))
    state.hooks = draft_hooks(state, document.hooks, pipeline.place("hooks"), "", around)
    run_on = _selector(state, document.run_on, pipeline.place("runOn"), "")
    check_unique(state, [module.name for module in document.modules], pipeline.place("modules"), "module")
    needs = NeedsOf(state)
    for number, module in enumerate(document.modules):
        state.modules.append(_module(state, number, module, needs, defaults, run_on))


class _Selector(Struct, frozen=True):
    """A ``runOn`` that tasks inherit, with the scope that its expressions see."""

    spec: RunOnSpec
    place: Place
    scope: str


def _selector(state: State, run_on: RunOnSpec | None, place: Place, scope: str) -> _Selector | None:
    if run_on is None:
        return None
    # Looked at even if every task has its own: a role that does not exist is an error wherever it stands.
    rendered = static_run_on(state, run_on, place, scope)
    if rendered is not None:
        select(state, rendered, place)
    return _Selector(run_on, place, scope)


class _ModuleContext(Struct, frozen=True):
    """What a module gives its tasks."""

    name: str
    run_on: _Selector | None
    strategy: str
    guards: tuple[Guard, ...]
    tags: tuple[str, ...]
    defaults: dict[str, Any]


def _module(
    state: State, number: int, spec: ModuleSpec, needs: NeedsOf, defaults: dict[str, Any], run_on: _Selector | None
) -> ModuleDraft:
    pipeline = state.bundle.pipeline
    place = pipeline.place("modules", number)
    used = state.bundle.modules.get(("modules", number))
    body: ModuleBody = used.document if used is not None else spec
    add_scope(state, spec.name, "", spec, used, place)
    guards = guards_of(spec.when, place, "", used, spec.name)
    draft = ModuleDraft(id=spec.name, place=place.child("name"), name=spec.name)
    draft.needs = needs.module(spec, place, number)
    inherited = {**defaults, "max_failures": spec.max_failures or body.max_failures or defaults["max_failures"]}
    tags = (*pipeline.document.tags, *spec.tags, *(body.tags if used else ()))
    if used is not None:
        used = _noted(used, place)
        # A selector that the used document wrote is rendered with the document's own values.
        run_on = _selector(state, body.run_on, used.place("runOn"), spec.name) or run_on
    module = _ModuleContext(
        name=spec.name,
        run_on=_selector(state, spec.run_on, place.child("runOn"), "" if used else spec.name) or run_on,
        strategy=spec.strategy or body.strategy or pipeline.document.strategy or "free",
        guards=guards,
        tags=tags,
        defaults=inherited,
    )
    around = Surroundings(prefix=f"{spec.name}/hooks", module=spec.name, defaults=inherited, guards=guards, tags=tags)
    draft.hooks = draft_all_hooks(state, spec.hooks, place, used, "", spec.name, around)
    owner = used if used is not None else pipeline
    prefix: Path = () if used is not None else ("modules", number)
    names = [task.name for task in body.tasks]
    check_unique(state, names, owner.place(*prefix, "tasks"), "task")
    for index, task in enumerate(body.tasks):
        draft.tasks.append(_task(state, index, task, names, module, needs, owner, (*prefix, "tasks", index)))
    return draft


def _task(
    state: State,
    index: int,
    spec: TaskSpec,
    names: list[str],
    module: _ModuleContext,
    needs: NeedsOf,
    owner: Loaded[PipelineDocument] | Loaded[ModuleDocument],
    path: Path,
) -> TaskDraft:
    place = owner.place(*path)
    used = state.bundle.tasks.get((owner.source.name, (owner.index, *path)))
    body: TaskBody = used.document if used is not None else spec
    task_id = f"{module.name}/{spec.name}"
    add_scope(state, task_id, module.name, spec, used, place)
    guards = (*module.guards, *guards_of(spec.when, place, module.name, used, task_id))
    used = _noted(used, place) if used is not None else None
    body_place = used.place() if used is not None else place
    tags = tuple(dict.fromkeys((*module.tags, *spec.tags, *(body.tags if used else ()))))
    defaults = dict(module.defaults)
    for key in _POLICY:
        value = getattr(spec, key)
        if value is None and used is not None:
            value = getattr(body, key)
        if value is not None:
            defaults[key] = value
    batch = spec.batch or body.batch
    if batch is not None and batch.max_failures is not None and spec.max_failures is None and body.max_failures is None:
        # Else a single failure, which the batches bear, would be one too many for its step.
        defaults["max_failures"] = batch.max_failures
    hosts, once = _task_hosts(state, spec, used, place, module, task_id)
    draft = TaskDraft(id=task_id, place=place.child("name"), module=module.name, name=spec.name, hosts=hosts, once=once)
    draft.needs = needs.task(spec, place, index, names, module.name)
    draft.strategy = spec.strategy or body.strategy or module.strategy
    draft.align = spec.align if used is None or spec.align != "barrier" else body.align
    draft.batch_budget = (batch.max_failures if batch else None) or defaults.get("max_failures") or "0"
    draft.batches = _batches(hosts, batch.size) if batch and not once else (hosts,)
    draft.pause = batch.pause if batch else 0.0
    around = Surroundings(
        prefix=f"{task_id}/hooks", module=module.name, task=spec.name, defaults=defaults, guards=guards, tags=tags,
        hosts=hosts, once=once,
    )  # fmt: skip
    draft.hooks = draft_all_hooks(state, spec.hooks, place, used, module.name, task_id, around)
    step_names = [step.name for step in body.steps]
    check_unique(state, step_names, body_place.child("steps"), "step")
    for number, step in enumerate(body.steps):
        where = body_place.child("steps", number)
        check_step_needs(state.diagnostics, step, where, step_names)
        step_draft = StepDraft(
            spec=step, place=where, id=f"{task_id}/{step.name}", module=module.name, task=spec.name, scope=task_id,
            hosts=hosts, once=once, guards=guards, tags=(*tags, *step.tags), defaults=defaults,
        )  # fmt: skip
        draft_step_hooks(state, step_draft, step)
        draft.steps.append(step_draft)
    return draft


def _task_hosts(
    state: State, spec: TaskSpec, used: Loaded[TaskDocument] | None, place: Place, module: _ModuleContext, task_id: str
) -> tuple[tuple[str, ...], NodeID]:
    """The hosts of a task, and the gate that chooses one of them if it runs once."""
    if spec.run_on is not None:
        scope = task_id if used is None else module.name
        chosen = _Selector(spec.run_on, place.child("runOn"), scope)
    elif used is not None and used.document.run_on is not None:
        chosen = _Selector(used.document.run_on, used.place("runOn"), task_id)
    elif module.run_on is not None:
        chosen = module.run_on
    else:
        return state.all_hosts, ""
    who = f'task "{task_id}"'
    hosts = hosts_of(state, chosen.spec, chosen.place, chosen.scope, who, candidates=True)
    return hosts, once_gate(task_id, chosen.spec, hosts)


def _noted(used: Loaded[_D], user: Place) -> Loaded[_D]:
    """The document, whose findings say who uses it, and who uses that one."""
    return replace(used, notes=(Note("used by", user.child("uses").span()), *user.notes))


def _batches(hosts: tuple[str, ...], size: str) -> tuple[tuple[str, ...], ...]:
    count = max(1, int(size[:-1]) * len(hosts) // 100) if size.endswith("%") else int(size)
    return tuple(hosts[start : start + count] for start in range(0, len(hosts), count)) or ((),)
