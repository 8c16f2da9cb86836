"""Checks documents that cannot be compiled (a Module or Task on its own, a broken one) as far as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kubexm_exec.compile.needs import check_step_needs, check_unique
from kubexm_exec.compile.params import check_declarations
from kubexm_exec.compile.state import HOOK_FIELDS, State, hook_specs
from kubexm_exec.compile.static import written
from kubexm_exec.compile.types import check_with, load_type
from kubexm_exec.plugins import Registry
from kubexm_exec.values.expressions import ExpressionError, Expressions, is_dynamic, texts
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.loader import Loaded, Loader
from kubexm_spec.models import BaseStepSpec, Document, HooksSpec, ModuleDocument, StepSpec, TaskDocument
from kubexm_spec.yaml.source import Place

_Placed = tuple[BaseStepSpec, Place]
_STEPS = ("steps", *(key for _, _, key in HOOK_FIELDS))


def check_document(loaded: Loaded[Document], loader: Loader, diagnostics: Diagnostics, steps: Registry[Any]) -> None:
    """Step types, their parameters, names and the form of expressions; what they refer to depends on the pipeline."""
    document = loaded.document
    if not isinstance(document, ModuleDocument | TaskDocument):
        return
    state = State(name=document.metadata.name, diagnostics=diagnostics, expressions=Expressions(), steps=steps)
    check_declarations(document.params, loaded.place("params"), diagnostics)
    for spec, place in _steps(document, loaded, loader, state):
        step_type = load_type(state, spec.type, place.child("type"))
        if step_type is not None:
            check_with(state, step_type, spec, place)
        _check_expressions(state, spec, place)


def _steps(
    document: ModuleDocument | TaskDocument, loaded: Loaded[Document], loader: Loader, state: State
) -> Iterator[_Placed]:
    yield from _hooks(document.hooks, loaded.place("hooks"))
    if isinstance(document, TaskDocument):
        yield from _task_steps(document.steps, loaded.place("steps"), state)
        return
    check_unique(state, [task.name for task in document.tasks], loaded.place("tasks"), "task")
    for number, task in enumerate(document.tasks):
        place = loaded.place("tasks", number)
        if task.uses is not None:
            loader.resolve(task.uses, loaded.source, "Task", place.child("uses"))
        yield from _hooks(task.hooks, place.child("hooks"))
        yield from _task_steps(task.steps, place.child("steps"), state)


def _task_steps(steps: Sequence[StepSpec], place: Place, state: State) -> Iterator[_Placed]:
    names = [step.name for step in steps]
    check_unique(state, names, place, "step")
    for number, step in enumerate(steps):
        where = place.child(number)
        check_step_needs(state.diagnostics, step, where, names)
        yield step, where
        yield from _hooks(step.hooks, where.child("hooks"))
        yield from ((hook, where.child("onFailure", index)) for index, hook in enumerate(step.on_failure))


def _hooks(hooks: HooksSpec | None, place: Place) -> Iterator[_Placed]:
    for _, key, steps in hook_specs(hooks):
        yield from ((step, place.child(key, number)) for number, step in enumerate(steps))


def _check_expressions(state: State, spec: BaseStepSpec, place: Place) -> None:
    found = [(text, place.child("with", *path), False) for path, text in texts(spec.with_) if is_dynamic(text)]
    if isinstance(spec.when, str):
        found.append((spec.when, place.child("when"), True))
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
