"""Evaluates what must be known when compiling: selectors and loops, from params and vars alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NoReturn

from kubexm_exec.compile.state import State
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode
from kubexm_exec.values.evaluate import CONTROL_NODE, OF_NODE, ActionRecord, Evaluator
from kubexm_exec.values.expressions import ExpressionError, Reference, UnknownValueError, is_dynamic
from kubexm_spec.models import BaseStepSpec
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


_Key = tuple[str, str, str]
"""What params and vars depend on: a scope, a host, and the place of the work for it."""


class StaticEvaluator(Evaluator):
    """Knows params, vars and the inventory, and nothing of a run.

    Nothing changes while it is used: values that are the same for all nodes of a scope are found once on each host.
    Most scopes are tasks without variables of their own, which see what is around them.
    """

    def __init__(self, state: State, nodes: Mapping[str, ExecutionNode]) -> None:
        graph = ExecutionGraph(name=state.name, nodes=nodes, hosts=state.hosts, scopes=state.scopes)
        super().__init__(graph, state.expressions, records=NoRecords(), facts=no_facts, secret=no_secret)
        self._contexts: dict[_Key, dict[str, Any]] = {}
        self._conditions: dict[tuple[str, _Key], bool] = {}
        self._outermost: dict[str, str] = {}
        self._shared: dict[str, bool] = {}
        self._latest: tuple[ExecutionNode, str, dict[str, Any]] | None = None

    def value(self, value: Any, node: ExecutionNode, host: str) -> Any:
        """Plain data of a node with every expression in it evaluated for a host; raises ExpressionError."""
        if not isinstance(value, str):
            return self.expressions.render(value, self._own_context(node, host))
        if not is_dynamic(value):
            return value
        compiled = self.expressions.text(value)
        key = self._key(node, host)
        if key is not None and not _is_of_node(compiled.references):
            return compiled(self._context(key, node, host))
        if compiled.plain and len(compiled.references) == 1:
            self._refuse_output(compiled.references[0], node, host)
        return compiled(self._own_context(node, host))

    def _refuse_output(self, reference: Reference, node: ExecutionNode, host: str) -> None:
        """Raise without further ado what evaluating an output of an earlier step of the host would raise."""
        if reference.root == "steps" and reference.path[1:2] == ("outputs",):
            found = self.index.find(reference.path[0], node)
            if len(found) == 1 and host in (one := self.index.get(found[0])).hosts and not one.has_item:
                raise UnknownValueError(f"steps.{reference.path[0]}", f"{one.id} has not run on {host}")

    def is_met(self, condition: str | bool, node: ExecutionNode, host: str) -> bool:
        """Whether a condition of a node holds on a host; raises ExpressionError."""
        if isinstance(condition, bool):
            return condition
        key = self._key(node, host)
        if key is None or _is_of_node(self.expressions.expression(condition).references):
            return self.expressions.condition(condition, self._own_context(node, host))
        known = self._conditions.get((condition, key))
        if known is None:
            known = self.expressions.condition(condition, self._context(key, node, host))
            self._conditions[(condition, key)] = known
        return known

    def _own_context(self, node: ExecutionNode, host: str) -> dict[str, Any]:
        """The names that one node sees, kept as long as it is looked at."""
        if self._latest is None or self._latest[0] is not node or self._latest[1] != host:
            key = self._key(node, host)
            like = None if key is None else self._context(key, node, host)
            self._latest = node, host, self.context(node, host, like=like)
        return self._latest[2]

    def _context(self, key: _Key, node: ExecutionNode, host: str) -> dict[str, Any]:
        """The names that all nodes of a scope see; those of the node that is there first are never looked at."""
        if key not in self._contexts:
            self._contexts[key] = self.context(node, host)
        return self._contexts[key]

    def _key(self, node: ExecutionNode, host: str) -> _Key | None:
        """What the node shares its params and vars by; None if some depend on the node itself."""
        scope = self.outermost(node.scope)
        if scope not in self._shared:
            self._shared[scope] = self._is_shared(scope)
        return (scope, host, node.place(host)) if self._shared[scope] else None

    def outermost(self, scope_id: str) -> str:
        """The outermost scope in which the same params and vars are seen as in one."""
        known = self._outermost.get(scope_id)
        if known is None:
            scope = self.graph.scopes[scope_id]
            while not scope.own_params and not scope.vars and scope.parent is not None:
                scope = self.graph.scopes[scope.parent]
            known = self._outermost[scope_id] = scope.id
        return known

    def _is_shared(self, scope_id: str) -> bool:
        """Whether no value that is seen in a scope depends on a node."""
        scope = self.graph.scopes[scope_id]
        if not self._hosts_shared or self._of_node(scope.vars) or (scope.own_params and self._of_node(scope.params)):
            return False
        return scope.parent is None or self._is_shared(scope.parent)

    @cached_property
    def _hosts_shared(self) -> bool:
        """Whether no variable of a host depends on a node."""
        return not any(self._of_node(host.vars) for host in self.graph.hosts.values())

    def _of_node(self, values: Mapping[str, Any]) -> bool:
        try:
            return _is_of_node(reference for _, _, reference in self.expressions.references(values))
        except ExpressionError:  # told where references are checked
            return True


def _is_of_node(references: Iterable[Reference]) -> bool:
    """Whether a value depends on the node that asks for it, and not only on its scope and host."""
    return any(reference.root in OF_NODE for reference in references)


def static_evaluator(state: State, nodes: Mapping[str, ExecutionNode] | None = None) -> StaticEvaluator:
    """An evaluator that knows params, vars and the inventory, and nothing of a run."""
    return StaticEvaluator(state, nodes or {})


def linked_evaluator(state: State) -> StaticEvaluator:
    """The same for the nodes once they are linked; made once for all passes that look at them."""
    if not isinstance(state.linked, StaticEvaluator):
        state.linked = static_evaluator(state, state.nodes)
    return state.linked


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
    late: bool = False,
    hints: Mapping[str, str] | None = None,
) -> Any:
    """The value of a text when compiling, or FAILED; ``names``: more names; ``serves``: for the host ``origin``.

    ``hints``: by name, what to do about one that is not there.
    ``late``: what is known only during the run is no finding, but an UnknownValueError; secrets are one all the same.
    """
    if state.static is None:
        state.static = static_evaluator(state)
    context = state.static.context(ExecutionNode(id="", scope=scope, places=places or {}), host, **(names or {}))
    if not serves:
        del context["origin"]
    try:
        return state.expressions.expression(value)(context) if bare else state.expressions.render(value, context)
    except UnknownValueError as error:
        if late and not error.name.startswith("secret("):
            raise
        state.diagnostics.error(
            "not-static",
            f"{what} is evaluated at compile time, but {error.name} is known only during the run",
            place.find(error.name.partition("(")[0]),
            hint="use params and vars here; a step can loop over what is known only during the run",
            notes=place.notes,
        )
    except ExpressionError as error:
        where = place.find(error.fragment)
        hint = next((text for name, text in (hints or {}).items() if f"'{name}'" in error.message), "")
        state.diagnostics.error("bad-expression", f"{what}: {error.message}", where, hint=hint, notes=place.notes)
    return FAILED


def judgements(spec: BaseStepSpec, place: Place) -> Iterator[tuple[str, Place]]:
    """The expressions of a step that judge its result, with their places."""
    if spec.failed_when:
        where = place.child("failedWhen")
        several = isinstance(written(where), list)
        for number, condition in enumerate(spec.failed_when):
            if isinstance(condition, str):
                yield condition, where.child(number) if several else where
    if spec.retry is not None and isinstance(spec.retry.until, str):
        yield spec.retry.until, place.child("retry", "until")


def written(place: Place) -> Any:
    """The data at a place, as it is in the file; None if there is nothing."""
    data = place.source.documents[place.document]
    for part in place.path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data
