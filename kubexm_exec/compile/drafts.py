"""Pass: walks the documents and drafts modules, tasks and steps with their scopes, hosts and inherited policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubexm_exec.compile.hosts import select
from kubexm_exec.compile.params import bind, check_declarations, secret_names
from kubexm_exec.compile.state import CONTROL_NODE, Guard, ModuleDraft, Need, State, StepDraft, TaskDraft, hook_specs
from kubexm_exec.compile.static import render_static
from kubexm_exec.expr import is_dynamic
from kubexm_exec.graph import Hook, Scope
from kubexm_spec.bundle import Loaded
from kubexm_spec.diagnostics import Note, did_you_mean
from kubexm_spec.models import (
    HooksSpec,
    ModuleBody,
    ModuleDocument,
    ModuleSpec,
    ParamSpec,
    PipelineDocument,
    RunOnSpec,
    StepSpec,
    TaskBody,
    TaskDocument,
    TaskSpec,
)
from kubexm_spec.source import Path, Place

_POLICY = ("retry", "timeout", "resources", "ignore_errors", "max_failures", "sensitive")


def bind_pipeline(state: State) -> None:
    """The root scope: the pipeline's parameters with the values from outside, and its vars."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    check_declarations(document.params, pipeline.place("params"), state.diagnostics)
    values = bind(
        document.params,
        state.values,
        state.diagnostics,
        owner=f'pipeline "{document.metadata.name}"',
        declared_at=pipeline.place("params"),
        given_at=None,
    )
    state.scopes[""] = Scope(
        id="",
        params=values,
        secret_params=secret_names(document.params),
        own_params=True,
        vars=document.vars,
        base=str(pipeline.folder),
    )
    _remember_vars(state, "", document.vars, pipeline.place("vars"))


