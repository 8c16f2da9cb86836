"""The service as every front sees it: in this process, or, one day, elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.result import PastChange
    from kubexm_exec.service.live import Watcher
    from kubexm_exec.service.requests import (
        AnswerRequest,
        CommandRequest,
        Difference,
        Documents,
        Drift,
        DriftRequest,
        DueHandler,
        HostInfo,
        InventoryRequest,
        NotificationsRequest,
        Outcome,
        Planned,
        PruneRequest,
        ResumeRequest,
        RollbackRequest,
        RunDetails,
        RunInfo,
        RunRequest,
        Undoable,
        Validation,
        VarsRequest,
    )


class Service(Protocol):
    """What can be done with specs and runs; all of it raises ServiceError. Runs are named as in ``kubexm runs``."""

    @property
    def place(self) -> str:
        """Where its journal is, without a password; empty if that is the usual place."""

    def validate(self, paths: Sequence[str], documents: Documents) -> Validation:
        """Check documents in files and folders; nothing is run."""

    def plan(self, documents: Documents, watcher: Watcher = ...) -> Planned:
        """Compile a spec to a plan that can be saved, and run as it is."""

    def diff(self, before: Documents, after: Documents, watcher: Watcher = ...) -> Difference:
        """What changes in the graph from one spec to another."""

    def vars(self, request: VarsRequest, watcher: Watcher = ...) -> list[ValueRow]:
        """The values that a host sees, and where each is from."""

    def inventory(self, request: InventoryRequest, watcher: Watcher = ...) -> list[HostInfo]:
        """The hosts of a spec or an inventory; no host is contacted."""

    def run(self, request: RunRequest, watcher: Watcher = ...) -> Outcome:
        """Run a spec or a plan."""

    def run_command(self, request: CommandRequest, watcher: Watcher = ...) -> Outcome:
        """Run one command on some hosts."""

    def resume(self, request: ResumeRequest, watcher: Watcher = ...) -> Outcome:
        """Resume a run; raises Changed if its spec has changed."""

    def retry(self, request: ResumeRequest, watcher: Watcher = ...) -> Outcome:
        """Resume a run on the hosts where something failed."""

    def undoable(self, request: RollbackRequest) -> Undoable:
        """What a rollback would do."""

    def roll_back(self, request: RollbackRequest, watcher: Watcher = ...) -> Outcome:
        """Undo what a run has done."""

    def cancel(self, run: str) -> RunInfo:
        """Ask a run to stop, wherever it runs."""

    def answer(self, request: AnswerRequest) -> RunInfo:
        """Answer a question of a run, such as a gate's, wherever it runs."""

    def drift(self, request: DriftRequest, watcher: Watcher = ...) -> Drift:
        """Ask hosts whether all is as the last successful run of a spec left it; nothing is changed."""

    def runs(self, *, limit: int = ..., name: str = ...) -> list[RunInfo]:
        """The newest runs, newest first."""

    def get(self, run: str) -> RunDetails:
        """All that is known of a run."""

    def events(self, run: str, *, follow: bool = ...) -> Iterator[Event]:
        """What happened in a run; ``follow``: until it ends."""

    def logs(
        self, run: str, *, hosts: str | None = ..., nodes: Sequence[str] = ..., follow: bool = ...
    ) -> Iterator[Event]:
        """What the steps of a run printed."""

    def changes(self, run: str, *, hosts: str | None = ..., nodes: Sequence[str] = ...) -> list[PastChange]:
        """What a run changed on its hosts, with the diffs that were recorded; ``hosts`` and ``nodes`` choose some."""

    def report(self, run: str) -> RunDetails:
        """A run with all that a report tells of it."""

    def prunable(self, request: PruneRequest) -> list[RunInfo]:
        """The runs that can be removed."""

    def prune(self, runs: Sequence[str]) -> int:
        """Remove runs with their logs and their data for undo; gives the number of remaining runs; raises NotFound."""

    def notifications(self, request: NotificationsRequest) -> list[DueHandler]:
        """The handlers that are due: the next run of their target runs them."""

    def drop_notifications(self, several: Sequence[DueHandler]) -> int:
        """Forget that handlers are due; gives the number of those that were. Raises Held while their target is."""
