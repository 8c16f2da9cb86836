"""The one loop behind all executors: starts what is ready, waits for what runs, and records what it came to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final

from msgspec.structs import replace

from kubexm_exec.control import Deadline
from kubexm_exec.engine import entries, uncertain
from kubexm_exec.engine.attempt import NO_DEADLINE, ActionOutcome, Attempt
from kubexm_exec.engine.failures import cancelled, left_behind
from kubexm_exec.engine.fragments import extend, extend_again
from kubexm_exec.engine.ports import Done, MakeWorkers, Perform, Workers
from kubexm_exec.engine.results import RunRecord
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.timers import Timers
from kubexm_exec.engine.undo import CONNECTED_GRACE, Deeds
from kubexm_exec.engine.workers import Threads, never_raising
from kubexm_exec.engine.writeahead import WriteAhead
from kubexm_exec.model.events import ACTION_RETRY, ACTION_STARTED, GATE_PAUSE, GRAPH_EXTENDED, NODE_MOVED, RUN_STARTED
from kubexm_exec.model.graph import ExecutionNode, FailurePolicy, Hook
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, RunMode, Status
from kubexm_exec.scheduler import Action, Outcome, Scheduler

_SUCCESS: Final = Outcome(Status.SUCCESS)
_FIRST: Final = 1, 0.0, "", False
"""What is known of an action that has not been tried."""
_LOOK: Final = 0.5
"""Seconds of the longest wait: Python does not see a signal that comes just before one until that is over."""
_ABORT_GRACE: Final = 1.0
"""Seconds that process groups have to be killed when the run must end now."""


class Driver:
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

        What does not act neither retries nor pauses, and a failure stops nothing.
        """
        acts = mode is RunMode.ACT
        graph = runtime.graph if acts else replace(runtime.graph, failure_policy=FailurePolicy.CONTINUE)
        self._runtime = runtime
        self._perform = perform = never_raising(perform)
        self._name = name
        self._mode = mode
        self._forks = forks
        self._acts = acts
        self._events: SimpleQueue[Done | Callable[[], None] | None] = SimpleQueue()
        self._write_ahead: WriteAhead | None = None
        if acts and runtime.journal:
            # Without a journal nothing goes on: what runs is ended too, since nobody could say what it came to.
            self._write_ahead = WriteAhead(
                runtime.journal, runtime.bus, self._events.put,
                mask=runtime.redactor.mask, begin=self._begin_noted, lost=runtime.cancel.set,
            )  # fmt: skip
        self._emit = runtime.bus.emit if self._write_ahead is None else self._write_ahead.emit
        self._scheduler = Scheduler(graph, forks=forks or 1)
        self._record = RunRecord(runtime, name, mode, self._write_ahead)
        self._workers: Workers | None = workers(perform, self._events.put, forks) if forks else None
        self._running: dict[tuple[str, str], Attempt] = {}
        self._again: dict[tuple[str, str], tuple[int, float, str, bool]] = {}
        """Next attempt and first start of the actions that are tried again, what is not known of the last one, and
        whether one was at work when it failed."""
        self._prior = runtime.prior if acts else {}
        runtime.records.earlier = {action: known.earlier for action, known in self._prior.items()}
        self._pauses: set[Action] = set()
        self._timers = Timers()
        self._at = self._timers.at
        self._stopped = ""
        self._rollback_due = False
        """A failure asked for a rollback before somebody cancelled the run."""
        self._deeds = Deeds(runtime, self._prior) if graph.failure_policy is FailurePolicy.ROLLBACK else None
        """What was done; only kept if it may have to be undone."""

    @property
    def scheduler(self) -> Scheduler:
        """The state of every action."""
        return self._scheduler

    def run(self) -> GraphExecutionResult:
        """Walk the graph to its end."""
        runtime = self._runtime
        graph = runtime.graph
        removers = [token.on_set(self._wake) for token in (runtime.cancel, runtime.abort)]
        if self._workers is not None:
            runtime.later = self._later
        runtime.watch()
        try:
            self._emit(
                RUN_STARTED,
                graph=graph.name,
                executor=self._name,
                runMode=self._mode.value,
                forks=self._forks or 1,
                hosts=len({host for node in graph.steps() for host in node.hosts}),
                nodes=sum(1 for _ in graph.steps()),
                actions=graph.actions(),
            )
            self._loop()
            self._wait_for_journal()
            if self._deeds is not None and (self._stopped == "rollback" or self._rollback_due):
                self._record.result.not_reversible.extend(self._deeds.undo())
        except BaseException:
            # Nobody will wait for what still runs.
            runtime.cancel.set()
            runtime.abort.set()
            raise
        finally:
            for remove in removers:
                remove()
            if self._workers is not None:
                self._workers.close(wait=not self._running)
            runtime.close()
        result = self._record.end(self._scheduler.run_status() if self._scheduler.done else Status.CANCELLED)
        self._wait_for_journal()
        return result

    # The loop

    def _loop(self) -> None:
        scheduler, runtime = self._scheduler, self._runtime
        while True:
            if runtime.cancel.is_set():
                self._cancel()
                if runtime.abort.is_set():
                    return self._end_now()
            self._settle()
            ended = False
            for action in scheduler.ready():
                ended |= self._start(action)
            if scheduler.done and not ended:
                return None
            if self._write_ahead is not None:
                self._write_ahead.seal(len(self._running))
            # What has ended already may have made more ready: look at once.
            self._collect(wait=not ended)

    def _settle(self) -> None:
        """Record what the scheduler decided by itself."""
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
        for transition in self._scheduler.drain():
            if transition.host:
                self._again.pop((transition.node, transition.host), None)
            self._record.transition(transition)

    def _collect(self, *, wait: bool) -> None:
        """Take what threads report, and do what it is time for; ``wait`` until there is something."""
        events = self._events
        if wait and not events.qsize():
            if not self._running and not self._timers:
                raise RuntimeError(f"{self._scheduler.pending} actions are left, and none can start: a bug in kubexm")
            left = self._timers.left()
            if left is None or left > 0:
                with contextlib.suppress(Empty):
                    self._take(events.get(timeout=_LOOK if left is None else min(left, _LOOK)))
        for _ in range(events.qsize()):
            self._take(events.get())
        if self._timers:
            self._timers.run_due()

    def _take(self, event: Done | Callable[[], None] | None) -> None:
        if type(event) is tuple:
            self._finish(*event)
        elif callable(event):
            event()

    def _wake(self) -> None:
        self._events.put(None)

    def _later(self, seconds: float, what: Callable[[], None], /) -> None:
        """Called by other threads: only this one touches the timers."""
        self._events.put(lambda: self._at(seconds, what))

    # One action

    def _start(self, action: Action) -> bool:
        """Begin an action; True if it has ended already."""
        node = self._runtime.nodes[action.node]
        self._scheduler.start(action)
        if not action.host:
            return self._pause(action, node)
        known = self._prior.get(action)
        if known is not None:
            if known.outcome is not None:
                return self._replay(action, node, known.outcome)
            if known.doubt or known.worked:
                self._again.setdefault(action, (1, known.started if known.doubt else 0.0, known.doubt, known.worked))
        number, _, doubt, worked = self._again.get(action, _FIRST)
        always = node.hook is Hook.ALWAYS
        cancel = self._runtime.last if always else self._runtime.work
        timeout = node.policy.timeout
        deadline = NO_DEADLINE if timeout is None else Deadline.after(timeout)
        attempt = Attempt(node, action.host, number, cancel, deadline, time.time(), unsure=doubt, worked=worked)
        self._running[action] = attempt
        if self._write_ahead is not None:
            return self._start_noted(attempt, self._write_ahead)
        self._runtime.bus.tell(ACTION_STARTED, node.id, action.host, attempt.told())
        return self._begin((attempt,))

    def _begin(self, attempts: Sequence[Attempt]) -> bool:
        """Have attempts performed; True if they have ended already."""
        for attempt in attempts:
            attempt.begun = True
            if self._workers is None:
                self._finish(attempt, self._perform(attempt))
            elif (timeout := attempt.node.policy.timeout) is not None:
                self._at(timeout + self._runtime.options.grace, partial(self._overdue, attempt))
        if self._workers is not None:
            self._workers.submit(attempts, len(self._running))
        return self._workers is None

    def _start_noted(self, attempt: Attempt, write_ahead: WriteAhead) -> bool:
        """Begin an attempt as soon as the journal knows that it does."""
        if self._workers is not None:
            return write_ahead.start(attempt)
        write_ahead.note_start(attempt)
        self._wait_for_journal()
        self._runtime.bus.tell(ACTION_STARTED, attempt.node.id, attempt.host, attempt.told())
        self._begin_noted((attempt,))
        return True

    def _begin_noted(self, attempts: Sequence[Attempt]) -> None:
        """Begin attempts that the journal knows of, and that were told."""
        lost, stopping = self._write_ahead is None or self._write_ahead.error is not None, self._runtime.cancel.is_set()
        going: list[Attempt] = []
        for attempt in attempts:
            if stopping and self._running.get(Action(attempt.node.id, attempt.host)) is not attempt:
                continue  # the journal took so long that it was given up
            if lost or (stopping and attempt.node.hook is not Hook.ALWAYS):
                self._finish(attempt, ActionOutcome(cancelled(attempt)))
                continue
            if attempt.deadline.at is not None:
                attempt.begin()
            going.append(attempt)
        if going:
            self._begin(going)

    def _wait_for_journal(self) -> None:
        """Go on when all that was noted is durable, or never will be."""
        write_ahead = self._write_ahead
        while write_ahead is not None and write_ahead.outstanding:
            write_ahead.seal()
            if write_ahead.outstanding:
                self._take(self._events.get())

    def _replay(self, action: Action, node: ExecutionNode, outcome: ActionOutcome) -> bool:
        """An earlier session has done it: what followed from it follows again, and nothing is run."""
        if outcome.added:
            extend_again(self._runtime, self._scheduler, action, outcome)
            self._emit(GRAPH_EXTENDED, nodes=list(outcome.added), by=node.id)
        self._scheduler.finish(action, Outcome(outcome.result.status, outcome.result.reason))
        self._record.action(node, outcome, restored=True)
        return True

    def _pause(self, gate: Action, node: ExecutionNode) -> bool:
        if not self._acts or self._scheduler.stopped:
            self._scheduler.finish(gate, _SUCCESS)
            return True
        self._pauses.add(gate)
        self._emit(GATE_PAUSE, node.id, seconds=node.pause)
        self._at(node.pause, lambda: self._open(gate))
        return False

    def _open(self, gate: Action) -> None:
        if gate in self._pauses:
            self._pauses.remove(gate)
            self._scheduler.finish(gate, _SUCCESS)

    def _finish(self, attempt: Attempt, outcome: ActionOutcome) -> None:
        node = attempt.node
        action = Action(node.id, attempt.host)
        if self._running.get(action) is not attempt:
            return  # left behind long ago
        if self._runtime.cancel.is_set():
            # Before anything follows from it: what a cancel did to this one is no failed dependency of the others.
            self._cancel()
        del self._running[action]
        result = outcome.result
        first = self._again.pop(action, None)
        result.start_time = attempt.started if first is None or not first[1] else first[1]
        result.attempts = attempt.number
        if result.end_time is None:
            result.end_time = time.time()
        outcome.worked = attempt.working and result.status in (Status.FAILED, Status.CANCELLED)
        if self._deeds is not None:
            self._deeds.add(attempt, result)
        if result.status is Status.FAILED and not outcome.final and self._retries(attempt, result):
            self._retry(action, attempt, result)
            return
        if outcome.fragment and result.status is Status.SUCCESS:
            self._extend(action, node, outcome)
        status = result.status
        self._scheduler.finish(action, _SUCCESS if status is Status.SUCCESS else Outcome(status, result.reason))
        self._record.action(node, outcome)

    def _retries(self, attempt: Attempt, result: HostResult) -> bool:
        retry = attempt.node.policy.retry
        if (
            attempt.number >= retry.attempts
            or not self._acts
            or (result.kind or FailureKind.FAILED).value not in retry.on
        ):
            return False
        exempt = {"": True, "cancel": attempt.node.hook is Hook.ALWAYS}
        is_hook = attempt.node.hook in (Hook.ALWAYS, Hook.ON_FAILURE)
        # After a stop nothing is begun again, except by hooks that the stop does not concern.
        return exempt.get(self._scheduler.stopped, is_hook)

    def _retry(self, action: Action, attempt: Attempt, result: HostResult) -> None:
        retry = attempt.node.policy.retry
        delay = retry.wait(attempt.number)
        worked = attempt.working or attempt.worked
        self._again[action] = attempt.number + 1, result.start_time or attempt.started, attempt.unsure, worked
        self._scheduler.defer(action)
        if self._write_ahead is not None:
            self._write_ahead.note(entries.retry(attempt, result))
        self._emit(
            ACTION_RETRY,
            action.node,
            action.host,
            attempt=attempt.number,
            attempts=retry.attempts,
            delay=delay,
            message=result.message,
            kind=(result.kind or FailureKind.FAILED).value,
        )
        self._at(delay, lambda: self._resume(action))

    def _resume(self, action: Action) -> None:
        if action in self._again and action not in self._running:
            self._scheduler.resume(action)

    def _extend(self, action: Action, node: ExecutionNode, outcome: ActionOutcome) -> None:
        added = extend(self._runtime, self._scheduler, action, node, outcome)
        if added is not None:
            self._emit(GRAPH_EXTENDED, nodes=added, by=node.id)

    # Stopping

    def _cancel(self) -> None:
        if self._stopped == "cancel":
            return
        self._settle()
        self._rollback_due = self._stopped == "rollback"
        self._scheduler.stop("cancel")
        for attempt in self._running.values():
            if attempt.node.hook is not Hook.ALWAYS:
                self._give_grace(attempt)
        self._settle()

    def _give_grace(self, attempt: Attempt) -> None:
        self._at(self._runtime.options.grace, lambda: self._overdue(attempt, by_cancel=True))

    def _overdue(self, attempt: Attempt, *, by_cancel: bool = False, patient: bool = True) -> None:
        """An attempt should have come back by now; leave its thread behind and go on without it."""
        action = Action(attempt.node.id, attempt.host)
        if self._running.get(action) is not attempt or self._workers is None:
            return
        if not attempt.begun:
            self._finish(attempt, ActionOutcome(cancelled(attempt)))
            return
        if patient and attempt.connected:
            self._at(CONNECTED_GRACE, lambda: self._overdue(attempt, by_cancel=by_cancel, patient=False))
            return
        attempt.abandoned = True
        self._workers.abandon()
        outcome = ActionOutcome(left_behind(attempt, by_cancel=by_cancel))
        uncertain.left(attempt, outcome)
        self._finish(attempt, outcome)

    def _end_now(self) -> None:
        """Wait for what is being killed and go."""
        until = time.monotonic() + _ABORT_GRACE
        while self._running and (left := until - time.monotonic()) > 0:
            try:
                self._take(self._events.get(timeout=left))
            except Empty:
                break
        for attempt in list(self._running.values()):
            attempt.abandoned = True
            result = left_behind(attempt, by_cancel=True) if attempt.begun else cancelled(attempt)
            self._finish(attempt, ActionOutcome(result))
        self._settle()
