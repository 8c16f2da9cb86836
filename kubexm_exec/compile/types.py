"""Pass: loads the step types and checks every ``with`` against its model, as far as it is known before the run."""

from __future__ import annotations

import hashlib
import pathlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import BaseModel

from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import static_evaluator
from kubexm_exec.expr import ExpressionError, is_dynamic
from kubexm_exec.registry import RegistryError
from kubexm_exec.step import Expression, LocalFile, Step, StepList, TemplateName
from kubexm_spec.checking import check
from kubexm_spec.diagnostics import did_you_mean
from kubexm_spec.models import BaseStepSpec
from kubexm_spec.source import Path, Place


@dataclass(frozen=True, slots=True)
class Marks:
    """The parameters of a step type that mean something to the engine, by their key in the document."""

    templates: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    expressions: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()

    @property
    def raw(self) -> frozenset[str]:
        """Parameters that are not rendered before the step sees them."""
        return self.expressions | self.steps


def marks_of(model: type[BaseModel]) -> Marks:
    """What the annotations of a parameter model say."""
    found: dict[type, set[str]] = {TemplateName: set(), LocalFile: set(), Expression: set(), StepList: set()}
    for name, info in model.model_fields.items():
        for mark in _metadata(info):
            if type(mark) in found:
                found[type(mark)].add(info.alias or name)
    return Marks(*(frozenset(found[kind]) for kind in (TemplateName, LocalFile, Expression, StepList)))


def _metadata(info: Any) -> list[Any]:
    """Marks on the field itself, and inside optional and list types."""
    from typing import get_args

    found = list(info.metadata)
    pending = [info.annotation]
    while pending:
        annotation = pending.pop()
        found.extend(getattr(annotation, "__metadata__", ()))
        pending.extend(argument for argument in get_args(annotation) if not isinstance(argument, str))
    return found


def load_type(state: State, name: str, place: Place, notes: Any = ()) -> type[Step[Any]] | None:
    """The step type, or None with a finding."""
    try:
        step: Any = state.steps.load(name)
    except RegistryError as error:
        state.diagnostics.error(error.code, error.message, place, hint=error.hint, notes=notes)
        return None
    if not (isinstance(step, type) and issubclass(step, Step)):
        info = state.steps.info(name)
        state.diagnostics.error(
            "broken-step-type",
            f'step type "{name}" of package {info.distribution} is no Step class',
            place,
            notes=notes,
        )
        return None
    return step


def check_types(state: State) -> None:
    """Every step type exists and takes the parameters it is given."""
    for draft in state.all_drafts():
        step_type = load_type(state, draft.spec.type, draft.place.child("type"), draft.notes)
        if step_type is None:
            continue
        draft.nodes = [replace(node, reversible=step_type.reversible) for node in draft.nodes]
        check_with(state, step_type, draft.spec, draft.place, draft.notes)


def check_with(state: State, step_type: type[Step[Any]], spec: BaseStepSpec, place: Place, notes: Any = ()) -> None:
    """The parameters of a step, as far as they are known."""
    dynamic = _dynamic_paths(spec.with_, marks_of(step_type.params_model).raw)
    check(
        step_type.params_model,
        spec.with_,
        place.child("with") if spec.with_ else place,
        state.diagnostics,
        what=f'step "{spec.name}" (type {spec.type})',
        notes=tuple(notes),
        ignore=lambda path: _touches(path, dynamic),
    )


def _touches(path: Path, unknown: set[Path]) -> bool:
    """Whether a place is unknown, inside something unknown, or holds something unknown."""
    return any(path[: len(one)] == one or one[: len(path)] == path for one in unknown)


def _dynamic_paths(value: Any, skip: frozenset[str] = frozenset(), path: Path = ()) -> set[Path]:
    """The places whose value is not known yet."""
    if isinstance(value, str):
        return {path} if is_dynamic(value) else set()
    found: set[Path] = set()
    if isinstance(value, dict):
        for key, item in value.items():
            if not (path == () and key in skip):
                found |= _dynamic_paths(item, frozenset(), (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found |= _dynamic_paths(item, frozenset(), (*path, index))
    return found


def check_rendered(state: State) -> None:
    """Parameters whose expressions need only params, vars and the inventory are rendered for one host and checked fully."""
    evaluator = static_evaluator(state, state.nodes)
    for draft in state.all_drafts():
        if not draft.nodes or not is_dynamic(draft.spec.with_):
            continue
        node = state.nodes[draft.nodes[0].id]
        if not node.hosts:
            continue
        step_type: type[Step[Any]] = state.steps.load(draft.spec.type)
        marks = marks_of(step_type.params_model)
        place = draft.place.child("with")
        try:
            params, unknown = evaluator.partial_params(node, node.hosts[0], skip=marks.raw)
        except ExpressionError as error:
            _expression_error(state, draft, error)
            continue
        still = _dynamic_paths(params, marks.raw) if unknown else set()
        check(
            step_type.params_model,
            params,
            place,
            state.diagnostics,
            what=f'step "{draft.spec.name}" (type {draft.spec.type})',
            notes=draft.notes,
            ignore=partial(_touches, unknown=still),
        )
        _check_files(state, draft, params, marks, still)


def _expression_error(state: State, draft: StepDraft, error: ExpressionError) -> None:
    place = draft.place.child("with")
    span = place.find(error.fragment) if error.fragment else place
    state.diagnostics.error("bad-expression", f'step "{draft.spec.name}": {error.message}', span, notes=draft.notes)


def check_files(state: State) -> None:
    """Templates and local files that are named literally exist."""
    for draft in state.all_drafts():
        if not is_dynamic(draft.spec.with_):
            step_type: type[Step[Any]] = state.steps.load(draft.spec.type)
            _check_files(state, draft, draft.spec.with_, marks_of(step_type.params_model), set())


def _check_files(state: State, draft: StepDraft, params: dict[str, Any], marks: Marks, unknown: set[Path]) -> None:
    base = state.scopes[draft.scope].base
    for key in sorted(marks.templates | marks.files):
        value = params.get(key)
        if not isinstance(value, str) or (key,) in unknown:
            continue
        place = draft.place.child("with", key)
        if key in marks.templates:
            finder = state.finder(base)
            found = finder.find(value)
            if found is None:
                state.diagnostics.error(
                    "unknown-template",
                    f'there is no template "{value}"',
                    place,
                    hint=did_you_mean(value, finder.names()) or "searched: " + ", ".join(map(str, finder.folders)),
                    notes=draft.notes,
                )
                continue
        else:
            found = pathlib.Path(base, value)
            if not found.exists():
                neighbours = [p.name for p in found.parent.iterdir()] if found.parent.is_dir() else []
                state.diagnostics.error(
                    "file-not-found",
                    f'the file "{value}" does not exist on this machine',
                    place,
                    hint=did_you_mean(found.name, neighbours) or f"relative paths start at {base}",
                    notes=draft.notes,
                )
                continue
        for path in sorted(p for p in found.rglob("*") if p.is_file()) if found.is_dir() else [found]:
            if path not in state.files:
                state.files[path] = file_digest(path)


def file_digest(path: pathlib.Path) -> str:
    """sha256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
