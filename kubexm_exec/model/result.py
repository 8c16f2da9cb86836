"""The result of a run as pure data, with the field names of its JSON form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.model.data import builtins
from kubexm_spec.diagnostics import plural


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
    PARTIAL = "Partial"
    """Only of a run: part of it was chosen for the last session, and the rest remains."""


SYMBOLS: Final = {
    Status.PENDING: "○", Status.RUNNING: "▸", Status.SUCCESS: "✔", Status.FAILED: "✘", Status.SKIPPED: "⊘",
    Status.CANCELLED: "■", Status.INTERRUPTED: "■", Status.ROLLED_BACK: "■", Status.PARTIAL: "■",
}  # fmt: skip
"""The symbol of a status, for everything that shows one."""


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


SENSITIVE: Final = "(sensitive)"
"""In the place of a value of a sensitive step."""
HIDDEN: Final = "(hidden: the step is sensitive)"
"""In the place of a text about it."""
NO_HOSTS: Final = "there is no host for it to run on"
"""Why a node without hosts is skipped, if nothing more is known."""


class FailureKind(StrEnum):
    """How an action failed: the work failed, timed out, the host was unreachable, or the step raised an exception."""

    FAILED = "failed"
    TIMED_OUT = "timedOut"
    UNREACHABLE = "unreachable"
    ERRORED = "errored"


class ForecastState(StrEnum):
    """The states of a forecast."""

    SATISFIED = "satisfied"
    CHANGE = "change"
    UNKNOWN = "unknown"
    NOT_LOOKED_AT = "notLookedAt"
    """It would run, and only running it shows what changes."""


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


def where(host: str, place: str) -> str:
    """A place and the host that is served there, for people; the host alone if it is not served elsewhere."""
    return f"{place} for {host}" if place else host


class HostResult(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of one action: a step on one host, or for it at another place."""

    host_name: str
    """The host that it serves: the one it ran on, unless ``place`` is another."""
    status: Status = Status.PENDING
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    start_time: float | None = None
    end_time: float | None = None
    skipped: bool = False
    """True if precheck was satisfied; not for any other reason to be skipped, such as a condition or a dependency."""
    changed: bool = False
    reason: SkipReason | None = None
    cause: str = ""
    """For a skipped dependency: the nearest node that failed, or was not chosen."""
    kind: FailureKind | None = field(default=None, name="failureKind")
    attempts: int = 0
    ignored: bool = False
    """A failure that does not count: its step says so, or a rescue has handled it."""
    rescued: bool = False
    """It failed, or was skipped because of a failure, and the rescue of its group has handled that."""
    command: str = ""
    exit_code: int | None = None
    hint: str = ""
    forecast: ForecastState | None = None
    diffs: Sequence[Mapping[str, Any]] = ()
    refused: Sequence[Mapping[str, Any]] = ()
    """What it would have changed, as diffs, if the program that judges new content had not refused it."""
    outputs: dict[str, Any] = field(default_factory=dict)
    unknown: bool = field(default=False, name="outcomeUnknown")
    """The connection dropped during the action and the host could not be checked since: its outcome is unknown."""
    repeated: bool = False
    """The outcome of an earlier attempt was unknown, and it was simply run again: it is repeatable."""
    undo: str = ""
    """After a rollback: ``undone``, ``undoFailed: ...``, ``leftAlone: ...`` (somebody else changed it since) or
    ``notReversible``."""
    traceback: str = ""
    place: str = ""
    """The host that it ran on, if that is not the one it is for."""
    due_since: str = ""
    """Of a handler: the run that made it due, if that is another one."""

    @property
    def where(self) -> str:
        """The place and the host it was for, for people."""
        return where(self.host_name, self.place)

    def to_json(self) -> dict[str, Any]:
        """Plain data; keys that say nothing are left out, except those every reader may rely on."""
        return _ALWAYS_SAID | _timed(self)


_ALWAYS_SAID: Final[dict[str, Any]] = {
    "hostName": "", "status": Status.PENDING.value, "message": "", "stdout": "", "stderr": "", "startTime": None,
    "endTime": None, "skipped": False, "changed": False, "attempts": 0,
}  # fmt: skip
"""Keys that every reader of a result may rely on."""


COLUMNS: Final = {
    "changed": "changed",
    "unchanged": "unchanged",
    "wouldChange": "would change",
    "wouldRun": "would run",
    "unknown": "unknown",
    "notLookedAt": "not checked",
    "skipped": "skipped",
    "failed": "failed",
    "unreachable": "unreachable",
    "ignored": "ignored",
    "rescued": "rescued",
    "cancelled": "cancelled",
    "running": "running",
    "left": "left",
}
"""The columns that actions are counted in, in reading order, with their labels."""
_FORECASTS: Final = {
    ForecastState.CHANGE: "wouldChange",
    ForecastState.UNKNOWN: "unknown",
    ForecastState.NOT_LOOKED_AT: "notLookedAt",
}


class RunMode(StrEnum):
    """What a run may do to its hosts; declared by its executor."""

    ACT = "act"
    """It applies the spec."""
    LOOK = "look"
    """It asks the hosts, and changes nothing."""
    OFFLINE = "offline"
    """It contacts no host."""
    UNDO = "undo"
    """It undoes the changes of another run."""

    @property
    def previews(self) -> bool:
        """Whether it only says what would be done."""
        return self in (RunMode.LOOK, RunMode.OFFLINE)


DEFAULT_EXECUTOR: Final = "concurrent"
"""The default executor, which is not mentioned in commands to type."""


def column(each: HostResult, mode: str = "") -> str:
    """The column of ``COLUMNS`` that an action is counted in, for all views."""
    return _column(mode, *_OUTCOME(each))


