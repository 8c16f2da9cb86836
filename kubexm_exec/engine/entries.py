"""The entries of a journal: what happened to actions, as small plain data, and back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.model.result import FailureKind, ForecastState, HostResult, SkipReason, Status

SESSION: Final = "session"
"""Somebody began, or went on with, the run. ``mode``: run, resume or rollback; ``holder``, ``time``.

``again``: what is to be run again although it was done, each some ``nodes`` on some ``hosts``, or on all (None).
"""
START: Final = "start"
"""An attempt is about to begin, with ``inputs`` of this digest. Until its end nobody knows what it has done."""
END: Final = "end"
"""An action has come to its end: ``result``; ``hidden`` if outputs were not kept because there is a secret in them."""
RETRY: Final = "retry"
"""An attempt failed, and there will be another one."""
UNDO: Final = "undo"
"""What an attempt will need to be undone; durable before anything is changed. A later one of it replaces it: with
``data`` None it has changed nothing."""
UNDOING: Final = "undoing"
"""The undo of an action is about to begin."""
UNDONE: Final = "undone"
"""An action was undone, that failed, or there was nothing to undo: ``state``, ``message``."""
STOP: Final = "stop"
"""Nothing new is started from here on, because of ``reason``."""
STATUS: Final = "status"
"""The session has come to its end: ``status``, ``message``."""

_KEPT: Final = 16 << 10
"""Characters kept of each stream; the whole is in the run's log."""


_ASIDE: Final = ("hidden", "nodes", "forgotten", "worked")
"""What an end says besides its result."""

Row: TypeAlias = list[Any]
"""An entry as it is stored. There are two for each action, so these two kinds are short and have no names in them."""


def start(attempt: Attempt, inputs: str) -> Row:
    """An attempt is about to begin, with inputs of this digest."""
    return ["s", attempt.node.id, attempt.host, attempt.number, int(attempt.started * 1000), inputs]


def end(node: str, outcome: ActionOutcome) -> Row:
    """An action has come to its end."""
    result = outcome.result
    begun, ended = result.start_time, result.end_time
    row: Row = [
        "e", node, result.host_name, result.status, result.attempts,
        # Writing a whole number down costs a fifth of writing down one with a fraction.
        None if begun is None else int(begun * 1000), None if ended is None else int(ended * 1000),
    ]  # fmt: skip
    more = _more(result)
    if outcome.outputs and result.outputs != outcome.outputs:
        more["hidden"] = True
    if outcome.added:
        more["nodes"] = list(outcome.added)
    if outcome.forgotten:
        more["forgotten"] = True
    if outcome.worked:
        more["worked"] = True
    if more:
        row.append(more)
    return row


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def other(kind: str, **data: Any) -> Row:
    """Any other entry, with its time."""
    return ["x", {"kind": kind, "time": round(time.time(), 3), **data}]


def read(row: Row) -> dict[str, Any]:
    """A stored entry with names."""
    if row[0] == "s":
        _, node, host, attempt, began, *rest = row
        return {
            "kind": START, "node": node, "host": host, "attempt": attempt, "time": _seconds(began),
            "inputs": rest[0] if rest else "",
        }  # fmt: skip
    if row[0] == "e":
        more = row[7] if len(row) > 7 else {}
        return {"kind": END, "node": row[1], "host": row[2], "result": result_of(row), **{
            key: more[key] for key in _ASIDE if key in more
        }}  # fmt: skip
    return dict(row[1])


def _more(result: HostResult) -> dict[str, Any]:
    """What else there is to say of a result."""
    data: dict[str, Any] = {}
    if result.message:
        data["message"] = result.message
    if result.changed:
        data["changed"] = True
    if result.stdout:
        data["stdout"] = result.stdout[-_KEPT:]
    if result.stderr:
        data["stderr"] = result.stderr[-_KEPT:]
    if result.reason is not None:
        data["reason"] = result.reason.value
        data["skipped"] = result.skipped
    if result.kind is not None:
        data["failure"] = result.kind.value
    if result.exit_code is not None:
        data["exitCode"] = result.exit_code
    if result.forecast is not None:
        data["forecast"] = result.forecast.value
    if result.outputs:
        data["outputs"] = result.outputs
    if result.diffs:
        data["diffs"] = result.diffs
    if result.status is not Status.SUCCESS or result.unknown:
        for name in ("cause", "hint", "ignored", "unknown", "traceback"):
            if value := getattr(result, name):
                data[name] = value
    if result.command:
        data["command"] = result.command
    if result.place:
        data["place"] = result.place
    if result.undo:
        data["undo"] = result.undo
    return data


def result_of(row: Row) -> HostResult:
    """The result in the row of an end."""
    _, _, host, status, attempts, begun, ended, *rest = row
    data = dict(rest[0]) if rest else {}
    for name in _ASIDE:
        data.pop(name, None)
    reason, failure, forecast = (data.pop(name, None) for name in ("reason", "failure", "forecast"))
    return HostResult(
        host_name=host,
        status=Status(status),
        attempts=attempts,
        start_time=_seconds(begun),
        end_time=_seconds(ended),
        reason=None if reason is None else SkipReason(reason),
        kind=None if failure is None else FailureKind(failure),
        forecast=None if forecast is None else ForecastState(forecast),
        exit_code=data.pop("exitCode", None),
        **data,
    )


def undo(attempt: Attempt, data: Mapping[str, Any] | None, params: Any = None) -> Row:
    """What an attempt will need to be undone, with its parameters unless they are not to be kept; None: nothing."""
    node = attempt.node
    kept = {} if params is None else {"step": node.step_name, "params": params}
    if place := node.elsewhere(attempt.host):
        kept["place"] = place
    return other(UNDO, node=node.id, host=attempt.host, attempt=attempt.number, data=data, become=node.become, **kept)


def retry(attempt: Attempt, result: HostResult) -> Row:
    """An attempt failed, and there will be another one."""
    return other(
        RETRY, node=attempt.node.id, host=attempt.host, attempt=attempt.number, message=result.message,
        failure=None if result.kind is None else result.kind.value, unsure=attempt.unsure,
        **({"worked": True} if attempt.working else {}),
    )  # fmt: skip
