"""The scopes of values: what expressions in the pipeline, a module or a task see as params and vars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubexm_exec.compile.params import bind, bind_outside, check_declarations, secret_names
from kubexm_exec.compile.state import Guard, State
from kubexm_exec.model.graph import Scope
from kubexm_exec.values.expressions import ExpressionError, is_dynamic, texts
from kubexm_spec.documents.loader import Loaded
from kubexm_spec.models import (
    InventoryBody,
    ModuleBody,
    ModuleDocument,
    ModuleSpec,
    ResourceSpec,
    TaskDocument,
    TaskSpec,
)
from kubexm_spec.yaml.source import Place

Used = Loaded[ModuleDocument] | Loaded[TaskDocument] | None
"""The document that a module or task uses, if any."""


def bind_pipeline(state: State) -> None:
    """Pass: the root scope: the pipeline's parameters with the values from outside, and its vars."""
    pipeline = state.bundle.pipeline
    document = pipeline.document
    check_declarations(document.params, pipeline.place("params"), state.diagnostics)
    values = bind_outside(
        document.params,
        state.options.values,
        state.options.texts,
        state.diagnostics,
        owner=f'pipeline "{document.metadata.name}"',
        declared_at=pipeline.place("params"),
        given_at=state.options.given_at,
    )
    state.scopes[""] = Scope(
        id="",
        params=values,
        secret_params=secret_names(document.params),
        own_params=True,
        vars=document.vars,
        resources=_resources(state, "", document.resources, pipeline.place("resources")),
        base=str(pipeline.folder),
    )
    state.secrets[""] = frozenset(secret_names(document.params))
    for name in document.vars:
        state.var_places[("", name)] = pipeline.place("vars", name)


def add_scope(state: State, scope_id: str, parent: str, spec: ModuleSpec | TaskSpec, used: Used, place: Place) -> None:
    """The values that a module or task sees; a used document is closed: its params, its vars, the inventory's."""
    for name in spec.vars:
        state.var_places[(scope_id, name)] = place.child("vars", name)
    for name in spec.outputs:
        state.output_places[(scope_id, name)] = place.child("outputs", name)
    if used is None:
        if spec.uses is not None:
            state.unusable.add(scope_id)
        base = state.scopes[parent].base
        own: dict[str, Any] = {}
        if isinstance(spec, ModuleBody):  # a task has `resources` too, but those are limits
            own = _resources(state, scope_id, spec.resources, place.child("resources"))
        state.scopes[scope_id] = Scope(scope_id, parent, vars=spec.vars, outputs=spec.outputs, resources=own, base=base)
        return
    document = used.document
    for name in document.vars:
        state.var_places.setdefault((scope_id, name), used.place("vars", name))
    for name in document.outputs:
        state.output_places.setdefault((scope_id, name), used.place("outputs", name))
    check_declarations(document.params, used.place("params"), state.diagnostics)
    kind = type(document).__name__.removesuffix("Document").lower()
    values = bind(
        document.params,
        spec.with_,
        state.diagnostics,
        owner=f'{kind} "{document.metadata.name}"',
        declared_at=used.place("params"),
        given_at=place.child("with"),
        user=place.child("uses"),
    )
    for name in spec.with_:
        state.param_places[(scope_id, name)] = place.child("with", name)
    resources: dict[str, Any] = {}
    if isinstance(document, ModuleDocument):
        resources = _resources(state, scope_id, document.resources, used.place("resources"))
    state.param_specs[scope_id] = document.params
    state.params_declared[scope_id] = used.place("params")
    state.secrets[scope_id] = frozenset(secret_names(document.params))
    state.scopes[scope_id] = Scope(
        id=scope_id,
        parent=parent,
        params=values,
        # What is passed on from a secret is the secret itself; it must not be looked up a second time.
        secret_params=tuple(n for n in secret_names(document.params) if not _holds_secret(state, values[n], parent)),
        own_params=True,
        vars={**document.vars, **spec.vars},
        outputs={**document.outputs, **spec.outputs},
        resources=resources,
        base=str(used.folder),
    )


