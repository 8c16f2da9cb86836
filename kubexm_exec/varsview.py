"""Explains the values that a host sees: each with its source and with what it hides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubexm_exec.compile import CompileOptions
from kubexm_exec.compile.hosts import merged_layers
from kubexm_exec.compile.state import State
from kubexm_exec.compile.static import static_evaluator
from kubexm_exec.expr import ExpressionError, UnknownValueError
from kubexm_exec.graph import ExecutionNode, Scope


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One value."""

    name: str
    value: Any
    source: str
    hidden: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "value": self.value, "source": self.source, "hides": list(self.hidden)}


def explain(state: State, options: CompileOptions, host: str, scope: str) -> list[ValueRow]:
    """All params and vars that expressions in a scope see on a host."""
    context = static_evaluator(state).context(ExecutionNode(id="", scope=scope), host)
    rows = [
        ValueRow(f"params.{name}", _value(context["params"], name, secret), source)
        for name, source, secret in _params(state, options, scope)
    ]
    for name, sources in sorted(_variables(state, host, scope).items()):
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


def _owner(state: State, scope: str) -> Scope:
    current = state.scopes[scope]
    while not current.own_params and current.parent is not None:
        current = state.scopes[current.parent]
    return current


def _params(state: State, options: CompileOptions, scope: str) -> list[tuple[str, str, bool]]:
    owner = _owner(state, scope)
    found: list[tuple[str, str, bool]] = []
    for name in sorted(owner.params):
        if owner.id == "":
            place = state.bundle.pipeline.place("params", name)
            if name in options.texts:
                source = "command line (-e)"
            elif name in options.values:
                source = "--vars-file"
            else:
                source = f"default at {place.child('default').file_line}"
        else:
            given = state.param_places.get((owner.id, name))
            source = f"given at {given.file_line}" if given is not None else f"default of {owner.id}'s document"
        found.append((name, source, name in owner.secret_params))
    return found


def _variables(state: State, host: str, scope: str) -> dict[str, list[str]]:
    """Where each variable was written, from the weakest place to the one that counts."""
    found: dict[str, list[str]] = {}
    chain: list[str] = []
    current: str | None = scope
    while current is not None:
        chain.append(current)
        current = None if state.scopes[current].own_params else state.scopes[current].parent
    for scope_id in reversed(chain):
        label = "pipeline vars" if not scope_id else "task vars" if "/" in scope_id else "module vars"
        for name in state.scopes[scope_id].vars:
            found.setdefault(name, []).append(f"{label} at {state.var_places[(scope_id, name)].file_line}")
    for label, name, place in merged_layers(state, host):
        found.setdefault(name, []).append(f"{label} at {place.file_line}")
    return found
