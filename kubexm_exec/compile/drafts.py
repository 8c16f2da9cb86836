"""Pass: walks the documents and drafts modules, tasks and steps with their scopes, hosts and inherited policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.compile.delegation import Delegation
from kubexm_exec.compile.groups import Entries, draft_steps
from kubexm_exec.compile.handlers import draft_all_handlers, draft_handlers
from kubexm_exec.compile.hooks import (
    Surroundings,
    draft_all_hooks,
    draft_batch_hooks,
    draft_hooks,
    draft_host_hooks,
)
from kubexm_exec.compile.loopedscopes import Item, expand_needs, items_of_scope
from kubexm_exec.compile.needs import NeedsOf, check_unique
from kubexm_exec.compile.scopes import add_scope, guards_of
from kubexm_exec.compile.selectors import hosts_of, select, static_run_on
from kubexm_exec.compile.state import (
    Guard,
    ModuleDraft,
    State,
    TaskDraft,
    Variable,
    once_gate,
    with_env,
    with_tags,
)
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
_POLICY = ("retry", "timeout", "resources", "ignore_errors", "max_failures", "become", "sensitive", "repeatable")


def draft_modules(state: State) -> None:
    """Fill ``state.modules`` and the pipeline's hooks."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    defaults: dict[str, Any] = {"max_failures": document.max_failures}
    env = with_env({}, document.env, pipeline.place("env"), "")
    around = Surroundings(prefix="hooks", defaults=defaults, env=env, tags=with_tags((), document.tags))
    state.hooks = draft_hooks(state, document.hooks, pipeline.place("hooks"), "", around)
    state.handlers = draft_handlers(state, document.handlers, pipeline.place("handlers"), "", around)
    run_on = _selector(state, document.run_on, pipeline.place("runOn"), "")
    check_unique(state, [module.name for module in document.modules], pipeline.place("modules"), "module")
    needs = NeedsOf(state)
    for number, module in enumerate(document.modules):
        place = pipeline.place("modules", number)
        state.modules.extend(
            _module(state, number, module, one, defaults, env, run_on, needs)
            for one in items_of_scope(state, module, place, "", "", needs.module(module, place, number))
        )
    expand_needs(state)


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
    env: Mapping[str, Variable]
    tags: tuple[str, ...]
    defaults: dict[str, Any]


def _module(
    state: State,
    number: int,
    spec: ModuleSpec,
    item: Item,
    defaults: dict[str, Any],
    env: Mapping[str, Variable],
    run_on: _Selector | None,
    needs: NeedsOf,
) -> ModuleDraft:
    pipeline = state.bundle.pipeline
    place = pipeline.place("modules", number)
    used = state.bundle.modules.get(("modules", number))
    body: ModuleBody = used.document if used is not None else spec
    name = item.name
    outer = item.around(state, "", name)
    add_scope(state, name, outer, spec, used, place)
    guards = guards_of(spec.when, place, outer, used, name)
    draft = ModuleDraft(id=name, place=place.child("name"), name=name)
    draft.needs = item.needs
    inherited = {**defaults, "max_failures": spec.max_failures or body.max_failures or defaults["max_failures"]}
    tags = with_tags(with_tags((), pipeline.document.tags), spec.tags, body.tags if used else ())
    if used is not None:
        used = _noted(used, place)
        env = with_env(env, body.env, used.place("env"), name)
        # A selector that the used document wrote is rendered with the document's own values.
        run_on = _selector(state, body.run_on, used.place("runOn"), name) or run_on
    env = with_env(env, spec.env, place.child("env"), outer if used else name)
    module = _ModuleContext(
        name=name,
        run_on=_selector(state, spec.run_on, place.child("runOn"), outer if used else name) or run_on,
        strategy=spec.strategy or body.strategy or pipeline.document.strategy or "free",
        guards=guards,
        env=env,
        tags=tags,
        defaults=inherited,
    )
    around = Surroundings(prefix=f"{name}/hooks", module=name, defaults=inherited, guards=guards, env=env, tags=tags)
    draft.hooks = draft_all_hooks(state, spec.hooks, place, used, outer, name, around)
    draft.handlers = draft_all_handlers(state, spec.handlers, place, used, outer, name, around)
    owner = used if used is not None else pipeline
    prefix: Path = () if used is not None else ("modules", number)
    names = [task.name for task in body.tasks]
    check_unique(state, names, owner.place(*prefix, "tasks"), "task")
    for index, task in enumerate(body.tasks):
        where: Path = (*prefix, "tasks", index)
        before = needs.task(task, owner.place(*where), index, names, name)
        draft.tasks.extend(
            _task(state, task, one, module, owner, where)
            for one in items_of_scope(state, task, owner.place(*where), name, f"{name}/", before)
        )
    return draft