def draft_modules(state: State) -> None:
    """Fill ``state.modules`` and the pipeline's hooks."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    defaults: dict[str, Any] = {"max_failures": document.max_failures}
    state.hooks = _hooks(
        state, document.hooks, pipeline.place("hooks"), prefix="hooks", module="", task="", scope="", defaults=defaults
    )
    names = [module.name for module in document.modules]
    _unique(state, names, pipeline.place("modules"), "module")
    for number, module in enumerate(document.modules):
        state.modules.append(_module(state, number, module, names, defaults))


def _module(state: State, number: int, spec: ModuleSpec, names: list[str], defaults: dict[str, Any]) -> ModuleDraft:
    pipeline = state.bundle.pipeline
    place = pipeline.place("modules", number)
    used = state.bundle.modules.get(("modules", number))
    body: ModuleBody = used.document if used is not None else spec
    body_place = used.place() if used is not None else place
    notes = (Note("used by", place.child("uses").span()),) if used is not None else ()
    _scope(state, spec.name, "", spec, used, place, notes)
    guards = _guards(spec.when, place, "", used, spec.name)
    draft = ModuleDraft(id=spec.name, place=place.child("name"), name=spec.name)
    draft.needs = _needs(
        state, spec.needs, place, previous=names[number - 1] if number else None, known=names, noun="module"
    )
    inherited = {**defaults, "max_failures": spec.max_failures or body.max_failures or defaults["max_failures"]}
    tags = (*pipeline.document.tags, *spec.tags, *(body.tags if used else ()))
    module = _ModuleContext(
        name=spec.name,
        run_on=spec.run_on or body.run_on or pipeline.document.run_on,
        run_on_place=_run_on_place(
            (spec.run_on, place),
            (body.run_on if used else None, body_place),
            (pipeline.document.run_on, pipeline.place()),
        ),
        # A selector that the used document wrote is rendered with the document's own values.
        run_on_scope="" if spec.run_on is not None or body.run_on is None else spec.name,
        strategy=spec.strategy or body.strategy or pipeline.document.strategy or "free",
        guards=guards,
        tags=tags,
        defaults=inherited,
        notes=notes,
    )
    for hooks, where, scope in _hook_sources(spec.hooks, place, "", used, spec.name):
        _merge_hooks(
            draft.hooks,
            _hooks(
                state, hooks, where, prefix=f"{spec.name}/hooks", module=spec.name, task="", scope=scope,
                defaults=inherited, guards=guards, tags=tags, notes=notes,
            ),
        )  # fmt: skip
    owner = used if used is not None else pipeline
    prefix: Path = () if used is not None else ("modules", number)
    task_names = [task.name for task in body.tasks]
    _unique(state, task_names, body_place.child("tasks"), "task", notes)
    for index, task in enumerate(body.tasks):
        draft.tasks.append(_task(state, index, task, task_names, module, owner, (*prefix, "tasks", index)))
    return draft


class _ModuleContext:
    """What a module gives its tasks."""

    def __init__(
        self,
        *,
        name: str,
        run_on: RunOnSpec | None,
        run_on_place: Place,
        run_on_scope: str,
        strategy: str,
        guards: tuple[Guard, ...],
        tags: tuple[str, ...],
        defaults: dict[str, Any],
        notes: tuple[Note, ...],
    ) -> None:
        self.name = name
        self.run_on = run_on
        self.run_on_place = run_on_place
        self.run_on_scope = run_on_scope
        self.strategy = strategy
        self.guards = guards
        self.tags = tags
        self.defaults = defaults
        self.notes = notes


def _task(
    state: State,
    index: int,
    spec: TaskSpec,
    names: list[str],
    module: _ModuleContext,
    owner: Loaded[PipelineDocument] | Loaded[ModuleDocument],
    path: Path,
) -> TaskDraft:
    place = owner.place(*path)
    used = state.bundle.tasks.get((owner.source.name, (owner.index, *path)))
    body: TaskBody = used.document if used is not None else spec
    body_place = used.place() if used is not None else place
    notes = module.notes if used is None else (Note("used by", place.child("uses").span()), *module.notes)
    task_id = f"{module.name}/{spec.name}"
    _scope(state, task_id, module.name, spec, used, place, notes)
    guards = (*module.guards, *_guards(spec.when, place, module.name, used, task_id))
    tags = tuple(dict.fromkeys((*module.tags, *spec.tags, *(body.tags if used else ()))))
    defaults = dict(module.defaults)
    for key in _POLICY:
        value = getattr(spec, key)
        if value is None and used is not None:
            value = getattr(body, key)
        if value is not None:
            defaults[key] = value
    hosts = _task_hosts(state, spec, body, used, place, body_place, module, task_id)
    draft = TaskDraft(id=task_id, place=place.child("name"), module=module.name, name=spec.name, hosts=hosts)
    draft.needs = _task_needs(state, spec, place, names, index, module.name)
    draft.strategy = spec.strategy or body.strategy or module.strategy
    draft.align = spec.align if used is None or spec.align != "barrier" else body.align
    batch = spec.batch or body.batch
    draft.batch_budget = (batch.max_failures if batch else None) or defaults.get("max_failures") or "0"
    draft.batches = _batches(hosts, batch.size) if batch else (hosts,)
    draft.pause = batch.pause if batch else 0.0
    for hooks, where, scope in _hook_sources(spec.hooks, place, module.name, used, task_id):
        _merge_hooks(
            draft.hooks,
            _hooks(
                state, hooks, where, prefix=f"{task_id}/hooks", module=module.name, task=spec.name, scope=scope,
                defaults=defaults, guards=guards, tags=tags, notes=notes, hosts=hosts,
            ),
        )  # fmt: skip
    step_names = [step.name for step in body.steps]
    _unique(state, step_names, body_place.child("steps"), "step", notes)
    for number, step in enumerate(body.steps):
        where = body_place.child("steps", number)
        _step_needs(state, step, where, step_names, notes)
        step_draft = StepDraft(
            spec=step, place=where, id=f"{task_id}/{step.name}", module=module.name, task=spec.name, scope=task_id,
            hosts=hosts, guards=guards, tags=(*tags, *step.tags), defaults=defaults, notes=notes,
        )  # fmt: skip
        _step_hooks(step_draft, step, where)
        draft.steps.append(step_draft)
    return draft


def _task_hosts(
    state: State,
    spec: TaskSpec,
    body: TaskBody,
    used: Loaded[TaskDocument] | None,
    place: Place,
    body_place: Place,
    module: _ModuleContext,
    task_id: str,
) -> tuple[str, ...]:
    if spec.run_on is not None:
        run_on, where, scope = spec.run_on, place.child("runOn"), module.name
    elif used is not None and body.run_on is not None:
        run_on, where, scope = body.run_on, body_place.child("runOn"), task_id
    elif module.run_on is not None:
        run_on, where, scope = module.run_on, module.run_on_place, module.run_on_scope
    else:
        return state.all_hosts
    run_on = _static_run_on(state, run_on, where, scope)
    before = len(state.diagnostics)
    hosts = select(state, run_on, where)
    if not hosts and len(state.diagnostics) == before:
        message = f'task "{task_id}" runs on no host'
        if run_on.required and not state.limit:
            state.diagnostics.error("no-hosts", message, where, hint="it says `required`: check the inventory")
        elif not state.limit:
            state.diagnostics.warning("no-hosts", message, where, hint="it will be skipped")
    return hosts


def _static_run_on(state: State, run_on: RunOnSpec, where: Place, scope: str) -> RunOnSpec:
    data = run_on.model_dump(by_alias=True)
    if not is_dynamic(data):
        return run_on
    rendered: dict[str, Any] = {}
    for key, value in data.items():
        rendered[key] = render_static(state, value, scope, where.child(key), "a selector")
        if key in ("roles", "groups", "hosts", "exclude") and isinstance(rendered[key], list):
            rendered[key] = [
                str(x) for item in rendered[key] for x in (item if isinstance(item, list) else [item]) if x is not None
            ]
    return RunOnSpec.model_validate(rendered)


def _batches(hosts: tuple[str, ...], size: str) -> tuple[tuple[str, ...], ...]:
    count = max(1, int(size[:-1]) * len(hosts) // 100) if size.endswith("%") else int(size)
    return tuple(hosts[start : start + count] for start in range(0, len(hosts), count)) or ((),)


def _scope(
    state: State,
    scope_id: str,
    parent: str,
    spec: ModuleSpec | TaskSpec,
    used: Loaded[ModuleDocument] | Loaded[TaskDocument] | None,
    place: Place,
    notes: tuple[Note, ...],
) -> None:
    """The values that a module or task sees; a used document is closed: its params, its vars, the inventory's."""
    outputs = spec.outputs if used is None else {**used.document.outputs, **spec.outputs}
    _remember_vars(state, scope_id, spec.vars, place.child("vars"))
    output_place = place.child("outputs") if used is None else used.place("outputs")
    for name in outputs:
        state.output_places[(scope_id, name)] = output_place.child(name)
    if used is None:
        base = state.scopes[parent].base
        state.scopes[scope_id] = Scope(id=scope_id, parent=parent, vars=spec.vars, outputs=outputs, base=base)
        return
    params: Mapping[str, ParamSpec] = used.document.params
    check_declarations(params, used.place("params"), state.diagnostics)
    kind = type(used.document).__name__.removesuffix("Document").lower()
    values = bind(
        params, spec.with_, state.diagnostics, owner=f'{kind} "{used.document.metadata.name}"',
        declared_at=used.place("params"), given_at=place.child("with") if spec.with_ else place.child("uses"),
    )  # fmt: skip
    for name in spec.with_:
        state.param_places[(scope_id, name)] = place.child("with", name)
    for name in used.document.vars:
        state.var_places.setdefault((scope_id, name), used.place("vars", name))
    state.scopes[scope_id] = Scope(
        id=scope_id, parent=parent, params=values, secret_params=secret_names(params), own_params=True,
        vars={**used.document.vars, **spec.vars}, outputs=outputs, base=str(used.folder),
    )  # fmt: skip