def _resources(state: State, scope_id: str, specs: Mapping[str, ResourceSpec], place: Place) -> dict[str, Any]:
    for name in specs:
        state.resource_places[(scope_id, name)] = place.child(name)
    return {name: spec.model_dump(mode="json", by_alias=True, exclude_unset=True) for name, spec in specs.items()}


def owner_of(state: State, scope_id: str) -> Scope:
    """The scope whose params are seen in a scope: the nearest document."""
    scope = state.scopes[scope_id]
    while not scope.own_params and scope.parent is not None:
        scope = state.scopes[scope.parent]
    return scope


def layers_of(state: State, scope_id: str) -> list[Scope]:
    """The scopes whose vars are seen in a scope, the strongest first; a used document sees none outside of it."""
    found: list[Scope] = []
    current: str | None = scope_id
    while current is not None:
        scope = state.scopes[current]
        found.append(scope)
        current = None if scope.own_params else scope.parent
    return found


def is_given(state: State, scope_id: str, name: str, host_has_it: bool) -> bool:
    """Whether the value of a variable is from outside, as it is seen in a scope: it is data then, whatever is written.

    A used document sees none of the pipeline's variables, but those of the hosts.
    """
    root = state.scopes.get("")
    return root is not None and name in root.given and (host_has_it or layers_of(state, scope_id)[-1].id == "")


def _holds_secret(state: State, value: Any, scope_id: str, seen: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """Whether the value of an expression comes from a secret: by ``secret(...)``, a secret parameter, or a variable."""
    for _, text in texts(value):
        if not is_dynamic(text):
            continue
        try:
            references = state.expressions.text(text).references
        except ExpressionError:  # found again, and told, where references are checked
            continue
        for reference in references:
            if reference.root == "secret":
                return True
            name = reference.path[0] if reference.path else ""
            if reference.root == "params" and name in state.secrets[owner_of(state, scope_id).id]:
                return True
            if reference.root == "vars":
                key = (scope_id, name)
                if is_given(state, scope_id, name, host_has_it=False):
                    continue
                written = [(scope.vars[name], scope.id) for scope in layers_of(state, scope_id) if name in scope.vars]
                written += [(host.vars[name], scope_id) for host in state.hosts.values() if name in host.vars]
                if key not in seen and any(_holds_secret(state, *one, seen | {key}) for one in written):
                    return True
    return False


def guards_of(when: str | bool | None, place: Place, outer: str, used: Used, inner: str) -> tuple[Guard, ...]:
    """The use site's condition sees the values around it, the document's own sees the document's."""
    found: list[Guard] = []
    if when is not None:
        found.append(Guard(outer if used is not None else inner, when, place.child("when")))
    if used is not None and used.document.when is not None:
        found.append(Guard(inner, used.document.when, used.place("when")))
    return tuple(found)


def visible_vars(state: State, scope_id: str, hosts: Mapping[str, Any] | tuple[str, ...]) -> set[str]:
    """The names of all variables that expressions in a scope may see on some hosts."""
    names = {name for scope in layers_of(state, scope_id) for name in scope.vars}
    for host in hosts:
        names.update(state.hosts[host].vars)
    return names


def var_layers(
    body: InventoryBody, roles: Iterable[str], groups: Iterable[str], host: int
) -> list[tuple[str, tuple[str | int, ...], Mapping[str, Any]]]:
    """A host's inventory variables from the weakest layer to the strongest: (label, path in the inventory, values)."""
    layers: list[tuple[str, tuple[str | int, ...], Mapping[str, Any]]] = [("inventory vars", ("vars",), body.vars)]
    layers.extend(
        (f"role {role}", ("roles", role, "vars"), body.roles[role].vars) for role in roles if role in body.roles
    )
    layers.extend((f"group {group}", ("groups", group, "vars"), body.groups[group].vars) for group in groups)
    layers.append(("host vars", ("hosts", host, "vars"), body.hosts[host].vars))
    return layers
