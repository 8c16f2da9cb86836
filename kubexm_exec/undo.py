"""Undoes what a run has done, in reverse of the order it finished; what cannot be undone is named."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final

from kubexm_exec.attempt import Attempt
from kubexm_exec.connectors.base import CommandCancelled, Deadline
from kubexm_exec.context import ActionContext
from kubexm_exec.events import ACTION_UNDONE
from kubexm_exec.failures import caused_by, failed, seconds, sensitive_mask
from kubexm_exec.graph import ExecutionNode
from kubexm_exec.result import HostResult
from kubexm_exec.runtime import Runtime
from kubexm_exec.step import Step

UNDONE: Final = "undone"
FAILED: Final = "undoFailed"
NOT_REVERSIBLE: Final = "notReversible"
_ENDED: Final = "the run was ended while it was being undone"
CONNECTED_GRACE: Final = 4.0
"""Seconds more for what has a connection: killing a process group that does not want to die takes a while."""


@dataclass(slots=True)
class Saved:
    """An action that did something, with those of its attempts that saved what an undo needs, in order."""

    node: ExecutionNode
    host: str
    result: HostResult | None = None
    attempts: list[Attempt] = field(default_factory=list)


def undo_all(runtime: Runtime, saved: Sequence[Saved]) -> list[str]:
    """Undo the actions, given in the order they finished, last first and one at a time; gives what cannot be undone.

    A failure of one does not stop the others. The cancel of a run does not end it, only its abort does.
    """
    not_reversible: list[str] = []
    for action in reversed(saved):
        if not action.attempts:
            not_reversible.append(f"{action.node.id} on {action.host}")
            _tell(runtime, action, NOT_REVERSIBLE, "")
            continue
        # Each attempt saved what it found: undone backwards, the last one standing is what was there at first.
        problems = [text for attempt in reversed(action.attempts) if (text := _undo(runtime, attempt))]
        _tell(runtime, action, FAILED if problems else UNDONE, "; ".join(problems))
    return not_reversible


def _tell(runtime: Runtime, action: Saved, state: str, message: str) -> None:
    message = runtime.redactor.mask(message)
    if action.result is not None:
        action.result.undo = f"{state}: {message}" if message else state
    runtime.bus.emit(ACTION_UNDONE, action.node.id, action.host, result=state, message=message)


def _undo(runtime: Runtime, attempt: Attempt) -> str:
    """Undo one attempt; gives what went wrong, or an empty text."""
    if runtime.abort.is_set():
        return "the run was ended before it could be undone"
    timeout = attempt.node.policy.timeout
    again = Attempt(attempt.node, attempt.host, attempt.number, runtime.last, Deadline.after(timeout))
    again.used, again.undo = attempt.used, attempt.undo
    answers: SimpleQueue[str] = SimpleQueue()
    # A thread of its own: a rollback that never comes back must not take the others with it.
    thread = threading.Thread(
        target=lambda: answers.put(_roll_back(runtime, again)), name=f"kubexm-undo-{attempt.node.id}", daemon=True
    )
    remove = runtime.abort.on_set(lambda: answers.put(_ENDED))
    try:
        thread.start()
        return _answer(answers, None if timeout is None else timeout + runtime.options.grace, again)
    except Empty:
        again.abandoned = True
        return f"timed out after {seconds(timeout or 0.0)}; it did not stop and was left behind"
    finally:
        remove()


def _answer(answers: SimpleQueue[str], limit: float | None, attempt: Attempt) -> str:
    try:
        return answers.get(timeout=limit)
    except Empty:
        if not attempt.connected:
            raise
        # Its command is being killed, which takes a moment if it does not want to die.
        return answers.get(timeout=CONNECTED_GRACE)


def _roll_back(runtime: Runtime, attempt: Attempt) -> str:
    ctx = ActionContext(runtime, attempt)
    try:
        kind: type[Step[Any]] = runtime.steps.load(attempt.node.step_name)
        assert attempt.used is not None  # only a step that ran can have saved anything
        kind(attempt.used).rollback(ctx, attempt.undo or {})
    except BaseException as error:  # noqa: BLE001  whatever a rollback raises, the others are undone
        if runtime.last.is_set() and caused_by(error, CommandCancelled):
            return _ENDED
        result = failed(attempt, error)
        hide = sensitive_mask(attempt) if attempt.node.sensitive else runtime.redactor.mask
        if result.traceback:
            runtime.logger(node=attempt.node.id, host=attempt.host).error(
                "the undo broke", error=hide(result.message), traceback=hide(result.traceback)
            )
        return hide(result.message) or type(error).__name__
    finally:
        ctx.close()
    return ""
