"""What happened: the result of a run as pure data, with the field names that its JSON form has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, field


class Status(StrEnum):
    """The state of an action, a node or a run."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    SKIPPED = "Skipped"
    CANCELLED = "Cancelled"
    INTERRUPTED = "Interrupted"
    """Only of a past run: its process ended without having said how."""
    ROLLED_BACK = "RolledBack"
    """Only of a past run: what it had done was undone later."""


class SkipReason(StrEnum):
    """Why an action was skipped."""

    PRECHECK = "precheck"
    CONDITION = "condition"
    DEPENDENCY = "dependency"
    LIMIT = "limit"
    UNCHOSEN = "unchosen"
    """What it waits for is not done, and was not chosen for this session."""


BLOCKED: Final = frozenset({SkipReason.DEPENDENCY, SkipReason.LIMIT, SkipReason.UNCHOSEN})
"""Reasons for which an action is still to be done."""


class FailureKind(StrEnum):
    """How an action failed: the work said no, it took too long, the host did not answer, or the step itself broke."""

    FAILED = "failed"
    TIMED_OUT = "timedOut"
    UNREACHABLE = "unreachable"
    ERRORED = "errored"


class ForecastState(StrEnum):
    """What a precheck can say."""

    SATISFIED = "satisfied"
    CHANGE = "change"
    UNKNOWN = "unknown"


def timestamp(seconds: float | None) -> str | None:
    """Seconds since the epoch as RFC 3339 text."""
    if seconds is None:
        return None
    # Many events share a second, and formatting a date is most of the cost of an event.
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f"{_second(whole)}.{milliseconds:03d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


class HostResult(Struct, kw_only=True):
    """The outcome of one action: a step on one host."""

    host_name: str
    status: Status = Status.PENDING
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    start_time: float | None = None
    end_time: float | None = None
    skipped: bool = False
    """True if precheck was satisfied (not for a failed dependency)."""
    changed: bool = False
    reason: SkipReason | None = None
    cause: str = ""
    """For a skipped dependency: the nearest node that failed, or was not chosen."""
    kind: FailureKind | None = None
    attempts: int = 0
    ignored: bool = False
    command: str = ""
    exit_code: int | None = None
    hint: str = ""
    forecast: ForecastState | None = None
    diffs: Sequence[Mapping[str, Any]] = ()
    outputs: dict[str, Any] = field(default_factory=dict)
    unknown: bool = False
    """The connection broke in the middle of it, and nobody has been able to look since: it may be done or not."""
    undo: str = ""
    """After a rollback: ``undone``, ``undoFailed: ...`` or ``notReversible``."""
    traceback: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; keys that say nothing are left out, except those every reader may rely on."""
        data: dict[str, Any] = {
            "hostName": self.host_name,
            "status": self.status.value,
            "message": self.message,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "startTime": timestamp(self.start_time),
            "endTime": timestamp(self.end_time),
            "skipped": self.skipped,
            "changed": self.changed,
            "attempts": self.attempts,
        }
        if self.reason is not None:
            data["reason"] = self.reason.value
        if self.kind is not None:
            data["failureKind"] = self.kind.value
        if self.exit_code is not None:
            data["exitCode"] = self.exit_code
        if self.forecast is not None:
            data["forecast"] = self.forecast.value
        if self.cause:
            data["cause"] = self.cause
        if self.ignored:
            data["ignored"] = True
        if self.command:
            data["command"] = self.command
        if self.hint:
            data["hint"] = self.hint
        if self.diffs:
            data["diffs"] = self.diffs
        if self.outputs:
            data["outputs"] = self.outputs
        if self.unknown:
            data["outcomeUnknown"] = True
        if self.undo:
            data["undo"] = self.undo
        if self.traceback:
            data["traceback"] = self.traceback
        return data


class NodeResult(Struct, kw_only=True):
    """The outcome of one node: its hosts' results and what they add up to."""

    node_name: str
    step_name: str
    status: Status = Status.PENDING
    start_time: float | None = None
    end_time: float | None = None
    message: str = ""
    host_results: dict[str, HostResult] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "nodeName": self.node_name,
            "stepName": self.step_name,
            "status": self.status.value,
            "startTime": timestamp(self.start_time),
            "endTime": timestamp(self.end_time),
            "message": self.message,
            "hostResults": {name: result.to_json() for name, result in self.host_results.items()},
        }


class GraphExecutionResult(Struct, kw_only=True):
    """The report of a whole run; gates are not in it, only work is."""

    graph_name: str
    run_id: str = ""
    executor: str = ""
    start_time: float | None = None
    end_time: float | None = None
    status: Status = Status.PENDING
    message: str = ""
    node_results: dict[str, NodeResult] = field(default_factory=dict)
    not_reversible: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data with the field names of the contract."""
        return {
            "graphName": self.graph_name,
            "runId": self.run_id,
            "executor": self.executor,
            "startTime": timestamp(self.start_time),
            "endTime": timestamp(self.end_time),
            "status": self.status.value,
            "message": self.message,
            "nodeResults": {node: result.to_json() for node, result in self.node_results.items()},
            "notReversible": self.not_reversible,
        }
