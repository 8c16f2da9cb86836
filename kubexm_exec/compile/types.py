"""Pass: loads the step types and checks every ``with`` against its model, as far as it is known before the run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, get_args

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from kubexm_exec.compile.state import State
from kubexm_exec.plugins import RegistryError
from kubexm_exec.step import (
    AnyStep,
    Expression,
    HostName,
    Inspected,
    LocalFile,
    OutputNames,
    ResourceName,
    ResourceUrl,
    StepList,
    TemplateName,
    Undo,
    load_step,
)
from kubexm_exec.values.expressions import is_dynamic, texts
from kubexm_spec.documents.checking import check
from kubexm_spec.models import BaseStepSpec
from kubexm_spec.yaml.source import Path, Place


class Marks(Struct, frozen=True):
    """The parameters of a step type that mean something to the engine, by their key in the document."""

    templates: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    expressions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Bare expressions, each with the names that the step itself gives to it."""
    steps: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    """Names of resources."""
    urls: frozenset[str] = frozenset()
    """Addresses of resources that are written in the step itself."""
    inspected: frozenset[str] = frozenset()
    """Paths on the host that precheck asks about."""
    outputs: frozenset[str] = frozenset()
    """Those whose keys are the names of outputs."""
    hosts: tuple[tuple[str, ...], ...] = ()
    """Names of hosts, each by its path: one may be in a nested model."""

    @property
    def raw(self) -> frozenset[str]:
        """Parameters that are not rendered before the step sees them."""
        return self.steps.union(self.expressions)


@cache
def marks_of(model: type[BaseModel]) -> Marks:
    """What the annotations of a parameter model say."""
    kinds = (TemplateName, LocalFile, Expression, StepList, ResourceName, ResourceUrl, Inspected, OutputNames)
    found: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, info in model.model_fields.items():
        for mark in _metadata(info):
            if type(mark) in found:
                found[type(mark)][info.alias or name] = mark
    return Marks(
        templates=frozenset(found[TemplateName]),
        files=frozenset(found[LocalFile]),
        expressions={key: tuple(mark.names) for key, mark in found[Expression].items()},
        steps=frozenset(found[StepList]),
        resources=frozenset(found[ResourceName]),
        urls=frozenset(found[ResourceUrl]),
        inspected=frozenset(found[Inspected]),
        outputs=frozenset(found[OutputNames]),
        hosts=tuple(_host_names(model)),
    )


def _host_names(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        path = (*above, info.alias or name)
        if any(isinstance(mark, HostName) for mark in _metadata(info)):
            yield path
        for part in (info.annotation, *get_args(info.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _host_names(part, path)


def _metadata(info: Any) -> list[Any]:
    """Marks on the field itself, and inside optional and list types."""
    found = list(info.metadata)
    pending = [info.annotation]
    while pending:
        annotation = pending.pop()
        found.extend(getattr(annotation, "__metadata__", ()))
        pending.extend(argument for argument in get_args(annotation) if not isinstance(argument, str))
    return found


def load_type(state: State, name: str, place: Place) -> type[AnyStep] | None:
    """The step type, or None with a finding."""
    try:
        return load_step(state.steps, name)
    except RegistryError as error:
        state.diagnostics.error(error.code, error.message, place, hint=error.hint)
        return None


def check_types(state: State) -> None:
    """Every step type exists and takes the parameters it is given."""
    loaded: dict[str, type[AnyStep]] = {}
    for draft in state.all_drafts():
        name = draft.spec.type
        step_type = loaded.get(name) or load_type(state, name, draft.place.child("type"))
        if step_type is not None:
            loaded[name] = step_type
            draft.step_type = step_type
            stays = step_type.undo_of(draft.spec.with_) is Undo.IMPOSSIBLE
            draft.nodes = [replace(node, reversible=not stays, speaks=step_type.speaks) for node in draft.nodes]
            draft.dynamic = check_with(state, step_type, draft.spec, draft.place)


def check_with(state: State, step_type: type[AnyStep], spec: BaseStepSpec, place: Place) -> list[Path]:
    """The parameters of a step, as far as they are known; returns the paths of the others."""
    dynamic = _dynamic_paths(spec.with_, marks_of(step_type.params_model).raw)
    check_params(state, step_type, spec, spec.with_, place, dynamic)
    return dynamic


def check_params(
    state: State,
    step_type: type[AnyStep],
    spec: BaseStepSpec,
    params: dict[str, Any],
    place: Place,
    unknown: Collection[Path],
) -> None:
    """Some parameters of a step, but for what is unknown in them."""
    try:
        # Mostly there is nothing to tell, so that what is told it with need not be made.
        with suppress(ValidationError):
            step_type.params_model.model_validate(params)
            return
        check(
            step_type.params_model,
            params,
            place.child("with") if spec.with_ else place.child("type"),
            state.diagnostics,
            what=f'step "{spec.name}" (type {spec.type})',
            ignore=partial(touches, unknown=unknown),
        )
    except Exception as error:  # noqa: BLE001 - a third party's validator must only harm those who use it
        message = f'step type "{spec.type}" cannot check its own parameters: {type(error).__name__}: {error}'
        hint = f"report it to the authors of {state.steps.info(spec.type).distribution}"
        state.diagnostics.error("broken-step-type", message, place.child("type"), hint=hint)


def touches(path: Path, unknown: Collection[Path]) -> bool:
    """Whether a place is unknown, inside something unknown, or holds something unknown."""
    return any(path[: len(one)] == one or one[: len(path)] == path for one in unknown)


def _dynamic_paths(params: dict[str, Any], raw: frozenset[str]) -> list[Path]:
    """The paths of all texts with expressions, except in parameters that are not rendered."""
    return [path for path, text in texts(params) if is_dynamic(text) and path[0] not in raw]


def value_at(data: Any, path: Path) -> Any:
    """What is at a path of plain data."""
    for part in path:
        data = data[part]
    return data
