"""Undoes what a run has done, each action after all that depended on it; what cannot be undone is named."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext, lasting
from kubexm_exec.engine.failures import caused_by, failed
from kubexm_exec.engine.lifecycle import Lifecycle
from kubexm_exec.engine.loop import Loop
from kubexm_exec.engine.ports import JournalError, MakeWorkers
from kubexm_exec.engine.prior import Known
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.sensitive import masker
from kubexm_exec.engine.undograph import reversed_graph
from kubexm_exec.engine.workers import Threads
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.events import ACTION_UNDONE
from kubexm_exec.model.graph import ExecutionNode
from kubexm_exec.model.result import ForecastState, HostResult, Status
from kubexm_exec.scheduler import Action, Outcome, Scheduler
from kubexm_exec.step import AnyStep, Undo

UNDONE: Final = "undone"
FAILED: Final = "undoFailed"
LEFT: Final = "leftAlone"
"""Somebody else changed it since the run."""
NOT_REVERSIBLE: Final = "notReversible"
NOTHING: Final = "nothing"
"""It had failed before it changed anything; that is written down, and nobody is told."""
_DONE: Final = Outcome(Status.SUCCESS)
_ENDED: Final = "the run was ended while it was being undone"
_NOT_BEGUN: Final = "the run was ended before it could be undone"
_DOUBT: Final = (
    "its undo broke off before, and nobody knows how far it came; look on the host, then use --undone NODE if it was "
    "undone, or --again NODE to have it undone once more"
)


class Saved(Struct):
    """An action that did something, with those of its attempts that saved what an undo needs, in order."""

    node: ExecutionNode
    host: str
    result: HostResult | None = None
    attempts: list[Attempt] = field(default_factory=list)
    doubt: bool = False
    """Its undo was begun before, and nobody knows how far it came."""
    remaining: list[Attempt] = field(default_factory=list)
    """What is still to be undone, the last one first."""
    undos: list[HostResult] = field(default_factory=list)
    """What was undone already: ``undo`` is a state of this module."""
    begun: bool = False
    """The journal knows that its undo was begun."""


def earlier(node: ExecutionNode, host: str, undo: Iterable[entries.Undo], runtime: Runtime) -> list[Attempt]:
    """The attempts of earlier sessions, as far as an undo needs them.

    What they did they did with the parameters and as the user of that time, and the spec may have changed since.
    """
    found = []
    for number, entry in enumerate(undo, 1):
        places = {host: entry.place} if entry.place else {}
        of = replace(node, step_name=entry.step or node.step_name, become=entry.become, places=places)
        found.append(Attempt(of, host, number, runtime.last, params=entry.params, undo=entry.data))
    return found


class UndoLog:
    """What a run has done, in the order it finished, as far as an undo needs it; earlier sessions come first."""

    def __init__(self, runtime: Runtime, prior: Mapping[Action, Known], workers: MakeWorkers) -> None:
        self._runtime = runtime
        self._workers = workers
        self._saved: dict[Action, Saved] = {}
        self._added: dict[str, ExecutionNode] = {}
        """The nodes of fragments that earlier steps returned; this session may not have come so far."""
        for known in prior.values():
            if known.outcome is not None and known.outcome.added:
                self._added.update((node.id, node) for node in known.outcome.added)
        for action, known in prior.items():
            self._add_earlier(action, known)

    def _add_earlier(self, action: Action, known: Known) -> None:
        result = None if known.outcome is None else known.outcome.result
        node = self._runtime.nodes.get(action.node) or self._added.get(action.node)
        if node is not None and (known.undo or (result is not None and result.changed)):
            attempts = earlier(node, action.host, known.undo, self._runtime)
            self._saved[action] = Saved(node, action.host, result, attempts, known.undoing)

    def add(self, attempt: Attempt, result: HostResult) -> None:
        """An attempt has ended."""
        action = Action(attempt.node.id, attempt.host)
        well = result.status is Status.SUCCESS
        # What succeeded without a change has nothing to undo, whatever it saved before it knew.
        undoes = attempt.undo is not None and not (well and not result.changed)
        if not undoes and not result.changed and action not in self._saved:
            return
        # Taken out and put in again: the order is that of the last finish.
        saved = self._saved.pop(action, None) or Saved(attempt.node, attempt.host)
        saved.result = result
        saved.doubt = saved.doubt and not attempt.working and not well
        if undoes:
            saved.attempts.append(attempt)
        self._saved[action] = saved

    def undo(self) -> list[str]:
        """Undo all of it; gives what cannot be undone."""
        return undo_all(self._runtime, list(self._saved.values()), self._workers)


def undo_all(runtime: Runtime, saved: Sequence[Saved], workers: MakeWorkers = Threads) -> list[str]:
    """Undo the actions, given in the order they finished; gives what cannot be undone.

    On a host the last one comes first, and none before all that depended on it on any host; hosts are undone side by
    side. A failure of one does not stop the others. The cancel of a run does not end it, only its abort does.
    """
    cannot = [action for action in reversed(saved) if not action.attempts]
    for action in cannot:
        _tell(runtime, action, NOT_REVERSIBLE, "")
    _Undo(runtime, [action for action in saved if action.attempts], workers).run()
    return [f"{action.node.id} on {action.node.where(action.host)}" for action in cannot]


class _Undo(Loop):
    """Walks the graph backwards."""

    def __init__(self, runtime: Runtime, saved: Sequence[Saved], workers: MakeWorkers) -> None:
        self._forks = max(1, runtime.options.forks)
        super().__init__(runtime, self._roll_back, self._forks, workers)
        self._wanted = {Action(action.node.id, action.host): action for action in saved}
        # In one session every edge leads from what finished earlier to what finished later, those of the graph as those
        # between the actions of a host: so that nothing waits for itself. Over several sessions something may have been
        # done again after what depended on it, or the spec have changed: then what was done last is undone first.
        self._at_place: dict[str, list[Action]] = {}
        for key, action in self._wanted.items():
            self._at_place.setdefault(_place(action), []).append(key)
        self._scheduler: Scheduler | None
        try:
            self._scheduler = Scheduler(reversed_graph(runtime.graph), forks=sys.maxsize)
        except ValueError:
            # A fragment whose gates span hosts of several batches, or graphs of several sessions: turned round they
            # wait for each other. One after another, the last one first, is always right.
            self._scheduler = None
        self._ready: set[Action] = set()
        self._offered: set[Action] = set()

    def run(self) -> None:
        """Undo everything."""
        try:
            self._loop()
        finally:
            self._close()

    # What the loop asks

    def _start_ready(self) -> bool | None:
        if not self._wanted:
            return None
        self._look()
        ended = False
        for key in self._next():
            action = self._wanted[key]
            try:
                action.remaining = merged(self._runtime, action.attempts)
            except Exception as error:  # noqa: BLE001  a step type that is gone or broken: the others are undone
                self._end(key, FAILED, failed(action.attempts[-1], error).message)
                ended = True
            else:
                self._undo_next(key, action)
        return ended

    def _undo_next(self, key: Action, action: Saved) -> None:
        self._running[key] = again = _again(self._runtime, action.remaining.pop())
        self._begin((again,))

    def _finish(self, attempt: Attempt, outcome: ActionOutcome) -> None:
        key, result = Action(attempt.node.id, attempt.host), outcome.result
        if self._running.get(key) is not attempt:
            return  # left behind long ago
        action = self._wanted[key]
        if not result.undo:  # it did not come back
            result.undo, result.message = FAILED, _ENDED if result.status is Status.CANCELLED else result.message
        action.undos.append(result)
        if action.remaining and not outcome.final:
            if not self._runtime.abort.is_set():
                self._undo_next(key, action)
                return
            action.undos.append(_outcome(attempt, FAILED, _NOT_BEGUN).result)
        del self._running[key]
        self._end(key, *_sum_up(action))

    def _end(self, key: Action, state: str, message: str) -> None:
        action = self._wanted.pop(key)
        _tell(self._runtime, action, state, message)
        self._at_place[_place(action)].pop()
        if self._scheduler is not None and key in self._offered:
            self._scheduler.finish(key, _DONE)

    def _end_now(self) -> None:
        super()._end_now()
        for key in reversed(list(self._wanted)):
            self._end(key, FAILED, _NOT_BEGUN)

    def _look(self) -> None:
        """See what nothing waits for any more; where there is nothing to undo, that is done at once."""
        going, scheduler = True, self._scheduler
        while going and scheduler is not None:
            going = False
            for key in scheduler.ready():
                scheduler.start(key)
                if key in self._wanted:
                    self._ready.add(key)
                    self._offered.add(key)
                else:
                    scheduler.finish(key, _DONE)
                    going = True

    def _next(self) -> list[Action]:
        """What may begin now: at each place the last that was done, if all that depended on it is undone."""
        found = [keys[-1] for keys in self._at_place.values() if keys and keys[-1] in self._ready]
        if not found and not self._running:
            found = [next(reversed(self._wanted))]
        found = found[: self._forks - len(self._running)]
        self._ready.difference_update(found)
        return found

    # In a worker's thread

    def _roll_back(self, attempt: Attempt) -> ActionOutcome:
        """Undo what an attempt did."""
        runtime = self._runtime
        action = self._wanted[Action(attempt.node.id, attempt.host)]
        if action.doubt and not action.undos and (settled := self._doubted(attempt, action)):
            return settled
        ctx = ActionContext(runtime, attempt)
        hide = masker(attempt, runtime.redactor)
        try:
            step, undo = _step(runtime, attempt), attempt.undo or {}
            standing = step.standing(ctx, undo)
            if standing.before:
                return _outcome(attempt, NOTHING)
            if standing.changed and not runtime.options.overwrite:
                names = ", ".join(map(hide, standing.changed))
                said = f"changed since by somebody else: {names} (--overwrite undoes it all the same)"
                return _outcome(attempt, LEFT, said)
            if runtime.journal is not None and not action.begun:
                runtime.journal.write(entries.Undoing(attempt.node.id, attempt.host))
            action.begun = True
            step.rollback(ctx, undo)
            if standing.changed or standing.unknown:
                # What was not as the run had left it may not be what the step's undo is made for.
                still = self._look_again(attempt, undo)
                if still:
                    return _outcome(attempt, FAILED, f"it is still not as it was: {', '.join(map(hide, still))}")
        except JournalError as error:
            return _outcome(attempt, FAILED, f"not begun: {error.what}")
        except BaseException as error:  # noqa: BLE001  whatever a rollback raises, the others are undone
            if runtime.last.is_set() and caused_by(error, CommandCancelled):
                return _outcome(attempt, FAILED, _ENDED)
            result = failed(attempt, error)
            if result.traceback:
                runtime.logger(node=attempt.node.id, host=attempt.host).error(
                    "the undo broke", error=hide(result.message), traceback=hide(result.traceback)
                )
            return _outcome(attempt, FAILED, hide(result.message) or type(error).__name__)
        finally:
            ctx.close()
        why = standing.unknown
        return _outcome(attempt, UNDONE, f"whether somebody else changed it since is not known: {why}" if why else "")

    def _doubted(self, attempt: Attempt, action: Saved) -> ActionOutcome | None:
        """What is said of an action whose undo broke off before, if it must not be undone once more."""
        if repeats(self._runtime, action.attempts):
            return None
        still = stands(self._runtime, attempt)
        if still:
            return None
        outcome = _outcome(attempt, FAILED, _DOUBT) if still is None else _outcome(attempt, UNDONE)
        outcome.final = True
        return outcome

    def _look_again(self, attempt: Attempt, undo: Mapping[str, Any]) -> Sequence[str]:
        """What is neither as before the run nor as the run left it, now that it was undone."""
        ctx = ActionContext(self._runtime, attempt)
        try:
            return _step(self._runtime, attempt).standing(ctx, undo).changed
        finally:
            ctx.close()


def _place(action: Saved) -> str:
    """The host on which it was done, and will be undone."""
    return action.attempts[-1].place


def _outcome(attempt: Attempt, state: str, message: str = "") -> ActionOutcome:
    return ActionOutcome(HostResult(host_name=attempt.host, status=Status.SUCCESS, undo=state, message=message))


def _sum_up(action: Saved) -> tuple[str, str]:
    """What the undos of all its attempts come to: a state, and what is said."""
    for state in (FAILED, LEFT, UNDONE):
        said = [undo.message for undo in action.undos if undo.undo == state]
        if said:
            return state, "; ".join(filter(None, said))
    done_well = action.result is not None and action.result.status is Status.SUCCESS
    return (UNDONE, "it was as before already") if done_well else (NOTHING, "")


def merged(runtime: Runtime, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Attempts that did the same work as one, each with what all of them saved.

    Those that were given other parameters, because the spec has changed in between, did other work.
    """
    found: list[Attempt] = []
    last: Any = None
    for attempt in attempts:
        node = attempt.node
        work = node.step_name, node.become, attempt.place, lasting(runtime, attempt)
        if found and work == last:
            undo = _kind(runtime, attempt).merge_undo(found[-1].undo or {}, attempt.undo or {})
            found[-1] = again = _again(runtime, attempt)
            again.undo = undo
        else:
            found.append(attempt)
        last = work
    return found