def _task(
    state: State,
    spec: TaskSpec,
    item: Item,
    module: _ModuleContext,
    owner: Loaded[PipelineDocument] | Loaded[ModuleDocument],
    path: Path,
) -> TaskDraft:
    place = owner.place(*path)
    used = state.bundle.tasks.get((owner.source.name, (owner.index, *path)))
    body: TaskBody = used.document if used is not None else spec
    task_id = f"{module.name}/{item.name}"
    outside = item.around(state, module.name, task_id)
    add_scope(state, task_id, outside, spec, used, place)
    guards = (*module.guards, *guards_of(spec.when, place, outside, used, task_id))
    used = _noted(used, place) if used is not None else None
    body_place = used.place() if used is not None else place
    env = module.env if used is None else with_env(module.env, body.env, used.place("env"), task_id)
    env = with_env(env, spec.env, place.child("env"), task_id if used is None else outside)
    tags = with_tags(module.tags, spec.tags, body.tags if used else ())
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
    hosts, once = _task_hosts(state, spec, used, place, module, task_id, outside)
    draft = TaskDraft(id=task_id, place=place.child("name"), module=module.name, name=item.name, hosts=hosts, once=once)
    draft.needs = item.needs
    draft.strategy = spec.strategy or body.strategy or module.strategy
    draft.align = spec.align if used is None or spec.align != "barrier" else body.align
    draft.batch_budget = (batch.max_failures if batch else None) or defaults.get("max_failures") or "0"
    draft.batches = _batches(hosts, batch.size) if batch and not once else (hosts,)
    draft.pause = batch.pause if batch else 0.0
    around = Surroundings(
        prefix=f"{task_id}/hooks", module=module.name, task=item.name, defaults=defaults, guards=guards, env=env,
        tags=tags, hosts=hosts, once=once,
    )  # fmt: skip
    draft.hooks = draft_all_hooks(state, spec.hooks, place, used, outside, task_id, around)
    draft.handlers = draft_all_handlers(state, spec.handlers, place, used, outside, task_id, around)
    around = replace(around, prefix=f"{task_id}/hostHooks")
    draft.host_hooks = draft_host_hooks(state, spec.host_hooks, place, used, outside, task_id, around)
    outer = outside if used is not None else task_id
    if batch is not None and batch.hooks is not None:
        around = replace(around, prefix=f"{task_id}/batchHooks")
        where, scope = (place, outer) if spec.batch is not None else (body_place, task_id)
        where = where.child("batch", "hooks")
        draft.batch_hooks = draft_batch_hooks(state, batch.hooks, where, scope, around, draft.batches)
    delegation = None
    if spec.delegate_to is not None:
        delegation = Delegation(spec.delegate_to, place.child("delegateTo"), outer)
    elif body.delegate_to is not None:
        delegation = Delegation(body.delegate_to, body_place.child("delegateTo"), task_id)
    around = replace(around, prefix=task_id)
    draft_steps(state, body.steps, body_place.child("steps"), Entries(draft, around, delegation))
    return draft


def _task_hosts(
    state: State,
    spec: TaskSpec,
    used: Loaded[TaskDocument] | None,
    place: Place,
    module: _ModuleContext,
    task_id: str,
    outside: str,
) -> tuple[tuple[str, ...], NodeID]:
    """The hosts of a task, and the gate that chooses one of them if it runs once."""
    if spec.run_on is not None:
        scope = task_id if used is None else outside
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


def _batches(hosts: tuple[str, ...], sizes: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The hosts batch by batch; the last of the sizes is that of all further batches."""
    found: list[tuple[str, ...]] = []
    start = 0
    while start < len(hosts):
        size = sizes[min(len(found), len(sizes) - 1)]
        count = max(1, int(size[:-1]) * len(hosts) // 100) if size.endswith("%") else int(size)
        found.append(hosts[start : start + count])
        start += count
    return tuple(found) or ((),)
