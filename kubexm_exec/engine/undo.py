"""Undoes what a run has done, each action after all that depended on it; reports what cannot be undone."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.context import ActionContext, lasting
from kubexm_exec.engine.failures import caused_by, failed
from kubexm_exec.engine.history import Known
from kubexm_exec.engine.lifecycle import Lifecycle
from kubexm_exec.engine.loop import Loop
from kubexm_exec.engine.ports import JournalError, MakeWorkers
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.sensitive import masker
from kubexm_exec.engine.workers import Threads
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.events import ACTION_UNDONE
from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, FailurePolicy, On, returned_by
from kubexm_exec.model.result import ForecastState, HostResult, Status
from kubexm_exec.plugins import RegistryError
from kubexm_exec.scheduler import Action, Outcome, Scheduler
from kubexm_exec.step import AnyStep, Undo

UNDONE: Final = "undone"
FAILED: Final = "undoFailed"
LEFT: Final = "leftAlone"
"""Somebody else has changed it since the run."""
NOT_REVERSIBLE: Final = "notReversible"
NOTHING: Final = "nothing"
"""It had failed before it changed anything; recorded, but not reported."""
_DONE: Final = Outcome(Status.SUCCESS)
_NO_LIMIT: Final = 1 << 30
INTERRUPTED: Final = "its undo was interrupted before, and the outcome is unknown"
_ENDED: Final = "the run was ended while it was being undone"
_NOT_BEGUN: Final = "the run was ended before it could be undone"
_DOUBT: Final = (
    f"{INTERRUPTED}; check the host, then use --undone NODE if it was undone, or --again NODE to have it undone once "
    "more"
)


class Saved(Struct):
    """An action that did something, with those of its attempts that saved data for an undo, in order."""

    node: ExecutionNode
    host: str
    result: HostResult | None = None
    attempts: list[Attempt] = field(default_factory=list)
    doubt: bool = False
    """An earlier undo of it was interrupted."""
    remaining: list[Attempt] = field(default_factory=list)
    """The attempts that are still to be undone; the last one is next."""
    undos: list[HostResult] = field(default_factory=list)
    """The results so far: their ``undo`` is a state of this module."""
    begun: bool = False
    """The journal has the start of its undo."""


def earlier(node: ExecutionNode, host: str, undo: Iterable[entries.Undo], runtime: Runtime) -> list[Attempt]:
    """The attempts of earlier sessions, with the parameters and the user of that time: the spec may have changed."""
    found = []
    for number, entry in enumerate(undo, 1):
        places = {host: entry.place} if entry.place else {}
        of = replace(node, step_name=entry.step or node.step_name, become=entry.become, places=places)
        found.append(Attempt(of, host, number, runtime.last, params=entry.params, undo=entry.data))
    return found


class UndoLog:
    """What a run has done and an undo needs, in the order it finished; earlier sessions come first."""

    def __init__(self, runtime: Runtime, prior: Mapping[Action, Known], workers: MakeWorkers) -> None:
        self._runtime = runtime
        self._workers = workers
        self._saved: dict[Action, Saved] = {}
        self._added: dict[str, ExecutionNode] = {}
        """The nodes of fragments of earlier sessions; this one may not have added them yet."""
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
        # A success without a change has nothing to undo, whatever it saved before.
        undoes = attempt.undo is not None and not (well and not result.changed)
        if not undoes and not result.changed and action not in self._saved:
            return
        # Removed and added again: the order is that of the last finish.
        saved = self._saved.pop(action, None) or Saved(attempt.node, attempt.host)
        saved.result = result
        saved.doubt = saved.doubt and not attempt.working and not well
        if undoes:
            saved.attempts.append(attempt)
        self._saved[action] = saved

    def undo(self) -> list[str]:
        """Undo all of it; returns what cannot be undone."""
        return undo_all(self._runtime, list(self._saved.values()), self._workers)


def undo_all(runtime: Runtime, saved: Sequence[Saved], workers: MakeWorkers = Threads) -> list[str]:
    """Undo the actions, given in the order they finished; returns what cannot be undone.

    On a host the last one comes first, and none before all that depended on it on any host; hosts are undone in
    parallel. A failure of one does not stop the others. A cancel of the run does not end it, only an abort does.
    """
    cannot = [action for action in reversed(saved) if not action.attempts]
    for action in cannot:
        _tell(runtime, action, NOT_REVERSIBLE, "")
    _Undo(runtime, [action for action in saved if action.attempts], workers).run()
    return [f"{action.node.id} on {action.node.where(action.host)}" for action in cannot]


class _Undo(Loop):
    def __init__(self, runtime: Runtime, saved: Sequence[Saved], workers: MakeWorkers) -> None:
        self._forks = max(1, runtime.options.forks)
        super().__init__(runtime, self._roll_back, self._forks, workers)
        self._wanted = {Action(action.node.id, action.host): action for action in saved}
        # In one session every edge leads from what finished earlier to what finished later, so that there is no cycle.
        # Over several sessions an action may have been repeated after its dependents, or the spec may have changed:
        # then what was done last is undone first.
        self._at_place: dict[str, list[Action]] = {}
        for key, action in self._wanted.items():
            self._at_place.setdefault(_place(action), []).append(key)
        self._scheduler: Scheduler | None
        try:
            self._scheduler = Scheduler(_reversed(runtime.graph), forks=sys.maxsize)
        except ValueError:
            # A fragment whose gates span several batches, or the graphs of several sessions, can have a cycle when
            # reversed. One after another, the last one first, is always right.
            self._scheduler = None
        self._ready: set[Action] = set()
        self._offered: set[Action] = set()

    def run(self) -> None:
        try:
            self._loop()
        finally:
            self._close()

    # What the loop calls

    def _start_ready(self) -> bool | None:
        if not self._wanted:
            return None
        self._look()
        ended = False
        for key in self._next():
            action = self._wanted[key]
            try:
                action.remaining = merged(self._runtime, action.attempts)
            except Exception as error:  # noqa: BLE001  a step type that is missing or broken: the others are undone
                self._end(key, FAILED, failed(action.attempts[-1], error).message)
                ended = True
            else:
                self._undo_next(key, action)
        return ended

    def _undo_next(self, key: Action, action: Saved) -> None:
        again = _again(self._runtime, action.remaining.pop())
        self._running[again] = key
        self._begin((again,))

    def _finish(self, attempt: Attempt, outcome: ActionOutcome) -> None:
        key, result = self._running.pop(attempt, None), outcome.result
        if key is None:
            return  # it was given up before
        action = self._wanted[key]
        if not result.undo:  # it did not return
            result.undo, result.message = FAILED, _ENDED if result.status is Status.CANCELLED else result.message
        action.undos.append(result)
        if action.remaining and not outcome.final:
            if not self._runtime.abort.is_set():
                self._undo_next(key, action)
                return
            action.undos.append(_outcome(attempt, FAILED, _NOT_BEGUN).result)
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
        """Find the actions whose dependents are all undone; those with nothing to undo are finished at once."""
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
        """What may start now: at each place the last action, if all that depended on it is undone."""
        ready = [keys[-1] for keys in self._at_place.values() if keys and keys[-1] in self._ready]
        if not ready and not self._running:
            ready = [next(reversed(self._wanted))]
        # At a place there is one at a time anyway; what all of them share is counted here.
        used = Counter(name for key in self._running.values() for name, _ in self._shared(key))
        found: list[Action] = []
        for key in ready:
            if len(found) + len(self._running) >= self._forks:
                break
            shared = self._shared(key)
            if all(used[name] < size for name, size in shared):
                used.update(name for name, _ in shared)
                found.append(key)
        self._ready.difference_update(found)
        return found

    def _shared(self, key: tuple[str, str]) -> list[tuple[tuple[str, str], int]]:
        """The locks and the limit of its node that an undo takes one of, each with its size."""
        limits = self._wanted[Action(*key)].node.constraints
        found = [(("lock", name), self._runtime.graph.locks.get(name, 1)) for name in dict.fromkeys(limits.locks)]
        if limits.global_limit is not None:
            found.append((("node", key[0]), limits.global_limit))
        return found

    # In a worker's thread

    def _roll_back(self, attempt: Attempt) -> ActionOutcome:
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
                said = f"changed since by somebody else: {names} (use --overwrite to undo it anyway)"
                return _outcome(attempt, LEFT, said)
            if runtime.journal is not None and not action.begun:
                runtime.journal.write(entries.Undoing(attempt.node.id, attempt.host))
            action.begun = True
            step.rollback(ctx, undo)
            if standing.changed or standing.unknown:
                # The step's undo may not be made for a state that the run did not leave.
                still = self._look_again(attempt, undo)
                if still:
                    return _outcome(attempt, FAILED, f"the undo did not restore {', '.join(map(hide, still))}")
        except JournalError as error:
            return _outcome(attempt, FAILED, f"not started: {error.what}")
        except BaseException as error:  # noqa: BLE001  whatever a rollback raises, the others are undone
            if runtime.last.is_set() and caused_by(error, CommandCancelled):
                return _outcome(attempt, FAILED, _ENDED)
            result = failed(attempt, error)
            if result.traceback and not isinstance(error, RegistryError):
                runtime.logger(node=attempt.node.id, host=attempt.host).error(
                    "the undo raised an exception", error=hide(result.message), exception=hide(result.traceback)
                )
            return _outcome(attempt, FAILED, hide(result.message) or type(error).__name__)
        finally:
            ctx.close()
        why = standing.unknown
        return _outcome(
            attempt, UNDONE, f"cannot tell whether somebody else has changed it since: {why}" if why else ""
        )

    def _doubted(self, attempt: Attempt, action: Saved) -> ActionOutcome | None:
        """The outcome of an action whose undo was interrupted before, if it must not be repeated."""
        if repeats(self._runtime, action.attempts):
            return None
        still = stands(self._runtime, attempt)
        if still:
            return None
        outcome = _outcome(attempt, FAILED, _DOUBT) if still is None else _outcome(attempt, UNDONE)
        outcome.final = True
        return outcome

    def _look_again(self, attempt: Attempt, undo: Mapping[str, Any]) -> Sequence[str]:
        """What is neither as before the run nor as the run left it, after the undo."""
        ctx = ActionContext(self._runtime, attempt)
        try:
            return _step(self._runtime, attempt).standing(ctx, undo).changed
        finally:
            ctx.close()


def _place(action: Saved) -> str:
    return action.attempts[-1].place if action.attempts else action.node.place(action.host)


def _outcome(attempt: Attempt, state: str, message: str = "") -> ActionOutcome:
    return ActionOutcome(HostResult(host_name=attempt.host, status=Status.SUCCESS, undo=state, message=message))


def _sum_up(action: Saved) -> tuple[str, str]:
    """State and message for the undos of all attempts together."""
    for state in (FAILED, LEFT, UNDONE):
        said = [undo.message for undo in action.undos if undo.undo == state]
        if said:
            return state, "; ".join(filter(None, said))
    done_well = action.result is not None and action.result.status is Status.SUCCESS
    return (UNDONE, "nothing to undo: it is as before the run") if done_well else (NOTHING, "")


def merged(runtime: Runtime, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts, with those of the same parameters merged into one with the undo data of all."""
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
    # An interrupted undo that was not repeated stays as it is.
    if runtime.journal is not None and runtime.journal.error is None and message != _DOUBT:
        said = entries.Undone(action.node.id, action.host, state, message, withdraws=bool(action.node.notifies))
        # The recorder keeps the error, which is reported at the end of the run.
        with contextlib.suppress(JournalError):
            runtime.journal.write(said)
    if state != NOTHING:
        place = _place(action)
        at = {"place": place} if place != action.host else {}
        runtime.bus.emit(ACTION_UNDONE, action.node.id, action.host, result=state, message=message, **at)