def _tell(runtime: Runtime, action: Saved, state: str, message: str) -> None:
    message = runtime.redactor.mask(message)
    if action.result is not None and state != NOTHING:
        action.result.undo = f"{state}: {message}" if message else state
    # Nothing was done about what is in doubt, and so it stays.
    if runtime.journal is not None and runtime.journal.error is None and message != _DOUBT:
        said = entries.Undone(action.node.id, action.host, state, message)
        # The recorder remembers what is wrong, and nothing more is begun; it is told at the end of the run.
        with contextlib.suppress(JournalError):
            runtime.journal.write(said)
    if state != NOTHING:
        runtime.bus.emit(ACTION_UNDONE, action.node.id, action.host, result=state, message=message)


def _again(runtime: Runtime, attempt: Attempt) -> Attempt:
    """The same attempt, for another time."""
    again = Attempt(
        attempt.node, attempt.host, attempt.number, runtime.last,
        params=attempt.params, rendered=attempt.rendered, used=attempt.used, undo=attempt.undo,
    )  # fmt: skip
    again.begin()
    return again


def repeats(runtime: Runtime, attempts: Iterable[Attempt]) -> bool:
    """Whether what attempts did may be undone once more, if nobody knows how far an undo of it came."""
    return all(_kind(runtime, attempt).undo is not Undo.ONCE for attempt in attempts)


def stands(runtime: Runtime, attempt: Attempt) -> bool | None:
    """Whether what an attempt did is still there; None if its precheck cannot tell."""
    attempt = _again(runtime, attempt)
    ctx = ActionContext(runtime, attempt)
    try:
        forecast = Lifecycle(runtime).forecast(_step(runtime, attempt), ctx)
    except Exception as error:  # noqa: BLE001  a host that cannot be asked cannot tell
        log = runtime.logger(node=attempt.node.id, host=attempt.host)
        log.warning("cannot tell whether it was undone", error=runtime.redactor.mask(str(error)))
        return None
    finally:
        ctx.close()
    return forecast.state is ForecastState.SATISFIED if forecast.decides else None


def _kind(runtime: Runtime, attempt: Attempt) -> type[AnyStep]:
    kind: type[AnyStep] = runtime.steps.load(attempt.node.step_name)
    return kind


def _step(runtime: Runtime, attempt: Attempt) -> AnyStep:
    if attempt.used is None:
        # It was done by an earlier session: if its parameters were not kept, they are made once more.
        return Lifecycle(runtime).step(attempt)
    return _kind(runtime, attempt)(attempt.used)
