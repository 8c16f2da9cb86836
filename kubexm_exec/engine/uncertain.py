"""What follows when a connection drops in the middle of a step: the host is looked at, nothing is run twice blindly."""

from __future__ import annotations

from typing import Any, Final

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.failures import find_cause
from kubexm_exec.model.errors import OutcomeUnknown
from kubexm_exec.model.result import FailureKind, HostResult, Status
from kubexm_exec.step import AnyStep, Effect, Forecast, Undo

DONE: Final = "the connection dropped; the host shows that it was done"
_LOOK: Final = (
    "look on the host whether it was done; then `kubexm runs resume` takes --done NODE if it was, or --from NODE to "
    "run it again"
)
_SAFE: Final = "run it again: it looks at the host first, and does only what is missing (`retry` does that by itself)"


def may_repeat(step: AnyStep, forecast: Forecast[Any]) -> bool:
    """Whether a second run can do no harm: the host was looked at, or there is nothing that it would change."""
    return forecast.decides or forecast.effect is not Effect.CHANGES or step.undo is Undo.NEEDLESS


def was_done(attempt: Attempt, outcome: ActionOutcome) -> ActionOutcome:
    """The outcome when precheck finds done what an earlier try was at when its connection dropped, or it failed.

    Either way it is as it should be because of this run, which is a change for all that depends on it.
    """
    result = outcome.result
    if not attempt.unsure:
        result.changed = True
        return outcome
    attempt.unsure = ""
    outcome.result = HostResult(
        host_name=attempt.host, status=Status.SUCCESS, changed=True,
        message=f"{DONE}: {result.message}" if result.message else DONE,
    )  # fmt: skip
    return outcome


def settle(attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> None:
    """Before ``run``: an earlier try is settled if precheck could tell; raises OutcomeUnknown if it could not."""
    if not may_repeat(step, forecast):
        raise OutcomeUnknown(attempt.unsure)
    attempt.unsure = ""


def mark(
    attempt: Attempt,
    outcome: ActionOutcome,
    error: BaseException,
    step: AnyStep | None,
    forecast: Forecast[Any] | None,
) -> None:
    """Say so in the outcome of a try that raised something, if nobody knows what it, or an earlier one, has done.

    The forecast is that of this try, if precheck got so far.
    """
    lost = find_cause(error, OutcomeUnknown)
    if lost is not None and attempt.working:
        # In a precheck it would not matter: that changes nothing.
        attempt.unsure = str(lost)
    if not attempt.unsure:
        return
    result = outcome.result
    result.unknown = True
    if result.status is not Status.FAILED:
        return
    if lost is not None and not attempt.working:
        # The host was asked, and could not tell: it can be reached.
        result.kind = FailureKind.FAILED
    if lost is not None:
        result.command = result.command or lost.command
    elif result.kind is FailureKind.UNREACHABLE:
        result.message += "; it is not known whether it was done when the connection dropped before"
    if step is None or forecast is None:
        result.hint = result.hint or _LOOK
    elif may_repeat(step, forecast):
        result.hint = _SAFE
    else:
        outcome.final = True
        result.hint = f"{_LOOK}; {step.unknown_hint}" if step.unknown_hint else _LOOK


def left(attempt: Attempt, outcome: ActionOutcome) -> None:
    """Say so in the outcome of a try that did not come back, if it was at work on a host."""
    if attempt.unsure or (attempt.working and attempt.connected):
        attempt.unsure = attempt.unsure or outcome.result.message
        outcome.result.unknown = True
