"""The interface types of the scheduler: outcomes in, transitions out, and their internal states."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from kubexm_exec.model.graph import FailurePolicy, Hook
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.scheduler.state import (
    CANCELLED,
    CONDITION,
    DEPENDENCY,
    FAILED,
    IGNORED,
    LIMIT,
    PRECHECK,
    SUCCESS,
    VIEW,
    Act,
    Action,
    Node,
)

StopReason: TypeAlias = Literal["failFast", "rollback", "cancel"]
"""Why no new action starts."""

FORCE: Final = {"": 0, "failFast": 1, "rollback": 1, "cancel": 2}
"""Precedence of stops."""
EXEMPT: Final[dict[str, tuple[Hook, ...]]] = {
    "": tuple(Hook),
    "failFast": (Hook.ON_FAILURE, Hook.ALWAYS),
    "rollback": (Hook.ON_FAILURE, Hook.ALWAYS),
    "cancel": (Hook.ALWAYS,),
}
"""Whose actions still start, and are tried again, after a stop."""
STOPS: Final[dict[FailurePolicy, StopReason]] = {
    FailurePolicy.FAIL_FAST: "failFast",
    FailurePolicy.ROLLBACK: "rollback",
}
"""The stop that a failed node is, by the graph's policy."""
_SKIPS: Final = {
    SkipReason.PRECHECK: PRECHECK,
    SkipReason.CONDITION: CONDITION,
    SkipReason.DEPENDENCY: DEPENDENCY,
    SkipReason.LIMIT: LIMIT,
}


class Outcome(Struct, frozen=True):
    """The outcome of an action: Success, Failed, Skipped (with the reason) or Cancelled."""

    status: Status
    reason: SkipReason | None = None
    notifies: bool = False
    """It has changed something: the handlers of its node are due on its host."""
    begun: bool = True
    """Of a failed or cancelled action: whether it may have done something."""
    handlers: tuple[str, ...] | None = None
    """Those that it notifies, if not all of the node's: others were served by an earlier session."""
    unknown: bool = False
    """Nobody knows how it really ended, so that no rescue can handle it."""


class Transition(Struct, frozen=True):
    """An outcome that the scheduler decided: of an action, or of a node as a whole (``host`` is empty)."""

    node: str
    host: str
    status: Status
    reason: SkipReason | None = None
    cause: str = ""
    """The nearest failed node: the fewest edges away, then the first in graph order; the one that stopped the run."""
    message: str = ""


def code_of(outcome: Outcome, node: Node) -> int:
    """The state an action ends in."""
    if outcome.status is Status.SUCCESS:
        return SUCCESS
    if outcome.status is Status.FAILED:
        return IGNORED if node.spec.policy.ignore_errors else FAILED
    if outcome.status is Status.CANCELLED:
        return CANCELLED
    if outcome.status is Status.SKIPPED and outcome.reason is not None:
        return _SKIPS[outcome.reason]
    raise ValueError(f"an action of {node.id} cannot end as {outcome.status} without a reason")


def name_of(action: Action) -> str:
    """An action, for people."""
    return f"{action[0]} on {action[1]}" if action[1] else f"the pause of {action[0]}"


def look_of(act: Act) -> str:
    """How it stands with an action, for people."""
    status, reason = VIEW[act.state]
    return f"it is {status}" + (f" ({reason})" if reason else "")
