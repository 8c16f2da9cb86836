"""Pass: evaluates the parameters that are known before the run, and checks their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.compile.params import problem
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import StaticEvaluator, linked_evaluator
from kubexm_exec.compile.types import check_params, value_at
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.step import AnyStep
from kubexm_exec.values.evaluate import item_key
from kubexm_exec.values.expressions import ExpressionError, UnknownValueError, is_dynamic
from kubexm_spec.yaml.source import Path

_TRIED = 20
"""Hosts that are tried to find one on which the step would run."""


def check_rendered(state: State) -> None:
    """Parameters whose expressions need only params, vars and the inventory are checked: every item, on one host."""
    evaluator = linked_evaluator(state)
    for draft in state.all_drafts():
        if draft.step_type is not None and not draft.broken and draft.dynamic:
            for node in draft.nodes:
                _check_node(state, evaluator, draft, draft.step_type, state.nodes[node.id])
    if state.documents is not None:
        _check_given(state, evaluator)


def _check_node(
    state: State, evaluator: StaticEvaluator, draft: StepDraft, step_type: type[AnyStep], node: ExecutionNode
) -> None:
    host, sure = _where(evaluator, node)
    if host is None:
        return
    # The item of a loop that only the run knows may be in any of its expressions.
    sure &= node.loop is None
    unknown: set[Path] = set()
    values: dict[Path, Any] = {}
    for path in draft.dynamic:
        try:
            values[path] = evaluator.value(value_at(draft.spec.with_, path), node, host)
        except UnknownValueError:
            unknown.add(path)
        except ExpressionError as error:
            unknown.add(path)
            if sure and state.hosts_known and not state.unusable:
                place = draft.place.child("with", *path)
                item = f"[{item_key(node.id)}]" if node.is_item else ""
                message = f'step "{draft.spec.name}{item}" on {host}: {error.message}'
                state.diagnostics.error("bad-expression", message, place.find(error.fragment), notes=place.notes)
    check_params(state, step_type, draft.spec, _replaced(draft.spec.with_, values), draft.place, unknown)


def _replaced(data: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    if path in values:
        return values[path]
    if isinstance(data, dict):
        return {key: _replaced(item, values, (*path, key)) for key, item in data.items()}
    if isinstance(data, list):
        return [_replaced(item, values, (*path, index)) for index, item in enumerate(data)]
    return data


def _where(evaluator: StaticEvaluator, node: ExecutionNode) -> tuple[str | None, bool]:
    """A host on which the step would run, and whether that is sure: a condition may be known only later."""
    for host in node.hosts[:_TRIED]:
        try:
            if evaluator.unmet(node, host) is None:
                return host, True
        except ExpressionError:  # known only during the run, or wrong there: what it guards cannot be judged
            return host, False
    return None, False


def _check_given(state: State, evaluator: StaticEvaluator) -> None:
    """Values that are given to used documents as expressions must fit the parameters."""
    for scope_id, specs in state.param_specs.items():
        scope = state.scopes[scope_id]
        inside = (node for node in state.nodes.values() if f"{node.scope}/".startswith(f"{scope_id}/"))
        node = next((node for node in inside if node.hosts), None)
        if node is None or scope.parent is None:
            continue
        context = evaluator.context(ExecutionNode(id="", scope=scope.parent), node.hosts[0])
        for name, value in scope.params.items():
            if not is_dynamic(value) or name not in specs or name in state.secrets[scope_id]:
                continue
            try:
                wrong = problem(state.expressions.render(value, context), specs[name])
            except ExpressionError:  # known only during the run, or told where references are checked
                continue
            if wrong:
                place = state.param_places[(scope_id, name)]
                state.diagnostics.error("bad-param", f'parameter "{name}": {wrong}', place)
