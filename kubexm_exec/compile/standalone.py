"""Checks documents that cannot be compiled (a Module or Task on its own, a broken one) as far as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kubexm_exec.compile.groups import Entry, check_step_names
from kubexm_exec.compile.needs import check_step_needs, check_unique
from kubexm_exec.compile.params import check_declarations, is_reference
from kubexm_exec.compile.state import HOOK_FIELDS, State, hook_specs
from kubexm_exec.compile.static import judgements, written
from kubexm_exec.compile.types import check_with, load_type
from kubexm_exec.plugins import Registry
from kubexm_exec.values.expressions import ExpressionError, Expressions, is_dynamic, texts
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.loader import Loaded, Loader
from kubexm_spec.models import (
    BaseStepSpec,
    Document,
    FlushSpec,
    HandlerSpec,
    HooksSpec,
    ModuleDocument,
    StepGroupSpec,
    TaskBody,
    TaskDocument,
)
from kubexm_spec.yaml.source import Place

if TYPE_CHECKING:
    from kubexm_spec.clusters.checks import CheckedCluster
    from kubexm_spec.models.cluster import ClusterDocument
    from kubexm_spec.models.versions import VersionsDocument

_Placed = tuple[BaseStepSpec, Place]
_STEPS = ("steps", "rescue", "handlers", *(key for _, _, key in HOOK_FIELDS))


def check_document(loaded: Loaded[Document], loader: Loader, diagnostics: Diagnostics, steps: Registry[Any]) -> None:
    """Step types, their parameters, names and the form of expressions; what they refer to depends on the pipeline."""
    document = loaded.document
    if document.kind == "Cluster":
        check_cluster_document(Loaded(document, loaded.source, loaded.index, notes=loaded.notes), loader, steps)
    if document.kind == "Versions":
        _check_versions(Loaded(document, loaded.source, loaded.index, notes=loaded.notes), diagnostics)
    if not isinstance(document, ModuleDocument | TaskDocument):
        return
    state = State(name=document.metadata.name, diagnostics=diagnostics, expressions=Expressions(), steps=steps)
    check_declarations(document.params, loaded.place("params"), diagnostics)
    for spec, place in _steps(document, loaded, loader, state):
        step_type = load_type(state, spec.type, place.child("type"))
        if step_type is not None:
            check_with(state, step_type, spec, place)
        _check_expressions(state, spec, place)


def check_cluster_document(
    cluster: Loaded[ClusterDocument], loader: Loader, steps: Registry[Any]
) -> CheckedCluster | None:
    """A cluster with its hosts and versions, or None with findings."""
    from kubexm_exec.compile.hosts import check_inventory
    from kubexm_spec.clusters.checks import check_cluster
    from kubexm_spec.clusters.hosts import find_hosts

    hosts = find_hosts(cluster, loader)
    if hosts is not None:
        check_inventory(hosts.inventory, loader.diagnostics, steps)
    return check_cluster(cluster, hosts, loader, is_reference)


def _check_versions(own: Loaded[VersionsDocument], diagnostics: Diagnostics) -> None:
    from kubexm_spec.clusters.versionrules import check_versions
    from kubexm_spec.clusters.versions import merged, shipped_versions

    check_versions(own, merged(shipped_versions().document, own.document), diagnostics)


def _steps(
    document: ModuleDocument | TaskDocument, loaded: Loaded[Document], loader: Loader, state: State
) -> Iterator[_Placed]:
    yield from _hooks(document.hooks, loaded.place("hooks"))
    yield from _handlers(document.handlers, loaded.place("handlers"), state)
    if isinstance(document, TaskDocument):
        yield from _task_hooks(document, loaded.place())
        yield from _task_steps(document.steps, loaded.place("steps"), state)
        return
    check_unique(state, [task.name for task in document.tasks], loaded.place("tasks"), "task")
    for number, task in enumerate(document.tasks):
        place = loaded.place("tasks", number)
        if task.uses is not None:
            loader.resolve(task.uses, loaded.source, "Task", place.child("uses"))
        yield from _hooks(task.hooks, place.child("hooks"))
        yield from _handlers(task.handlers, place.child("handlers"), state)
        yield from _task_hooks(task, place)
        yield from _task_steps(task.steps, place.child("steps"), state)


def _task_steps(steps: Sequence[Entry], place: Place, state: State) -> Iterator[_Placed]:
    check_step_names(state, steps, place)
    yield from _entries(steps, place, state, "task")


def _entries(steps: Sequence[Entry], place: Place, state: State, noun: str) -> Iterator[_Placed]:
    names = [step.name for step in steps]
    for number, step in enumerate(steps):
        where = place.child(number)
        check_step_needs(state.diagnostics, step, where, names, noun)
        if isinstance(step, FlushSpec):
            continue
        if isinstance(step, StepGroupSpec):
            yield from _entries(step.steps, where.child("steps"), state, "group")
            yield from _entries(step.rescue, where.child("rescue"), state, "group")
            yield from ((hook, where.child("always", index)) for index, hook in enumerate(step.always))
            continue
        yield step, where
        yield from _hooks(step.hooks, where.child("hooks"))
        yield from ((hook, where.child("onFailure", index)) for index, hook in enumerate(step.on_failure))


def _task_hooks(task: TaskBody, place: Place) -> Iterator[_Placed]:
    yield from _hooks(task.host_hooks, place.child("hostHooks"))
    if task.batch is not None:
        yield from _hooks(task.batch.hooks, place.child("batch", "hooks"))


def _hooks(hooks: HooksSpec | None, place: Place) -> Iterator[_Placed]:
    for _, key, steps in hook_specs(hooks):
        yield from ((step, place.child(key, number)) for number, step in enumerate(steps))


def _handlers(handlers: Sequence[HandlerSpec], place: Place, state: State) -> Iterator[_Placed]:
    check_unique(state, [handler.name for handler in handlers], place, "handler")
    yield from ((handler, place.child(number)) for number, handler in enumerate(handlers))


def _check_expressions(state: State, spec: BaseStepSpec, place: Place) -> None:
    found = [(text, place.child("with", *path), False) for path, text in texts(spec.with_) if is_dynamic(text)]
    if isinstance(spec.when, str):
        found.append((spec.when, place.child("when"), True))
    found += [(text, where, True) for text, where in judgements(spec, place)]
    for text, where, bare in found:
        try:
            _ = state.expressions.expression(text) if bare else state.expressions.text(text)
        except ExpressionError as error:
            state.diagnostics.error("bad-expression", error.message, where.find(error.fragment))


def check_broken(
    places: Iterable[Place], diagnostics: Diagnostics, steps: Registry[Any], expressions: Expressions
) -> None:
    """The steps in documents that do not fit their model: what is wrong in ``with`` is told along with the rest."""
    state = State(name="", diagnostics=diagnostics, expressions=expressions, steps=steps)
    for place in places:
        for data, where in _step_like(written(place), place):
            step_type = load_type(state, data["type"], where.child("type"))
            given = data.get("with", {})
            if step_type is not None and isinstance(given, dict):
                name = data["name"] if isinstance(data.get("name"), str) else "?"
                spec = BaseStepSpec.model_construct(name=name, type=data["type"], with_=given)
                check_with(state, step_type, spec, where)


def _step_like(data: Any, place: Place) -> Iterator[tuple[dict[str, Any], Place]]:
    """Everything in a document that stands where steps stand and names a type."""
    waiting = [(data, place)]
    while waiting:
        value, where = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in _STEPS and isinstance(inner, list):
                    yield from (
                        (step, where.child(key, number))
                        for number, step in enumerate(inner)
                        if isinstance(step, dict) and isinstance(step.get("type"), str)
                    )
                if key not in ("with", "vars", "params"):
                    waiting.append((inner, where.child(key)))
        elif isinstance(value, list):
            waiting.extend((inner, where.child(number)) for number, inner in enumerate(value))
