"""Explains the values that a host sees: each with its source and with what it hides."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from kubexm_exec.compile.hosts import merged_layers
from kubexm_exec.compile.scopes import is_given, layers_of, owner_of
from kubexm_exec.compile.state import State
from kubexm_exec.compile.static import static_evaluator
from kubexm_exec.model.data import builtins
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.values.expressions import ExpressionError, UnknownValueError


class ValueRow(Struct, frozen=True):
    """One value."""

    name: str
    value: Any
    source: str
    hidden: tuple[str, ...] = field(default=(), name="hides")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = builtins(self)
        return data


def explain(state: State, host: str, scope: str) -> list[ValueRow]:
    """All params and vars that expressions in a scope see on a host."""
    module, _, task = scope.partition("/")
    node = ExecutionNode(id="", scope=scope, module=module, task=task)
    context = static_evaluator(state, state.nodes).context(node, host)
    rows = [
        ValueRow(f"params.{name}", _value(context["params"], name, secret), source)
        for name, source, secret in _params(state, scope)
    ]
    for name, sources in sorted(_variables(state, host, scope).items()):
        if is_given(state, scope, name, host_has_it=name in state.hosts[host].vars):
            sources.append(_outside(state, name))
        rows.append(
            ValueRow(f"vars.{name}", _value(context["vars"], name, False), sources[-1], tuple(reversed(sources[:-1])))
        )
    return rows


def _value(namespace: Any, name: str, secret: bool) -> Any:
    if secret:
        return "(secret)"
    try:
        return namespace[name]
    except UnknownValueError as error:
        return f"(known during the run: {error.name})"
    except ExpressionError as error:
        return f"(error: {error.message})"


def _params(state: State, scope: str) -> list[tuple[str, str, bool]]:
    owner = owner_of(state, scope)
    declared = state.params_declared.get(owner.id) or state.bundle.pipeline.place("params")
    specs = state.param_specs.get(owner.id) or state.bundle.pipeline.document.params
    found: list[tuple[str, str, bool]] = []
    for name in sorted(owner.params):
        given = state.param_places.get((owner.id, name))
        if not owner.id and (name in state.options.texts or name in state.options.values):
            source = _outside(state, name)
        elif given is not None:
            source = f"given at {given.file_line}"
        elif "default" in specs[name].model_fields_set:
            source = f"default at {declared.child(name, 'default').file_line}"
        else:
            source = f"not given; declared at {declared.child(name).key().file_line}"
        found.append((name, source, name in state.secrets[owner.id]))
    return found


def _outside(state: State, name: str) -> str:
    """Where a value from outside is from."""
    if name in state.options.texts:
        return "command line (-e)"
    return f"--vars-file at {state.options.given_at[name]}" if name in state.options.given_at else "values"


def _variables(state: State, host: str, scope: str) -> dict[str, list[str]]:
    """Where each variable was written, from the weakest place to the one that counts."""
    found: dict[str, list[str]] = {}
    for scope_id in (layer.id for layer in reversed(layers_of(state, scope))):
        if not scope_id:
            for layer in state.var_layers:
                for name in layer.values:
                    found.setdefault(name, []).append(f"{layer.label} at {layer.place.child(name).file_line}")
            continue
        label = "task vars" if "/" in scope_id else "module vars"
        for name in state.scopes[scope_id].vars:
            found.setdefault(name, []).append(f"{label} at {state.var_places[(scope_id, name)].file_line}")
    for label, name, place in merged_layers(state, host):
        found.setdefault(name, []).append(f"{label} at {place.file_line}")
    for name in state.scopes[""].given if layers_of(state, scope)[-1].id == "" else ():
        found.setdefault(name, [])  # known on other hosts only
    return found
