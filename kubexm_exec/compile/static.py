"""Evaluates what must be known when compiling: selectors and loops, from params and vars alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kubexm_exec.compile.state import CONTROL_NODE, State
from kubexm_exec.evaluate import ActionRecord, Evaluator
from kubexm_exec.expr import ExpressionError, UnknownValueError
from kubexm_exec.graph import ExecutionGraph, ExecutionNode
from kubexm_spec.source import Place


class NoRecords:
    """Nothing has run yet."""

    def get(self, node: str, host: str) -> ActionRecord | None:
        """Never anything."""
        return None


def no_facts(host: str) -> Mapping[str, Any]:
    """Facts are not known when compiling."""
    raise UnknownValueError("facts", f"{host} has not been contacted")


def no_secret(reference: str) -> NoReturn:
    """Secrets are not looked up when compiling."""
    raise UnknownValueError(f"secret({reference!r})", "secrets are looked up when the step runs")


def static_evaluator(state: State, nodes: Mapping[str, ExecutionNode] | None = None) -> Evaluator:
    """An evaluator that knows params, vars and the inventory, and nothing of a run."""
    graph = ExecutionGraph(name=state.name, nodes=nodes or {}, hosts=state.hosts, scopes=state.scopes)
    return Evaluator(graph, state.expressions, records=NoRecords(), facts=no_facts, secret=no_secret)


def render_static(
    state: State, value: Any, scope: str, place: Place, what: str, host: str = CONTROL_NODE, *, bare: bool = False
) -> Any:
    """The value of a text when compiling, or None with a finding."""
    evaluator = static_evaluator(state)
    context = evaluator.context(ExecutionNode(id="", scope=scope), host)
    try:
        return state.expressions.expression(value)(context) if bare else state.expressions.render(value, context)
    except UnknownValueError as error:
        state.diagnostics.error(
            "not-static",
            f"{what} is evaluated when compiling, but {error.name} is known only during the run",
            place.find(error.name.partition("(")[0]),
            hint="use params and vars here, or a `fragment` step for what is found out on the way",
        )
    except ExpressionError as error:
        state.diagnostics.error(
            "bad-expression", error.message, place.find(error.fragment) if error.fragment else place
        )
    return None
