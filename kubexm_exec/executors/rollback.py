"""The executors that undo: the rollback of a run, and a resume that first settles interrupted undos."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import ActionOutcome
from kubexm_exec.engine.history import ActionHistory, Known, RunHistory
from kubexm_exec.engine.results import RunRecord
from kubexm_exec.engine.resume import matches
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.undo import FAILED, INTERRUPTED, LEFT, UNDONE, Saved, earlier, repeats, stands, undo_all
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, RunMode, Status
from kubexm_exec.scheduler import Action
from kubexm_spec.diagnostics import plural

_HINT: Final = (
    "check the host, then resume with --undone NODE if it was undone, or with --again NODE to have it undone once more"
)


def remaining(history: RunHistory) -> tuple[list[Action], list[Action]]:
    """The actions that can be undone, and those that cannot, in the order they were done."""
    can, cannot = [], []
    for key, action in history.actions.items():
        if action.undone.startswith(UNDONE):
            continue
        if action.undo:
            can.append(key)
        elif (action.begun and not action.looking) or (
            # Not if an earlier rollback has found that nothing is left to undo.
            action.changed and action.result is not None and action.result.changed
        ):
            cannot.append(key)
    return can, cannot


def broken_off(history: RunHistory, globs: Collection[str]) -> list[Action]:
    """The actions of some nodes whose undo was interrupted."""
    return [key for key, action in history.actions.items() if action.undoing and matches(key.node, globs)]


def was_undone(key: Action, said: str = "confirmed by the user") -> entries.Undone:
    """The entry for an interrupted undo that turned out to be complete."""
    return entries.Undone(key.node, key.host, UNDONE, said)


def _begin(runtime: Runtime, record: RunRecord, actions: Collection[Action]) -> None:
    hosts, nodes = {action.host for action in actions}, {action.node for action in actions}
    record.begin(runtime.options.forks, hosts=len(hosts), nodes=len(nodes), actions=len(actions))


class RollbackExecutor(Executor):
    """Undoes what a run has done, unless it is undone already."""

    name = "rollback"
    mode = RunMode.UNDO

    def __init__(self, history: RunHistory, again: Collection[str] = ()) -> None:
        """``again``: globs of nodes that are undone even if an earlier undo was interrupted."""
        self._history = history
        self._again = again

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Undo all sessions, from the end to the beginning."""
        record = RunRecord(runtime, self.name, self.mode)
        can, cannot = remaining(self._history)
        _begin(runtime, record, can)
        for key, action in self._history.actions.items():
            if action.result is not None and key.node in runtime.nodes:
                # Parameters are rendered with the outputs of earlier steps.
                outcome = ActionOutcome(action.result, action.result.outputs)
                record.action(runtime.nodes[key.node], outcome, restored=True)
        runtime.watch()
        try:
            wanted = {*can, *cannot}
            saved, unknown = [], []
            for key, action in self._history.actions.items():
                if key in wanted and key.node in runtime.nodes and key.host in runtime.nodes[key.node].may_run_on:
                    saved.append(self._saved(key, runtime, action))
                elif key in wanted:
                    # A node of a fragment that was not recorded because of a secret in it.
                    unknown.append(f"{key.node} on {key.host}")
            record.result.not_reversible.extend([*unknown, *undo_all(runtime, saved, self.make_workers)])
        finally:
            runtime.close()
        states = [each.result.undo.partition(":")[0] for each in saved if each.result is not None and each.result.undo]
        # Undos of earlier, interrupted rollbacks count, too.
        states += [UNDONE for action in self._history.actions.values() if action.undone.startswith(UNDONE)]
        undone, broken, left = (states.count(state) for state in (UNDONE, FAILED, LEFT))
        ended = Status.CANCELLED if runtime.abort.is_set() else Status.FAILED if broken or left else Status.SUCCESS
        said = [f"{undone} of {plural(len(states), 'action')} undone"]
        said += [f"{broken} could not be"] if broken else []
        said += [f"{left} left alone: changed since by somebody else"] if left else []
        return record.end(ended, ", ".join(said))

    def _saved(self, key: Action, runtime: Runtime, action: ActionHistory) -> Saved:
        node = runtime.nodes[key.node]
        result = action.result or HostResult(host_name=key.host, status=Status.CANCELLED, message="interrupted")
        doubt = action.undoing and not matches(key.node, self._again)
        return Saved(node, key.host, result, earlier(node, key.host, action.undo, runtime), doubt)


class ResumedExecutor(Executor):
    """Settles interrupted undos, then runs the run's own executor; nothing runs while the outcome of one is unknown."""

    def __init__(self, executor: Callable[[], Executor], again: Collection[str] = ()) -> None:
        """``again``: globs of nodes that are undone even if an earlier undo was interrupted."""
        self._executor = executor
        self._again = again

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Resume the run, if all undos can be settled."""
        settled = dict(runtime.prior)
        doubted: list[Action] = []
        repeated: dict[Action, Saved] = {}
        for action, known in runtime.prior.items():
            node = runtime.nodes.get(action.node)
            if not known.undoing or node is None or known.outcome is not None:
                continue
            attempts = earlier(node, action.host, known.undo, runtime)
            if matches(node.id, self._again):
                unknown = HostResult(host_name=action.host, status=Status.CANCELLED)
                repeated[action] = Saved(node, action.host, unknown, attempts)
            elif not repeats(runtime, attempts):
                still = stands(runtime, attempts[-1])
                if still is None:
                    doubted.append(action)
                elif still:
                    settled[action] = replace(known, undoing=False)
                else:
                    if runtime.journal is not None:
                        runtime.journal.write(was_undone(action, "as the host shows"))
                    settled[action] = Known()
        if not doubted and repeated:
            undo_all(runtime, list(repeated.values()))
            for action, saved in repeated.items():
                if saved.result is not None and saved.result.undo.startswith(UNDONE):
                    settled[action] = Known()
                else:
                    doubted.append(action)
        if doubted:
            return _refused(runtime, doubted, repeated)
        runtime.prior = settled
        return self._executor().execute(runtime)


def _refused(runtime: Runtime, doubted: Collection[Action], repeated: dict[Action, Saved]) -> GraphExecutionResult:
    """The result if nothing runs, with the undos that must be confirmed first."""
    record = RunRecord(runtime, "resume", RunMode.ACT)
    _begin(runtime, record, doubted)
    for action, known in runtime.prior.items():
        if known.outcome is not None and action.node in runtime.nodes:
            record.action(runtime.nodes[action.node], known.outcome, restored=True)
    for action in doubted:
        saved = repeated.get(action)
        undo = "" if saved is None or saved.result is None else saved.result.undo
        result = HostResult(
            host_name=action.host, status=Status.FAILED, kind=FailureKind.FAILED, unknown=True,
            message=undo or INTERRUPTED, hint="" if undo else _HINT, undo=undo,
        )  # fmt: skip
        record.action(runtime.nodes[action.node], ActionOutcome(result))
    runtime.close()
    return record.end(Status.FAILED, "nothing was run: the outcome of an interrupted undo is unknown")
