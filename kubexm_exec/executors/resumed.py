"""The executor of a session that goes on with a run: undos that broke off come first, then the run's own executor."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import replace

from kubexm_exec.engine.attempt import ActionOutcome
from kubexm_exec.engine.prior import Known
from kubexm_exec.engine.results import RunRecord
from kubexm_exec.engine.resume import matches
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.engine.undo import UNDONE, Saved, earlier, repeats, stands, undo_all
from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.rollback import was_undone
from kubexm_exec.model.events import RUN_STARTED
from kubexm_exec.model.result import FailureKind, GraphExecutionResult, HostResult, RunMode, Status
from kubexm_exec.scheduler import Action

_DOUBT: Final = "its undo broke off before, and nobody knows how far it came"
_HINT: Final = (
    "look on the host, then resume with --undone NODE if it was undone, or with --again NODE to have it undone once "
    "more"
)


class ResumedExecutor(Executor):
    """Settles what became of undos that broke off; nothing is run while that is not known of one of them."""

    def __init__(self, executor: Callable[[], Executor], again: Collection[str] = ()) -> None:
        """``again``: globs of nodes that are undone even if nobody knows how far an earlier undo of them came."""
        self._executor = executor
        self._again = again

    def execute(self, runtime: Runtime) -> GraphExecutionResult:
        """Go on, if it is known where."""
        settled = dict(runtime.prior)
        doubted: list[Action] = []
        repeated: list[Saved] = []
        for action, known in runtime.prior.items():
            node = runtime.nodes.get(action.node)
            if not known.undoing or node is None or known.outcome is not None:
                continue
            attempts = earlier(node, action.host, known.undo, runtime)
            if matches(node.id, self._again):
                unknown = HostResult(host_name=action.host, status=Status.CANCELLED)
                repeated.append(Saved(node, action.host, unknown, attempts))
            elif not repeats(runtime, attempts):
                still = stands(runtime, attempts[-1])
                if still is None:
                    doubted.append(action)
                else:
                    settled[action] = replace(known, undoing=False) if still else self._undone(runtime, action)
        if not doubted and repeated:
            undo_all(runtime, repeated)
            for saved in repeated:
                action = Action(saved.node.id, saved.host)
                if saved.result is not None and saved.result.undo.startswith(UNDONE):
                    settled[action] = Known()
                else:
                    doubted.append(action)
        if doubted:
            return _refused(runtime, doubted, {Action(saved.node.id, saved.host): saved for saved in repeated})
        runtime.prior = settled
        return self._executor().execute(runtime)

    def _undone(self, runtime: Runtime, action: Action) -> Known:
        """The host shows that it was undone: it is to be done again."""
        if runtime.journal is not None:
            runtime.journal.write(was_undone(action, "as the host shows"))
        return Known()


def _refused(runtime: Runtime, doubted: Collection[Action], repeated: dict[Action, Saved]) -> GraphExecutionResult:
    """The result if nothing is run, with what somebody has to say first."""
    record = RunRecord(runtime, "resume", RunMode.ACT)
    runtime.bus.emit(
        RUN_STARTED, graph=runtime.graph.name, executor="resume", runMode=RunMode.ACT.value,
        forks=runtime.options.forks, hosts=len({action.host for action in doubted}),
        nodes=len({action.node for action in doubted}), actions=len(doubted),
    )  # fmt: skip
    for action, known in runtime.prior.items():
        if known.outcome is not None and action.node in runtime.nodes:
            record.action(runtime.nodes[action.node], known.outcome, restored=True)
    for action in doubted:
        saved = repeated.get(action)
        undo = "" if saved is None or saved.result is None else saved.result.undo
        result = HostResult(
            host_name=action.host, status=Status.FAILED, kind=FailureKind.FAILED, unknown=True,
            message=undo or _DOUBT, hint="" if undo else _HINT, undo=undo,
        )  # fmt: skip
        record.action(runtime.nodes[action.node], ActionOutcome(result))
    runtime.close()
    return record.end(Status.FAILED, "nothing was run: it is not known how far an undo came that broke off before")
