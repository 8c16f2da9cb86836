"""Judges the result of a step by what the spec says of it: ``failedWhen`` and ``retry.until``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubexm_exec.model.errors import NotYet, StepFailed
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.step import Result
from kubexm_exec.values.evaluate import Evaluator, as_written
from kubexm_exec.values.expressions import ExpressionError
from kubexm_spec.diagnostics import shortened

_MOST_VALUES: Final = 3
"""Values that a message names."""


def judge(evaluator: Evaluator, node: ExecutionNode, host: str, own: Mapping[str, Any], result: Result) -> None:
    """Raise StepFailed if ``failedWhen`` holds of a step's own outputs, and NotYet if ``retry.until`` does not."""
    until = node.policy.retry.until
    kind: type[StepFailed]
    judged: tuple[str | bool, ...]
    if until is not None and not evaluator.holds(node, host, until, own):
        kind, said, judged = NotYet, f"`until` does not hold: {as_written(until)}", (until,)
    elif node.failed_when and all(evaluator.holds(node, host, each, own) for each in node.failed_when):
        kind, judged = StepFailed, node.failed_when
        said = f"`failedWhen` holds: {' and '.join(map(as_written, judged))}"
    else:
        return
    seen = "" if node.sensitive else _seen(evaluator, judged, own)
    raise kind(
        said + seen, command=result.command, exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr,
        outputs=own, changed=result.changed,
    )  # fmt: skip


def is_over(evaluator: Evaluator, node: ExecutionNode, host: str, own: Mapping[str, Any]) -> bool:
    """Whether ``retry.until`` holds of an attempt that has failed, so that it is not repeated."""
    until = node.policy.retry.until
    try:
        return until is not None and evaluator.holds(node, host, until, own)
    except ExpressionError:  # it did not give all that the expression refers to
        return False


def _seen(evaluator: Evaluator, judged: tuple[str | bool, ...], own: Mapping[str, Any]) -> str:
    """The values that the conditions refer to."""
    found: dict[str, str] = {}
    for condition in judged:
        for reference in evaluator.expressions.expression(condition).references if isinstance(condition, str) else ():
            if reference.root == "result" and reference.path and reference.path[0] in own:
                name = reference.path[0]
                found[name] = f"{name} is {shortened(repr(own[name]))}"
    return f" ({', '.join(list(found.values())[:_MOST_VALUES])})" if found else ""
