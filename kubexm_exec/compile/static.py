"""Evaluates what must be known when compiling: selectors and loops, from params and vars alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from kubexm_exec.compile.state import State
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode
from kubexm_exec.values.evaluate import CONTROL_NODE, ActionRecord, Evaluator
from kubexm_exec.values.expressions import ExpressionError, UnknownValueError
from kubexm_spec.yaml.source import Place


class NoRecords:
    """Nothing has run yet."""

    def get(self, node: str, host: str) -> ActionRecord | None:
        """Never anything."""
        return None

    def owes(self, node: str, host: str, by: tuple[str, str] | None) -> bool:
        """Never anything."""
        return False


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


FAILED: Final = object()
"""What ``render_static`` gives when there is no value; the finding is there then."""


def render_static(
    state: State,
    value: Any,
    scope: str,
    place: Place,
    what: str,
    host: str = CONTROL_NODE,
    *,
    bare: bool = False,
    names: Mapping[str, Any] | None = None,
    serves: bool = False,
    places: Mapping[str, str] | None = None,
) -> Any:
    """The value of a text when compiling, or FAILED with a finding; ``names`` are more names for it.

    ``serves``: it is for the host, which is ``origin`` then, and is worked for at its place.
    """
    if state.static is None:
        state.static = static_evaluator(state)
    context = state.static.context(ExecutionNode(id="", scope=scope, places=places or {}), host, **(names or {}))
    if not serves:
        del context["origin"]
    try:
        return state.expressions.expression(value)(context) if bare else state.expressions.render(value, context)
    except UnknownValueError as error:
        state.diagnostics.error(
            "not-static",
            f"{what} is evaluated at compile time, but {error.name} is known only during the run",
            place.find(error.name.partition("(")[0]),
            hint="use params and vars here, or a `fragment` step for values that are known only during the run",
            notes=place.notes,
        )
    except ExpressionError as error:
        where = place.find(error.fragment)
        state.diagnostics.error("bad-expression", f"{what}: {error.message}", where, notes=place.notes)
    return FAILED


def written(place: Place) -> Any:
    """The data at a place, as it is in the file; None if there is nothing."""
    data = place.source.documents[place.document]
    for part in place.path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data
