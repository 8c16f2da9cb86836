"""Turns an exception into the result of an action: kind, message, and what to do next."""

from __future__ import annotations

import traceback
from typing import Final, TypeVar

from pydantic import ValidationError

from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError, StepFailed
from kubexm_exec.model.result import FailureKind, HostResult, Status
from kubexm_exec.plugins import RegistryError, raised
from kubexm_exec.secrets import SecretError
from kubexm_exec.values.expressions import ExpressionError
from kubexm_spec.documents.checking import wording
from kubexm_spec.duration import format_duration

_MOST_PROBLEMS: Final = 3
_FROM_STEP: Final = ("kind", "message", "command", "exit_code", "stdout", "stderr", "hint")

TRACEBACK: Final = "its traceback is in the result: --result FILE, or kubexm runs report"

E = TypeVar("E", bound=BaseException)


def failed(attempt: Attempt, error: BaseException) -> HostResult:
    """The result of an attempt that raised an exception."""
    result = HostResult(host_name=attempt.host, status=Status.FAILED)
    if isinstance(error, StepFailed):
        for name in _FROM_STEP:
            setattr(result, name, getattr(error, name))
    timeout = attempt.node.policy.timeout
    if timeout is not None and attempt.deadline.passed() and caused_by(error, CommandTimedOut):
        result.kind = FailureKind.TIMED_OUT
        said = "" if isinstance(error, CommandTimedOut) and not error.doing else str(error)
        result.message = f"timed out after {seconds(timeout)}" + (f": {said}" if said else "")
        result.hint = result.hint or "raise its `timeout`, or find out what it waits for"
    elif isinstance(error, StepFailed):
        pass
    elif isinstance(error, CommandTimedOut):
        result.kind, result.message = FailureKind.TIMED_OUT, str(error)
    elif isinstance(error, ConnectorError):
        result.kind, result.message = FailureKind.UNREACHABLE, str(error) or type(error).__name__
    elif isinstance(error, ValidationError):
        _could_not_try(result, _problems(attempt, error), _place(attempt))
    elif isinstance(error, ExpressionError) and caused_by(error, ConnectorError):
        # The expression needed facts of a host that did not answer.
        result.kind, result.message = FailureKind.UNREACHABLE, error.message.removeprefix("ConnectorError: ")
    elif (secret := find_cause(error, SecretError)) is not None:
        _could_not_try(result, f'secret "{secret.reference}": {secret.what}', secret.hint)
    elif isinstance(error, ExpressionError):
        where = f", in {error.evaluated}" if error.evaluated else ""
        _could_not_try(result, f"{error.message}{where}", _place(attempt))
    elif isinstance(error, RegistryError):
        _could_not_try(result, error.message, error.hint)
        if error.__cause__ is not None:
            result.traceback = "".join(traceback.format_exception(error.__cause__))
            result.hint += f"; {TRACEBACK}"
    else:
        result.kind = FailureKind.ERRORED
        result.message = raised(error)
        result.traceback = "".join(traceback.format_exception(error))
        result.hint = f"step type {attempt.node.step_name} raised it; {TRACEBACK}"
    return result


def cancelled(attempt: Attempt) -> HostResult:
    """The result of an attempt that was cancelled."""
    said = "cancelled while it ran" if attempt.begun else "Cancelled before it started"
    return HostResult(host_name=attempt.host, status=Status.CANCELLED, message=said)


def left_behind(attempt: Attempt, *, by_cancel: bool) -> HostResult:
    """The result of an attempt that was abandoned because it did not stop."""
    if by_cancel:
        result = cancelled(attempt)
        result.message += "; it did not stop and was abandoned"
        return result
    timeout = attempt.node.policy.timeout or 0.0
    return HostResult(
        host_name=attempt.host,
        status=Status.FAILED,
        kind=FailureKind.TIMED_OUT,
        message=f"timed out after {seconds(timeout)}; it did not stop and was abandoned",
        hint=f"step type {attempt.node.step_name} ignores its timeout; it may still be running",
        ignored=attempt.node.policy.ignore_errors,
    )


def seconds(value: float) -> str:
    """A timeout for messages: 30s, 1.5s, 2m 00s."""
    return f"{value:g}s" if value < 60 else format_duration(value)


def caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an exception, or one of its causes, is of that kind."""
    return find_cause(error, kind) is not None


def find_cause(error: BaseException, kind: type[E]) -> E | None:
    """The first of an exception and its causes that is of that kind."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, kind):
            return current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return None


def _could_not_try(result: HostResult, message: str, hint: str) -> None:
    # Trying again would not help, and "errored" is not tried again by default.
    result.kind, result.message, result.hint = FailureKind.ERRORED, message, hint


def _place(attempt: Attempt) -> str:
    origin = str(attempt.node.origin)
    return f"check {origin}" if origin else ""


def _problems(attempt: Attempt, error: ValidationError) -> str:
    """The wrong parameters; values are shown only if the step is not sensitive."""
    found = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"]) or "with"
        found.append(f"parameter {name}: {wording(problem, values=not attempt.node.sensitive)}")
    more = f" (and {len(found) - _MOST_PROBLEMS} more)" if len(found) > _MOST_PROBLEMS else ""
    return "; ".join(found[:_MOST_PROBLEMS]) + more