def _remember_vars(state: State, scope: str, variables: Mapping[str, Any], place: Place) -> None:
    for name in variables:
        state.var_places[(scope, name)] = place.child(name)


def _guards(
    when: str | bool | None,
    place: Place,
    outer: str,
    used: Loaded[ModuleDocument] | Loaded[TaskDocument] | None,
    inner: str,
) -> tuple[Guard, ...]:
    """The use site's condition sees the values around it, the document's own sees the document's."""
    found: list[Guard] = []
    if when is not None:
        found.append(Guard(outer if used is not None else inner, when, place.child("when")))
    if used is not None and used.document.when is not None:
        found.append(Guard(inner, used.document.when, used.place("when")))
    return tuple(found)


def _run_on_place(*candidates: tuple[RunOnSpec | None, Place]) -> Place:
    for run_on, place in candidates:
        if run_on is not None:
            return place.child("runOn")
    return candidates[-1][1]


def _hook_sources(
    own: HooksSpec | None,
    place: Place,
    outer: str,
    used: Loaded[ModuleDocument] | Loaded[TaskDocument] | None,
    inner: str,
) -> list[tuple[HooksSpec, Place, str]]:
    sources: list[tuple[HooksSpec, Place, str]] = []
    if used is not None and used.document.hooks is not None:
        sources.append((used.document.hooks, used.place("hooks"), inner))
    if own is not None:
        sources.append((own, place.child("hooks"), outer if used is not None else inner))
    return sources


def _merge_hooks(into: dict[Hook, list[StepDraft]], more: dict[Hook, list[StepDraft]]) -> None:
    for hook, drafts in more.items():
        into.setdefault(hook, []).extend(drafts)


