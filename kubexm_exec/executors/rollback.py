"""The executor that takes a run back: undoes all that its sessions have done, as the journal tells it."""

from __future__ import annotations

from collections.abc import Collection

from kubexm_exec.engine import entries
from kubexm_exec.engine.attempt import ActionOutcome
from kubexm_exec.engine.history import ActionHistory, RunHistory
from kubexm_exec.engine.results import RunRecord
from kubexm_exec.engine.resume import matches
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.undo import FAILED, LEFT, UNDONE, Saved, earlier, undo_all
from kubexm_exec.executors.base import Executor
from kubexm_exec.model.events import RUN_STARTED
from kubexm_exec.model.result import GraphExecutionResult, HostResult, RunMode, Status
from kubexm_exec.scheduler import Action


def remaining(history: RunHistory) -> tuple[list[Action], list[Action]]:
    """What an undo has to do, in the order it was done: what can be undone, and what cannot."""
    can, cannot = [], []
    for key, action in history.actions.items():
        if action.undone.startswith(UNDONE):
            continue
        if action.undo:
            can.append(key)
        elif action.begun or (action.result is not None and action.result.changed):
            cannot.append(key)
    return can, cannot


def broken_off(history: RunHistory, globs: Collection[str]) -> list[Action]:
    """The actions of some nodes whose undo broke off, so that nobody knows how far it came."""
    return [key for key, action in history.actions.items() if action.undoing and matches(key.node, globs)]


def was_undone(key: Action, said: str = "says who looked") -> entries.Undone:
    """The entry for an undo of which somebody has seen that it was done."""
    return entries.Undone(key.node, key.host, UNDONE, said)


class RollbackExecutor(Executor):
    """Undoes what a run has done. What it finds undone already is left alone."""

    name = "rollback"
    mode = RunMode.UNDO

    def __init__(self, history: RunHistory, again: Collection[str] = ()) -> None:
        """``again``: globs of nodes that are undone even if nobody knows how far an earlier undo of them came."""
        self._history = history
        self._again = again

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Take it back, from the end to the beginning."""
        record = RunRecord(runtime, self.name, self.mode)
        can, cannot = remaining(self._history)
        runtime.bus.emit(
            RUN_STARTED, graph=runtime.graph.name, executor=self.name, runMode=self.mode.value,
            forks=runtime.options.forks, hosts=len({key.host for key in can}), nodes=len({key.node for key in can}),
            actions=len(can),
        )  # fmt: skip
        for key, action in self._history.actions.items():
            if action.result is not None and key.node in runtime.nodes:
                # Parameters are made from what earlier steps gave.
                outcome = ActionOutcome(action.result, action.result.outputs)
                record.action(runtime.nodes[key.node], outcome, restored=True)
        runtime.watch()
        try:
            wanted = set(can) | set(cannot)
            saved, unknown = [], []
            for key, action in self._history.actions.items():
                if key in wanted and key.node in runtime.nodes and key.host in runtime.nodes[key.node].may_run_on:
                    saved.append(self._saved(key, runtime, action))
                elif key in wanted:
                    # A step that another one returned, and that could not be written down.
                    unknown.append(f"{key.node} on {key.host}")
            record.result.not_reversible.extend([*unknown, *undo_all(runtime, saved, self.make_workers)])
        finally:
            runtime.close()
        states = [each.result.undo.partition(":")[0] for each in saved if each.result is not None and each.result.undo]
        # A rollback is one, however often it was begun.
        states += [UNDONE for action in self._history.actions.values() if action.undone.startswith(UNDONE)]
        undone, broken, left = (states.count(state) for state in (UNDONE, FAILED, LEFT))
        ended = Status.CANCELLED if runtime.abort.is_set() else Status.FAILED if broken or left else Status.SUCCESS
        said = [f"{undone} of {len(states)} actions undone"]
        said += [f"{broken} could not be"] if broken else []
        said += [f"{left} left alone: changed since by somebody else"] if left else []
        return record.end(ended, ", ".join(said))

    def _saved(self, key: Action, runtime: Runtime, action: ActionHistory) -> Saved:
        node = runtime.nodes[key.node]
        result = action.result or HostResult(host_name=key.host, status=Status.CANCELLED, message="it broke off")
        doubt = action.undoing and not matches(key.node, self._again)
        return Saved(node, key.host, result, earlier(node, key.host, action.undo, runtime), doubt)
