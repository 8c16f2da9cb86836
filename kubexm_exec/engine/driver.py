"""The driver behind all executors: runs actions in the scheduler's order, and records their outcomes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from kubexm_exec.control import Deadline
from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import NO_DEADLINE, ActionOutcome, Attempt
from kubexm_exec.engine.failures import cancelled
from kubexm_exec.engine.history import is_done
from kubexm_exec.engine.loop import Loop
from kubexm_exec.engine.notifications import Notifications
from kubexm_exec.engine.ports import MakeWorkers, Perform
from kubexm_exec.engine.results import RunRecord
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.undo import UndoLog
from kubexm_exec.engine.workers import Threads
from kubexm_exec.engine.writeahead import WriteAhead
from kubexm_exec.model.events import (
    ACTION_MOVED,
    ACTION_RETRY,
    ACTION_STARTED,
    GATE_PAUSE,
    GRAPH_EXTENDED,
    NODE_MOVED,
    Event,
)
from kubexm_exec.model.graph import ExecutionFragment, ExecutionNode, FailurePolicy
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, RunMode, SkipReason, Status
from kubexm_exec.scheduler import EXEMPT, Action, Outcome, Scheduler
from kubexm_spec.diagnostics import SpecError

_SUCCESS: Final = Outcome(Status.SUCCESS)
_UNCANCELLED: Final = EXEMPT["cancel"]
"""Hooks whose attempts go on after a cancel."""
_CUT_SHORT: Final = Status.FAILED, Status.CANCELLED
_FIRST: Final = 1, 0.0, "", False
"""The entry of ``_again`` for an action that has not been tried."""


class Driver(Loop):
    """Runs a graph to its end; executors differ in how they perform an attempt, and whether threads do it."""

    def __init__(
        self,
        runtime: Runtime,
        perform: Perform,
        *,
        name: str,
        forks: int | None,
        mode: RunMode = RunMode.ACT,
        workers: MakeWorkers = Threads,
    ) -> None:
        """``forks``: how many workers, or None to perform one at a time in the caller's thread, in graph order.

        A run that does not act neither retries nor pauses, and a failure does not stop it.
        """
        acts = mode is RunMode.ACT
        graph = runtime.graph if acts else replace(runtime.graph, failure_policy=FailurePolicy.CONTINUE)
        super().__init__(runtime, perform, forks, workers)
        self._forks = forks
        self._acts = acts
        self._write_ahead: WriteAhead | None = None
        if acts and runtime.journal:
            # A lost journal ends the run: outcomes could not be recorded.
            self._write_ahead = WriteAhead(
                runtime.journal, runtime.bus, self._events.put,
                mask=runtime.redactor.mask, begin=self._begin_noted, lost=runtime.cancel.set,
            )  # fmt: skip
        self._emit = runtime.bus.emit if self._write_ahead is None else self._write_ahead.emit
        self._notifications = Notifications(runtime.nodes, runtime.pending, runtime.run_id, mode)
        prior = runtime.prior if acts else {}
        owed = [action for action, known in prior.items() if known.owed]
        self._scheduler = Scheduler(
            graph, forks=forks or 1, due=self._notifications.due, late=self._notifications.late, owed=owed
        )
        self._record = RunRecord(runtime, name, mode, self._write_ahead)
        self._again: dict[tuple[str, str], tuple[int, float, str, bool]] = {}
        """Of actions that are tried again: the next attempt, the first start, why the outcome of the last attempt is
        unknown, and whether one got beyond precheck."""
        self._prior = prior
        runtime.records.earlier = {action: known.earlier for action, known in self._prior.items()}
        self._pauses: set[Action] = set()
        self._ran: set[Action] = set()
        """What this session did itself, if there were others."""
        self._unreachable: set[str] = set()
        """Places that could not be reached, so that others are tried first."""
        self._stopped = ""
        self._rollback_due = False
        """A failure required a rollback before the run was cancelled."""
        self._undo_log = (
            UndoLog(runtime, self._prior, workers) if graph.failure_policy is FailurePolicy.ROLLBACK else None
        )
        """What was done; kept only if it may have to be undone."""

    @property
    def scheduler(self) -> Scheduler:
        """The state of every action."""
        return self._scheduler

    def run(self) -> GraphExecutionResult:
        """Walk the graph to its end."""
        runtime = self._runtime
        runtime.watch()
        try:
            self._record.begin(self._forks or 1, **runtime.graph.size())
            self._loop()
            self._wait_for_journal()
            if self._undo_log is not None and (self._stopped == "rollback" or self._rollback_due):
                self._record.result.not_reversible.extend(self._undo_log.undo())
        except BaseException:
            # Nothing will wait for attempts that still run.
            runtime.cancel.set()
            runtime.abort.set()
            raise
        finally:
            self._close()
            runtime.close()
        result = self._record.end(self._scheduler.run_status() if self._scheduler.done else Status.CANCELLED)
        self._wait_for_journal()
        return result

    # What the loop calls

    def _start_ready(self) -> bool | None:
        scheduler = self._scheduler
        if self._runtime.cancel.is_set():
            self._cancel()
        self._settle()
        ended = False
        attempts: list[Attempt] = []
        for action in scheduler.ready():
            ended |= self._start(action, attempts)
        if attempts:
            run = self._runtime.run_id
            self._runtime.bus.tell_all(
                [Event(ACTION_STARTED, run, each.started, each.node.id, each.host, each.told()) for each in attempts]
            )
            ended |= self._begin(attempts)
        if scheduler.done and not ended:
            return None
        if self._write_ahead is not None:
            self._write_ahead.seal(len(self._running))
        return ended

    def _end_now(self) -> None:
        self._cancel()
        super()._end_now()
        self._settle()

    def _settle(self) -> None:
        """Record the scheduler's own decisions."""
        stopped = self._scheduler.stopped
        if stopped != self._stopped:
            self._stopped = stopped
            self._record.stopping(stopped)
            for gate in list(self._pauses):
                self._open(gate)
        for name, hosts in self._scheduler.moved():
            away = self._runtime.nodes[name].hosts
            self._runtime.move(name, hosts)
            self._emit(NODE_MOVED, name, "".join(hosts), hosts=list(hosts), instead_of=list(away))
        for action, place in self._scheduler.placed():
            self._set_place(action, place)
        for transition in self._scheduler.drain():
            if transition.host:
                self._again.pop((transition.node, transition.host), None)
            self._record.transition(transition)
        for action in self._scheduler.rescued():
            self._record.rescued(action)

    # One action

    def _start(self, action: Action, attempts: list[Attempt]) -> bool:
        """Start an action; True if it has ended already. One that is to begin is added to the attempts."""
        node = self._runtime.nodes[action.node]
        self._scheduler.start(action)
        if not action.host:
            return self._pause(action, node)
        known = self._prior.get(action) if self._prior else None
        if known is not None:
            # A handler that was done is due again, or it would not have been offered.
            if known.outcome is not None and not (node.handler and is_done(known.outcome.result)):
                return self._replay(action, node, known.outcome)
            if known.doubt or known.worked:
                doubt = "" if known.follows and self._scheduler.has_reason(action) else known.doubt
                worked = known.worked or doubt != known.doubt
                self._again.setdefault(action, (1, known.started if doubt else 0.0, doubt, worked))
        number, _, doubt, worked = self._again.get(action, _FIRST)
        if node.choices and not doubt and not worked and node.place(action.host) in self._unreachable:
            place = self._other_place(action)
            if place:
                if self._scheduler.move(action, place):
                    self._set_place(action, place)
                return True
        cancel = self._runtime.last if node.hook in _UNCANCELLED else self._runtime.work
        timeout = node.policy.timeout
        deadline = NO_DEADLINE if timeout is None else Deadline.after(timeout)
        attempt = Attempt(node, action.host, number, cancel, deadline, time.time(), unsure=doubt, worked=worked)
        if node.notifies:
            attempt.notifies = self._notifications.of(node, action.host)
        if node.handler:
            attempt.since = self._notifications.since(node.handler, action.host)
            attempt.only_if = self._notifications.doubt(self._scheduler.serving(action), action.host)
        self._running[attempt] = action
        if self._write_ahead is not None:
            return self._start_noted(attempt, self._write_ahead)
        attempts.append(attempt)
        return False

    def _start_noted(self, attempt: Attempt, write_ahead: WriteAhead) -> bool:
        """Begin an attempt as soon as its start is in the journal."""
        if self._workers is not None:
            return write_ahead.start(attempt)
        write_ahead.note_start(attempt)
        self._wait_for_journal()
        self._runtime.bus.tell(ACTION_STARTED, attempt.node.id, attempt.host, attempt.told())
        self._begin_noted((attempt,))
        return True

    def _begin_noted(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts whose start is in the journal or being written there."""
        lost, stopping = self._write_ahead is None or self._write_ahead.error is not None, self._runtime.cancel.is_set()
        going: list[Attempt] = []
        for attempt in attempts:
            if stopping and attempt not in self._running:
                continue  # it was given up while the journal was written
            if lost or (stopping and attempt.node.hook not in _UNCANCELLED):
                self._finish(attempt, ActionOutcome(cancelled(attempt)))
                continue
            if attempt.deadline.at is not None:
                attempt.begin()
            going.append(attempt)
        if going:
            self._begin(going)

    def _wait_for_journal(self) -> None:
        """Wait until all entries are durable, or the journal is lost."""
        write_ahead = self._write_ahead
        while write_ahead is not None and write_ahead.outstanding:
            write_ahead.seal()
            if write_ahead.outstanding:
                self._take(self._events.get())

    def _replay(self, action: Action, node: ExecutionNode, outcome: ActionOutcome) -> bool:
        """Restore the outcome of an earlier session, with the fragment exactly as it was compiled then."""
        if outcome.added:
            self._scheduler.extend(action, ExecutionFragment.of(outcome.added))
            self._runtime.add_nodes(outcome.added)
            self._emit(GRAPH_EXTENDED, nodes=[each.to_json() for each in outcome.added], by=node.id)
        result = outcome.result
        # Its own place in the graph is where its handlers become due, also for what it did in an earlier session.
        handlers = self._notifications.awaiting(action) if node.notifies and is_done(result) else ()
        # It has not begun in this session: what is owed to it is known.
        self._scheduler.finish(
            action,
            Outcome(
                result.status, result.reason, bool(handlers), handlers=handlers, begun=False, unknown=result.unknown
            ),
        )
        self._record.action(node, outcome, restored=True)
        return True

    def _pause(self, gate: Action, node: ExecutionNode) -> bool:
        seconds = self._pause_left(node) if self._acts and not self._scheduler.stopped else 0.0
        if seconds <= 0:
            self._scheduler.finish(gate, _SUCCESS)
            return True
        self._pauses.add(gate)
        self._emit(GATE_PAUSE, node.id, seconds=seconds)
        self._at(seconds, lambda: self._open(gate))
        return False

    def _pause_left(self, node: ExecutionNode) -> float:
        """Seconds to pause: if earlier sessions did all before the gate, what is left since the last of it ended."""
        ended: list[float] = []
        for dependency in node.dependencies if self._prior else ():
            for host in dependency.hosts or self._runtime.nodes[dependency.node].hosts:
                known = self._prior.get(Action(dependency.node, host))
                if known is not None and known.outcome is not None:
                    ended.append(known.outcome.result.end_time or 0.0)
                elif (dependency.node, host) in self._ran:
                    return node.pause
        # The clock of another machine may be wrong.
        return min(node.pause, max(ended) + node.pause - time.time()) if ended else node.pause

    def _open(self, gate: Action) -> None:
        if gate in self._pauses:
            self._pauses.remove(gate)
            self._scheduler.finish(gate, _SUCCESS)

    def _finish(self, attempt: Attempt, outcome: ActionOutcome) -> None:
        action = self._running.pop(attempt, None)
        if action is None:
            return  # it was given up before
        if self._runtime.cancel.is_set():
            # First: an attempt that a cancel ended is not a failed dependency of others.
            self._cancel()
        if self._write_ahead is not None:
            self._write_ahead.learn(attempt)
        node, result = attempt.node, outcome.result
        first = self._again.pop(action, None) if self._again else None
        result.start_time = attempt.started if first is None or not first[1] else first[1]
        result.attempts = attempt.number
        if result.end_time is None:
            result.end_time = time.time()
        if self._undo_log is not None:
            self._undo_log.add(attempt, result)
        if result.status is not Status.SUCCESS:
            outcome.worked = attempt.may_have_changed and result.status in _CUT_SHORT
            if self._goes_on(action, attempt, outcome):
                return
        elif outcome.fragment or outcome.items:
            self._extend(action, node, outcome)
        status = result.status
        if self._prior and result.reason is not SkipReason.CONDITION:
            self._ran.add(action)
        notifies = bool(attempt.notifies) and self._notifications.made_by(node, result)
        if notifies or (attempt.notifies and self._is_to_settle(action, attempt)):
            outcome.notifies = attempt.notifies
        if node.handler and is_done(result):
            outcome.handler, outcome.served = node.handler, self._scheduler.serving(action)
        ended = _SUCCESS
        if status is not Status.SUCCESS or notifies:
            ended = Outcome(
                status, result.reason, notifies, attempt.working or status is Status.SKIPPED, unknown=result.unknown
            )
        self._scheduler.finish(action, ended)
        self._record.action(node, outcome)

    def _goes_on(self, action: Action, attempt: Attempt, outcome: ActionOutcome) -> bool:
        """Whether an action that has not succeeded is done elsewhere, or is tried again."""
        result = outcome.result
        if (
            result.kind is FailureKind.UNREACHABLE
            and attempt.node.choices
            and not (attempt.working or attempt.worked or attempt.unsure)
        ):
            self._unreachable.add(attempt.place)
            place = self._other_place(action)
            if place:
                self._go_on_at(place, action, attempt, result)
                return True
            others = [each for each in self._scheduler.places(action) if each != attempt.place]
            result.message += f"; neither could {', '.join(others)}" if others else ""
        if result.status is Status.FAILED and not outcome.final and self._retries(attempt, outcome):
            self._retry(action, attempt, result)
            return True
        return False

    def _is_to_settle(self, action: Action, attempt: Attempt) -> bool:
        """Whether the journal may say that the action possibly notifies its handlers."""
        return attempt.working or attempt.worked or self._notifications.awaits(action)

    def _other_place(self, action: Action) -> str:
        """The next place for an action that cannot be done where it should be; empty if there is none."""
        return next((place for place in self._scheduler.places(action) if place not in self._unreachable), "")

    def _set_place(self, action: Action, place: str, message: str = "") -> None:
        before = self._runtime.set_place(action.node, action.host, place)
        self._emit(ACTION_MOVED, action.node, action.host, place=place, instead_of=before, message=message)

    def _go_on_at(self, place: str, action: Action, attempt: Attempt, result: HostResult) -> None:
        """Nothing was done at a place that could not be reached: have it done at another one."""
        self._again[action] = attempt.number, result.start_time or attempt.started, "", False
        if self._write_ahead is not None:
            self._write_ahead.note(entries.retry(attempt, result, place))
        if self._scheduler.move(action, place):
            self._set_place(action, place, result.message)

    def _retries(self, attempt: Attempt, outcome: ActionOutcome) -> bool:
        retry = attempt.node.policy.retry
        return (
            self._acts
            and attempt.number < retry.attempts
            and (outcome.not_yet or (outcome.result.kind or FailureKind.FAILED) in retry.on)
            and attempt.node.hook in EXEMPT[self._scheduler.stopped]
        )

    def _retry(self, action: Action, attempt: Attempt, result: HostResult) -> None:
        retry = attempt.node.policy.retry
        delay = retry.wait(attempt.number)
        worked = attempt.may_have_changed or attempt.worked
        self._again[action] = attempt.number + 1, result.start_time or attempt.started, attempt.unsure, worked
        self._scheduler.defer(action, begun=attempt.working)
        # All of its places are worth another try by then.
        self._unreachable.difference_update(attempt.node.places_for(action.host))
        if self._write_ahead is not None:
            self._write_ahead.note(entries.retry(attempt, result))
        self._emit(
            ACTION_RETRY, action.node, action.host, attempt=attempt.number, attempts=retry.attempts, delay=delay,
            message=result.message, kind=(result.kind or FailureKind.FAILED).value,
        )  # fmt: skip
        self._at(delay, lambda: self._resume(action))

    def _resume(self, action: Action) -> None:
        if action in self._again and action not in self._running.values():
            self._scheduler.resume(action)

    def _extend(self, action: Action, node: ExecutionNode, outcome: ActionOutcome) -> None:
        """Add the steps that an action returned to the graph; if that is not possible, the action has failed."""
        runtime, result = self._runtime, outcome.result
        try:
            if node.handler:
                # It would count as served before its steps have run.
                raise ValueError("a handler cannot return steps")
            if outcome.items:
                fragment = self._item_nodes(action, node, outcome)
            elif runtime.compile_fragment is None:
                raise ValueError("this run cannot be extended")
            else:
                fragment = runtime.compile_fragment(runtime.graph, node, action.host, outcome.fragment)
            self._scheduler.extend(action, fragment)
        except (ValueError, SpecError) as error:
            result.status, result.kind, result.ignored = Status.FAILED, FailureKind.FAILED, node.policy.ignore_errors
            what = "items" if outcome.items else "returned steps"
            result.message = f"the {what} cannot be run: {runtime.redactor.mask(str(error))}"
            result.hint = "check the names and references in the returned steps"
            if outcome.items:
                result.hint = "give `forEach` a `key` that tells the items of different hosts apart"
            return
        outcome.added = fragment.nodes
        written = [each.to_json() for each in fragment.nodes]
        if runtime.redactor.mask(written) != written:
            # Secrets are never recorded; without its nodes the action cannot count as done later.
            outcome.added, outcome.forgotten = (), True
        told = []
        for added in runtime.add_nodes(fragment.nodes):
            told.append(added.to_json())
            if added.sensitive or node.sensitive:
                told[-1]["with"] = {}
                told[-1].pop("item", None)
        self._emit(GRAPH_EXTENDED, nodes=told, by=node.id)

    def _item_nodes(self, action: Action, node: ExecutionNode, outcome: ActionOutcome) -> ExecutionFragment:
        """The nodes of a loop's items; an item that others have by the same key must be the same."""
        fragment = ExecutionFragment.of_items(node, action.host, outcome.items)
        for each in fragment.nodes:
            known = self._runtime.nodes.get(each.id)
            if known is not None and known.item != each.item:
                raise ValueError(f"{each.id} is not the same on {known.hosts[0]} and {action.host}")
        return fragment

    # Stopping

    def _cancel(self) -> None:
        if self._stopped == "cancel":
            return
        self._settle()
        self._rollback_due = self._stopped == "rollback"
        self._scheduler.stop("cancel")
        for attempt in self._running:
            if attempt.node.hook not in _UNCANCELLED:
                self._at(self._runtime.options.grace, partial(self._overdue, attempt, by_cancel=True))
        self._settle()