def _hooks(
    state: State,
    hooks: HooksSpec | None,
    place: Place,
    *,
    prefix: str,
    module: str,
    task: str,
    scope: str,
    defaults: Mapping[str, Any],
    guards: tuple[Guard, ...] = (),
    tags: tuple[str, ...] = (),
    notes: tuple[Note, ...] = (),
    hosts: tuple[str, ...] | None = None,
) -> dict[Hook, list[StepDraft]]:
    found: dict[Hook, list[StepDraft]] = {}
    for hook, key, steps in hook_specs(hooks):
        _unique(state, [step.name for step in steps], place.child(key), "step", notes)
        for number, step in enumerate(steps):
            where = place.child(key, number)
            if step.run_on is not None:
                selected = select(
                    state, _static_run_on(state, step.run_on, where.child("runOn"), scope), where.child("runOn")
                )
            else:
                selected = hosts if hosts is not None else (CONTROL_NODE,)
            found.setdefault(hook, []).append(
                StepDraft(
                    spec=step, place=where, id=f"{prefix}/{key}/{step.name}", module=module,
                    task=task, scope=scope, hosts=selected, hook=hook,
                    guards=guards, tags=(*tags, *step.tags), defaults=defaults, notes=notes,
                )
            )  # fmt: skip
    return found


def _step_hooks(draft: StepDraft, step: StepSpec, place: Place) -> None:
    sources = [(hook, place.child("hooks", key), steps) for hook, key, steps in hook_specs(step.hooks)]
    sources.append((Hook.ON_FAILURE, place.child("onFailure"), step.on_failure))
    for hook, where, steps in sources:
        for number, spec in enumerate(steps):
            child = draft.child(spec, where.child(number), f"{draft.id}/hooks/{hook.value}/{spec.name}", hook)
            child.tags = (*draft.tags, *spec.tags)
            draft.hooks.setdefault(hook, []).append(child)


def _unique(state: State, names: Sequence[str], place: Place, noun: str, notes: tuple[Note, ...] = ()) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            also = place.child(first[name], "name")
            state.diagnostics.error(
                "duplicate-name",
                f'there are two {noun}s named "{name}"',
                place.child(index, "name"),
                hint="rename one of them",
                notes=(Note("the first one", also.span()), *notes),
            )
        first.setdefault(name, index)


def _needs(
    state: State, declared: list[str] | None, place: Place, *, previous: str | None, known: Sequence[str], noun: str
) -> list[Need]:
    if declared is None:
        return [] if previous is None else [Need(previous, place.child("name"), False)]
    found: list[Need] = []
    for index, target in enumerate(declared):
        where = place.child("needs", index)
        if _target(state, target, known, where, noun, place):
            found.append(Need(target, where, True))
    return found


def _task_needs(state: State, spec: TaskSpec, place: Place, names: list[str], index: int, module: str) -> list[Need]:
    if spec.needs is None:
        return [Need(f"{module}/{names[index - 1]}", place.child("name"), False)] if index else []
    found: list[Need] = []
    modules = {
        m.name: [t.name for t in _tasks_of(state, number, m)]
        for number, m in enumerate(state.bundle.pipeline.document.modules)
    }
    for number, target in enumerate(spec.needs):
        where = place.child("needs", number)
        if target in names:
            found.append(Need(f"{module}/{target}", where, True))
        elif "/" in target and target.split("/", 1)[1] in modules.get(target.split("/", 1)[0], ()):
            found.append(Need(target, where, True))
        elif target in modules and target != module:
            found.append(Need(target, where, True))
        else:
            candidates = [*names, *modules, *(f"{m}/{t}" for m, tasks in modules.items() for t in tasks)]
            state.diagnostics.error(
                "unknown-need",
                f'task "{spec.name}" needs "{target}", which is no task of its module, no module/task and no other module',
                where,
                hint=did_you_mean(target, candidates),
            )
    return found


def _tasks_of(state: State, number: int, module: ModuleSpec) -> Sequence[TaskSpec]:
    used = state.bundle.modules.get(("modules", number))
    return used.document.tasks if used is not None else module.tasks


def _target(state: State, target: str, known: Sequence[str], where: Place, noun: str, owner: Place) -> bool:
    if target in known:
        return True
    if "/" in target:
        module, _, task = target.partition("/")
        numbered = {m.name: (n, m) for n, m in enumerate(state.bundle.pipeline.document.modules)}
        if module in numbered and task in [t.name for t in _tasks_of(state, *numbered[module])]:
            return True
    state.diagnostics.error(
        "unknown-need", f'needs "{target}", but there is no such {noun}', where, hint=did_you_mean(target, known)
    )
    return False


def _step_needs(state: State, step: StepSpec, place: Place, names: Sequence[str], notes: tuple[Note, ...]) -> None:
    for index, target in enumerate(step.needs or ()):
        if target not in names:
            state.diagnostics.error(
                "unknown-need",
                f'step "{step.name}" needs "{target}", which is no step of its task',
                place.child("needs", index),
                hint=did_you_mean(target, names),
                notes=notes,
            )
