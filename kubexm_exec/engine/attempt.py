"""An attempt and its outcome: the data that the driver and the life cycle exchange."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import FailureKind, ForecastState, HostResult, NodeResult, Status
from kubexm_exec.step import Params
from kubexm_exec.values.evaluate import ActionRecord

NO_DEADLINE: Final = Deadline()


class Written:
    """Whether the start of some attempts is in the journal and was reported: they may look before, but change nothing.

    A lock that is held until then: it costs less than an event, and there is one for each group of entries.
    """

    __slots__ = ("_error", "_lock")

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait(self) -> None:
        """Return when it is so; raises why it never will be."""
        with self._lock:
            if self._error is not None:
                raise self._error

    def tell(self, error: BaseException | None) -> None:
        """It is so, or never will be because of an error."""
        self._error = error
        self._lock.release()


class Attempt(Struct, eq=False):
    """One try of an action, with what may end it early and its undo data."""

    node: ExecutionNode
    host: str
    """The host that it serves; it runs at ``place``."""
    number: int
    cancel: Cancel
    deadline: Deadline = NO_DEADLINE
    started: float = 0.0
    params: Mapping[str, Any] | None = None
    """Rendered parameters instead of the node's (the debugger's ``set``)."""
    rendered: Mapping[str, Any] | None = None
    """Its rendered parameters, before validation."""
    used: Params | None = None
    """Its validated parameters."""
    env: Mapping[str, str] | None = None
    """The environment variables of its commands, once they are known."""
    undo: Mapping[str, Any] | None = None
    begun: bool = False
    """A worker has it."""
    written: Written | None = None
    """Its start in the journal, if there is one."""
    abandoned: bool = False
    """The driver has given it up, and ignores what it still reports."""
    connected: bool = False
    """It has a connection, so that killing its command may take a moment."""
    blind: bool = False
    """It is going to change something, and has not asked its host anything before."""
    working: bool = False
    """It is beyond precheck: something may have been changed."""
    worked: bool = False
    """An earlier attempt, in any session, failed beyond precheck. If this one ends well, this run has made the change,
    also if nothing remains to be done."""
    changed: bool | None = None
    """Of an attempt that failed: whether it changed anything, if that is known."""
    notifies: tuple[str, ...] = ()
    """The handlers that are due on its host if it changes something."""
    since: str = ""
    """For a handler: the other run since which it is due."""
    only_if: str = ""
    """For a handler, in a forecast: the nodes that notify it if they change something, which is not known."""
    unsure: str = ""
    """Why the outcome of this attempt or an earlier one is unknown, until a precheck finds out: the message of a
    connection that dropped beyond precheck."""
    repeats: bool = False
    """It repeats an earlier attempt whose outcome nobody knows, without having seen how far that one came."""

    @property
    def may_have_changed(self) -> bool:
        """Whether it may have changed something, if it has failed."""
        return self.working if self.changed is None else self.changed

    @property
    def place(self) -> str:
        """The host that it runs on."""
        return self.node.place(self.host)

    def told(self) -> dict[str, Any]:
        """The data of the event for its start."""
        told: dict[str, Any] = {"attempt": self.number, "step": self.node.step_name}
        if self.node.places and (place := self.node.elsewhere(self.host)):
            told["place"] = place
        return told

    def because(self, message: str) -> str:
        """A message about it, with why it runs if nothing in this run is the reason."""
        return f"{message} (due since run {self.since})".lstrip() if self.since else message

    def wait_for_journal(self) -> None:
        """Return when its start is in the journal and was reported: from then on it may change and report something."""
        if self.written is not None:
            self.written.wait()

    def begin_work(self) -> None:
        """It is going to change something: wait for the journal; raises CommandCancelled if it was cancelled before."""
        self.blind = not self.connected
        if self.written is not None:
            self.written.wait()
            if self.cancel.is_set():
                self.begun = False
                raise CommandCancelled

    def begin(self) -> None:
        """Start its timeout now."""
        timeout = self.node.policy.timeout
        self.started = time.time()
        self.deadline = NO_DEADLINE if timeout is None else Deadline.after(timeout)


class ActionOutcome(Struct, eq=False):
    """The outcome of an attempt. ``result`` may be shown; ``outputs`` are the real ones, for later steps."""

    result: HostResult
    outputs: Mapping[str, Any] | None = None
    fragment: Sequence[Mapping[str, Any]] = ()
    unknown: str = ""
    """Why its outputs are not known, if it was not run."""
    items: Sequence[tuple[str, Any]] = ()
    """The items of a loop with their keys: there is to be a node for each."""
    added: Sequence[ExecutionNode] = ()
    """The nodes of its compiled fragment."""
    forgotten: bool = False
    """They must not be recorded: they contain a secret."""
    final: bool = False
    """It must not be retried, whatever the policy says."""
    not_yet: bool = False
    """``retry.until`` does not hold: it is retried, whatever its kind of failure."""
    worked: bool = False
    """It failed or was cancelled beyond precheck: something may have been changed."""
    notifies: tuple[str, ...] = ()
    """The handlers that are due after it, if it has changed something, or of which that is settled by now."""
    handler: str = ""
    """The handler that it has run well."""
    served: tuple[str, ...] = ()
    """The nodes whose notifications are served by that."""


class Earlier(Struct, frozen=True):
    """When an action changed something in earlier sessions of the run, and when it succeeded; 0 for never."""

    changed: int = 0
    succeeded: int = 0
    """Both count the ends of actions."""


_NOTHING: Final = Earlier()


class ActionRecords:
    """Finished actions, for the expressions of later steps."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeResult] = {}
        self.earlier: Mapping[tuple[str, str], Earlier] = {}
        """Earlier sessions of the run, by node and host."""
        self._more: dict[tuple[str, str], ActionOutcome] = {}

    def add(self, node: str, outcome: ActionOutcome) -> None:
        """Keep what an outcome has besides its result, which is among those of its node."""
        if outcome.outputs or outcome.unknown:
            self._more[node, outcome.result.host_name] = outcome

    def get(self, node: str, host: str) -> ActionRecord | None:
        """The record of an action, or None if it has not finished."""
        of = self.nodes.get(node)
        result = None if of is None else of.host_results.get(host)
        if result is None:
            return None
        more = self._more.get((node, host))
        failure = None
        if result.status is Status.FAILED and (result.rescued or not result.ignored):
            failure = {
                "step": node.split("/", 2)[-1],
                "kind": (result.kind or FailureKind.FAILED).value,
                "message": result.message,
                "exitCode": result.exit_code,
            }
        if more is None:
            return ActionRecord(
                result.status.value, result.changed, message=result.message, failure=failure, rescued=result.rescued
            )
        # After a check, steps that depend on a change see the forecast change.
        foreseen = result.forecast is ForecastState.CHANGE and bool(result.diffs)
        return ActionRecord(
            result.status.value, result.changed or foreseen, more.outputs or {}, more.unknown, result.message, failure,
            result.rescued, foreseen=result.forecast in (ForecastState.CHANGE, ForecastState.UNKNOWN),
        )  # fmt: skip

    def owes(self, node: str, host: str, by: tuple[str, str] | None) -> bool:
        """Whether a change by an earlier session still counts for the action ``by``, or without it for the run."""
        changed = self.earlier.get((node, host), _NOTHING).changed
        return changed > (0 if by is None else self.earlier.get(by, _NOTHING).succeeded)