def column_of(data: Mapping[str, Any], mode: str = "") -> str:
    """The same, of the JSON form of a result."""
    return _column(mode, *map(data.get, _COUNTED))


_OUTCOME: Final = attrgetter("status", "changed", "forecast", "reason", "kind", "ignored", "rescued", "unknown")
_COUNTED: Final = (*("status", "changed", "forecast", "reason", "failureKind", "ignored", "rescued", "outcomeUnknown"),)


def _column(
    mode: str,
    status: Any,
    changed: Any,
    forecast: Any,
    reason: Any,
    kind: Any,
    ignored: Any,
    rescued: Any,
    unknown: Any,
) -> str:
    match status:
        case Status.SUCCESS if changed:
            return "changed"
        case Status.SUCCESS:
            found = _FORECASTS.get(forecast, "unchanged")
            # A dry run asks no host: it cannot say that something would change.
            return "wouldRun" if mode == RunMode.OFFLINE and found == "wouldChange" else found
        case Status.SKIPPED:
            return "unchanged" if reason == SkipReason.PRECHECK else "skipped"
        case Status.FAILED if rescued:
            return "rescued"
        case Status.FAILED if ignored:
            return "ignored"
        case Status.FAILED:
            return "unreachable" if kind == FailureKind.UNREACHABLE else "failed"
        case Status.RUNNING:
            return "running"
        case Status.PENDING:
            return "unknown" if unknown else "left"
        case _:
            return "cancelled"


class NodeResult(Struct, kw_only=True, rename="camel"):
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
        hosts = {name: result.to_json() for name, result in self.host_results.items()}
        return _timed(replace(self, host_results={}), hostResults=hosts)


_MOST_REASONS: Final = 3
"""So many different reasons of its actions are named in the message of a node."""


def reason_text(status: Status, reason: SkipReason | None, cause: str, said: str = "") -> str:
    """Why an action was never started, for people; ``said`` is what is known of a condition."""
    if status is Status.CANCELLED:
        because = f" because '{cause}' failed" if cause else ""
        return f"Cancelled before it started{because}"
    if reason is SkipReason.DEPENDENCY:
        return f"Skipped due to failed dependency '{cause}'"
    if reason is SkipReason.LIMIT:
        return f"Skipped because too many hosts failed, such as in '{cause}'"
    return said


def node_message(node: NodeResult, skip: str = "") -> str:
    """The message of a node that has ended: how many hosts failed, or why it did not run on them.

    It follows from what is known of its actions, so that a live run and its journal say the same; ``skip`` is the
    reason known before the run, of which a node without hosts has no other trace.
    """
    every = node.host_results.values()
    if not every:
        return skip or NO_HOSTS
    if node.status is Status.FAILED:
        failures = sum(each.status is Status.FAILED and not each.ignored for each in every)
        return f"{failures} of {plural(len(every), 'host')} failed"
    found: dict[str, int] = {}
    for each in every:
        reason = each.reason
        if (reason is not None and reason is not SkipReason.PRECHECK) or each.status is Status.CANCELLED:
            found[each.message] = found.get(each.message, 0) + 1
    if not found:
        return ""
    reasons = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    said = [text if number == len(every) else f"{text} ({number} of {len(every)} hosts)" for text, number in reasons]
    more = [f"and {len(said) - _MOST_REASONS} other reasons"] if len(said) > _MOST_REASONS else []
    return "; ".join([*said[:_MOST_REASONS], *more])


class GraphExecutionResult(Struct, kw_only=True, rename="camel"):
    """The report of a whole run; gates are not in it, only work is."""

    graph_name: str
    run_id: str = ""
    executor: str = ""
    mode: RunMode = field(default=RunMode.ACT, name="runMode")
    start_time: float | None = None
    end_time: float | None = None
    status: Status = Status.PENDING
    message: str = ""
    node_results: dict[str, NodeResult] = field(default_factory=dict)
    not_reversible: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data with the field names of the contract."""
        nodes = {node: result.to_json() for node, result in self.node_results.items()}
        return _timed(replace(self, node_results={}), nodeResults=nodes)


def _timed(result: HostResult | NodeResult | GraphExecutionResult, **inner: Any) -> dict[str, Any]:
    data: dict[str, Any] = builtins(result)
    data.update(startTime=timestamp(result.start_time), endTime=timestamp(result.end_time), **inner)
    return data


class PastChange(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What an action of a past run changed on its host, or may have."""

    node: str
    host: str
    time: float
    session: int
    """The number of the session that did it, from 1."""
    sure: bool
    """False: it failed in the middle, and may have changed only some of it, or nothing."""
    message: str = ""
    diffs: Sequence[Mapping[str, Any]] = ()
    place: str = ""
    """The host that it was done on, if it was done for another one."""
    undo: str = ""
    """What became of it since, if it was to be undone."""

    @property
    def where(self) -> str:
        """The place and the host it was for, for people."""
        return where(self.host, self.place)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**builtins(self), "time": timestamp(self.time)}


def counts(result: GraphExecutionResult) -> dict[str, int]:
    """The number of actions by outcome: ok is changed plus unchanged; ignored failures are counted separately."""
    total = dict.fromkeys(("ok", *COLUMNS), 0)
    alike = Counter(_OUTCOME(each) for node in result.node_results.values() for each in node.host_results.values())
    for outcome, number in alike.items():
        total[_column(result.mode, *outcome)] += number
    total["ok"] = total["changed"] + total["unchanged"]
    return total


def words(total: Mapping[str, int], names: Iterable[str] = COLUMNS) -> str:
    """``41 changed, 19 unchanged, 2 skipped``: what is not zero, of these columns."""
    return ", ".join(f"{total[name]} {COLUMNS[name]}" for name in names if total.get(name))
