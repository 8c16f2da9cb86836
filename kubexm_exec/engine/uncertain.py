"""Unknown outcomes, when a connection drops during a step: precheck finds out, nothing is repeated blindly."""

from __future__ import annotations

from typing import Any, Final

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.failures import find_cause
from kubexm_exec.model.errors import OutcomeUnknown
from kubexm_exec.model.result import FailureKind, HostResult, Status
from kubexm_exec.step import AnyStep, Effect, Forecast, Undo

DONE: Final = "the connection dropped; the host shows that it was done"
_LOOK: Final = (
    "check on the host whether it was done; then `kubexm runs resume` with --done NODE if it was, or with --from NODE "
    "to run it again"
)
_SAFE: Final = "run it again: it checks the host first, and does only what is missing (`retry` automates that)"
_AGAIN: Final = "run it again: it is repeatable, so that nobody has to confirm anything (`retry` automates that)"


def may_repeat(attempt: Attempt, step: AnyStep, forecast: Forecast[Any]) -> bool:
    """Whether a repetition is safe: precheck has looked at the host, or the step is repeatable, or changes nothing.

    What the spec says of it counts more than what its type does.
    """
    if forecast.decides:
        return True
    said = attempt.node.policy.repeatable
    if said is not None:
        return said
    return _says_so(step) or forecast.effect is not Effect.CHANGES or step.undo is Undo.NEEDLESS


def _says_so(step: AnyStep) -> bool:
    """Whether the step type says that it is repeatable; one that cannot tell is not."""
    try:
        return step.is_repeatable()
    except Exception:  # noqa: BLE001  asked also where nothing may be raised; it is the type's own code
        return False


def was_done(attempt: Attempt, outcome: ActionOutcome) -> ActionOutcome:
    """The outcome if precheck finds the work of an earlier attempt done: this run has made the change."""
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
    """Before ``run``: settle an earlier attempt; raises OutcomeUnknown if precheck could not tell."""
    if not may_repeat(attempt, step, forecast):
        raise OutcomeUnknown(attempt.unsure)
    attempt.repeats = not forecast.decides
    attempt.unsure = ""


def mark(
    attempt: Attempt,
    outcome: ActionOutcome,
    error: BaseException,
    step: AnyStep | None,
    forecast: Forecast[Any] | None,
) -> None:
    """Mark the outcome of a failed attempt as unknown, if it or an earlier one's is; with its forecast, if any."""
    lost = find_cause(error, OutcomeUnknown)
    if lost is not None and attempt.working:
        # During precheck it does not matter: that changes nothing.
        attempt.unsure = str(lost)
    if not attempt.unsure:
        return
    result = outcome.result
    result.unknown = True
    if result.status is not Status.FAILED:
        return
    if lost is not None and not attempt.working:
        # The host was reached, and could not tell.
        result.kind = FailureKind.FAILED
    if lost is not None:
        result.command = result.command or lost.command
    elif result.kind is FailureKind.UNREACHABLE:
        result.message += "; the outcome of the attempt before is unknown, because its connection dropped"
    if step is None or forecast is None:
        result.hint = result.hint or (_AGAIN if attempt.node.policy.repeatable else _LOOK)
    elif may_repeat(attempt, step, forecast):
        result.hint = _SAFE if forecast.decides else _AGAIN
    else:
        outcome.final = True
        result.hint = f"{_LOOK}; {step.unknown_hint}" if step.unknown_hint else _LOOK


def left(attempt: Attempt, outcome: ActionOutcome) -> None:
    """Mark the outcome of an abandoned attempt as unknown, if it was beyond precheck on a host."""
    if attempt.unsure or (attempt.working and attempt.connected):
        attempt.unsure = attempt.unsure or outcome.result.message
        outcome.result.unknown = True
