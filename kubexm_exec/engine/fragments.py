"""Adds the steps that an action returned to the graph of its run."""

from __future__ import annotations

from typing import Any

from kubexm_exec.engine.attempt import ActionOutcome
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.model.graph import ExecutionFragment, ExecutionNode
from kubexm_exec.model.result import FailureKind, Status
from kubexm_exec.scheduler import Action, Scheduler
from kubexm_spec.diagnostics import SpecError


def extend(
    runtime: Runtime, scheduler: Scheduler, action: Action, node: ExecutionNode, outcome: ActionOutcome
) -> list[dict[str, Any]] | None:
    """Compile and add them; gives the nodes as people may see them, or None if they make the action a failure."""
    try:
        if runtime.compile_fragment is None:
            raise ValueError("this run cannot take more steps")
        fragment = runtime.compile_fragment(runtime.graph, node, action.host, outcome.fragment)
        scheduler.extend(action, fragment)
    except (ValueError, SpecError) as error:
        result = outcome.result
        result.status = Status.FAILED
        result.kind = FailureKind.FAILED
        result.message = f"the steps that it returned cannot be run: {runtime.redactor.mask(str(error))}"
        result.hint = "see which names and references the returned steps use"
        result.ignored = node.policy.ignore_errors
        return None
    outcome.added = fragment.nodes
    written = [each.to_json() for each in fragment.nodes]
    if runtime.redactor.mask(written) != written:
        # A secret is never written down; without its nodes the action cannot count as done later.
        outcome.added, outcome.forgotten = (), True
    told = []
    for added in runtime.add_nodes(fragment.nodes):
        told.append(added.to_json())
        if added.sensitive or node.sensitive:
            told[-1]["with"] = {}
    return told


def extend_again(runtime: Runtime, scheduler: Scheduler, action: Action, outcome: ActionOutcome) -> None:
    """Add what an earlier session has compiled, exactly as it was."""
    scheduler.extend(action, ExecutionFragment.of(outcome.added))
    runtime.add_nodes(outcome.added)