def _again(runtime: Runtime, attempt: Attempt) -> Attempt:
    again = Attempt(
        attempt.node, attempt.host, attempt.number, runtime.last,
        params=attempt.params, rendered=attempt.rendered, used=attempt.used, undo=attempt.undo,
    )  # fmt: skip
    again.begin()
    return again


def repeats(runtime: Runtime, attempts: Iterable[Attempt]) -> bool:
    """Whether an interrupted undo of attempts may be repeated."""
    return all(_kind(runtime, attempt).undo is not Undo.ONCE for attempt in attempts)


def stands(runtime: Runtime, attempt: Attempt) -> bool | None:
    """Whether the effect of an attempt is still there; None if its precheck cannot tell."""
    attempt = _again(runtime, attempt)
    ctx = ActionContext(runtime, attempt)
    try:
        forecast = Lifecycle(runtime).forecast(_step(runtime, attempt), ctx)
    except Exception as error:  # noqa: BLE001  an unreachable host cannot tell
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
        # From an earlier session: parameters that were not recorded are rendered again.
        return Lifecycle(runtime).step(attempt)
    return _kind(runtime, attempt)(attempt.used)


def _reversed(graph: ExecutionGraph) -> ExecutionGraph:
    """The graph with every edge reversed; without conditions, hooks, policies, pauses and limits (see ``_next``)."""
    waiting: dict[str, list[Dependency]] = {node: [] for node in graph.nodes}
    waited_by: dict[str, list[tuple[ExecutionNode, Dependency]]] = {}
    for node in graph.nodes.values():
        for dep in node.dependencies:
            # The hosts of an edge are always those of its step, and stay as they are.
            waiting[dep.node].append(Dependency(node.id, dep.mode, On.DONE, dep.hosts))
            waited_by.setdefault(dep.node, []).append((node, dep))
    for node in graph.steps():
        # What waited for a node also waited for its fragment. The fragment's gates are left out: they stand for all
        # hosts at once, and with batches one would wait for itself.
        for parent in _parents(node.id, graph):
            for after, dep in waited_by.get(parent, ()):
                if not after.id.startswith((f"{parent}+", f"{parent}[")):
                    hosts = None if dep.hosts is None else tuple(host for host in dep.hosts if host in node.hosts)
                    waiting[node.id].append(Dependency(after.id, dep.mode, On.DONE, hosts))
    return replace(
        graph,
        nodes={
            node.id: ExecutionNode(
                id=node.id,
                kind=node.kind,
                hosts=tuple(dict.fromkeys((*node.hosts, *node.candidates))) if node.once else node.hosts,
                places=node.places,
                # Each edge once, and none without hosts.
                dependencies=tuple(dict.fromkeys(dep for dep in waiting[node.id] if dep.hosts != ())),
            )
            for node in graph.nodes.values()
        },
        hosts={name: replace(host, per_host_limit=_NO_LIMIT) for name, host in graph.hosts.items()},
        failure_policy=FailurePolicy.CONTINUE,
    )


def _parents(node: str, graph: ExecutionGraph) -> list[str]:
    """The nodes whose fragments a node is in, innermost first."""
    return [parent for parent in returned_by(node) if parent in graph.nodes]
