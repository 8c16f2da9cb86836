"""What a service is asked for, and what it answers: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, ForwardRef

from msgspec import Struct, field

from kubexm_exec.model.result import DEFAULT_EXECUTOR, GraphExecutionResult, HostResult, Status
from kubexm_exec.service.errors import ServiceError

if TYPE_CHECKING:
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.compile.plan import Plan
    from kubexm_exec.engine.notifications import Notification
    from kubexm_exec.journal.results import PastRun as PastRun
    from kubexm_exec.journal.store import RunRow as RunRow
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.graph import ExecutionGraph, GraphHost
    from kubexm_spec.diagnostics import Diagnostics
else:
    from importlib import import_module  # noqa: F401 - for those names

    # Imported when somebody asks for a signature: together they take longer to import than a small run takes.
    NodeChange, ValueRow, Plan, PastRun, RunRow, Event, ExecutionGraph, GraphHost, Diagnostics, Notification = (
        ForwardRef(f"import_module('{module}').{name}")
        for module, name in (
            ("kubexm_exec.compile.compare", "NodeChange"),
            ("kubexm_exec.compile.explain", "ValueRow"),
            ("kubexm_exec.compile.plan", "Plan"),
            ("kubexm_exec.journal.results", "PastRun"),
            ("kubexm_exec.journal.store", "RunRow"),
            ("kubexm_exec.model.events", "Event"),
            ("kubexm_exec.model.graph", "ExecutionGraph"),
            ("kubexm_exec.model.graph", "GraphHost"),
            ("kubexm_spec.diagnostics", "Diagnostics"),
            ("kubexm_exec.engine.notifications", "Notification"),
        )
    )

SHIPPED: Final = "kubexm:"
"""What the name of a spec begins with that comes with kubexm."""


class Documents(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a graph is made from: a spec with values and a choice of hosts and steps, or a plan."""

    folder: str = ""
    """Where all relative names start. With ``files`` nothing is read there, but folder and spec identify the documents:
    runs of the same spec in the same folder work on the same target, and are what ``drift`` looks for."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The documents themselves, by their relative paths, and all that they use; empty: they are in the folder."""
    spec: str = ""
    plan: str = ""
    """A saved plan, which is run as it is; of a run, ``spec`` and the choice are those that it was made of."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of parameters and variables; they lose against those of files, and those against ``texts``."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Values as text, typed by their parameter, or by the value of the variable."""
    vars_files: tuple[str, ...] = ()
    inventory: str | None = None
    limit: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    bundle: str | None = None
    """Folder or archive with resources that is looked at before anything is fetched."""
    offline: bool = False
    """Whether nothing is fetched: what is not in the bundle is an error before anything is run."""

    @property
    def place(self) -> str:
        """The spec or plan by its absolute path."""
        return self.place_of(self.spec or self.plan)

    def place_of(self, name: str) -> str:
        """One of the names by its absolute path."""
        import os

        return name if name.startswith(SHIPPED) else os.path.normpath(os.path.join(self.folder, name))  # noqa: PTH118


class RunRequest(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Run a spec or a plan."""

    documents: Documents
    executor: str = DEFAULT_EXECUTOR
    forks: int = 50
    """How many actions run at once."""
    uploads: int = 10
    """How many large files are sent to hosts at once."""
    verbose: int = 0
    overwrite: bool = False
    """When undoing, restore also what others have changed since: their changes are lost."""
    journal: bool = True
    wait: bool = False
    """Whether to wait while another run works on the same target."""
    patient: bool = False
    """Whether every question of a step waits for ``answer`` if there is no terminal, also without a timeout."""


class CommandRequest(Struct, frozen=True, kw_only=True):
    """Run one command on some hosts."""

    documents: Documents
    """A spec or an inventory, for its hosts."""
    pattern: str
    argv: tuple[str, ...] = ()
    shell: str | None = None
    become: str | None = None
    executor: str = DEFAULT_EXECUTOR
    forks: int = 50


class ResumeRequest(Struct, frozen=True, kw_only=True):
    """Resume a run: what succeeded stays, the rest is run."""

    run: str
    begin: tuple[str, ...] = ()
    """Globs of nodes that are run again, with all after them."""
    only: tuple[str, ...] = ()
    hosts: str | None = None
    """Patterns of hosts: of what is not done, only on these."""
    done: tuple[str, ...] = ()
    """Globs of interrupted nodes that are confirmed to have completed."""
    again: tuple[str, ...] = ()
    """Globs of nodes whose undo was interrupted: to be undone again."""
    undone: tuple[str, ...] = ()
    """The same, but confirmed to be undone."""
    accept_changes: bool = False
    overwrite: bool = False
    forks: int | None = None
    verbose: int = 0
    wait: bool = False
    patient: bool = False


class RollbackRequest(Struct, frozen=True, kw_only=True):
    """Undo what a run has done, from its end to its beginning."""

    run: str
    again: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    overwrite: bool = False
    verbose: int = 0
    wait: bool = False


class AnswerRequest(Struct, frozen=True, kw_only=True):
    """Answer a question of a step that waits for it, such as a gate."""

    run: str
    node: str
    answer: bool
    host: str = ""
    """On this host alone."""


class DriftRequest(Struct, frozen=True, kw_only=True):
    """Ask hosts whether all is still as the last successful run of a spec left it."""

    folder: str
    spec: str
    target: str | None = None
    limit: str | None = None
    forks: int | None = None


class VarsRequest(Struct, frozen=True, kw_only=True):
    """Ask for the values that a host sees."""

    documents: Documents
    host: str
    scope: str = ""
    """A module, or module/task; empty for the pipeline."""


class InventoryRequest(Struct, frozen=True, kw_only=True):
    """Ask for the hosts of a spec or an inventory."""

    documents: Documents
    pattern: str = ""
    """Only these, with their variables; empty for all, without them."""


class PruneRequest(Struct, frozen=True, kw_only=True):
    """Remove runs that are of no use any more."""

    keep: int = 0
    """The newest ones stay, whatever their age."""
    age: float = 0.0
    """Seconds since they began."""
    everything: bool = False
    """Also those that are still of use, but never one that goes on."""


class NotificationsRequest(Struct, frozen=True, kw_only=True):
    """Handlers that are due."""

    handler: str = ""
    """A name, an id or a glob of ids; all of them if it is empty, and so for the others."""
    host: str = ""
    target: str = ""


class DueHandler(Struct, frozen=True):
    """A handler that is due on a host: something changed, and it was not run successfully since."""

    target: str
    handler: str
    host: str
    by: tuple[Notification, ...]
    """What notified it, the oldest first."""

    @property
    def sure(self) -> bool:
        """Whether something has changed; if not, an action was interrupted or failed, and that is not known yet."""
        return any(each.sure for each in self.by)


class Validation(Struct, frozen=True):
    """What is wrong with some documents."""

    diagnostics: Diagnostics
    sources: Mapping[str, Any]
    checked: int
    left_out: int
    """YAML files of others."""


class Planned(Struct, frozen=True):
    """A graph that can be saved, and run as it is."""

    plan: Plan
    reads: list[str]
    """The files that it was made from."""


class Difference(Struct, frozen=True):
    """What changes in the graph from one spec to another."""

    changes: list[NodeChange]
    hosts: list[str]
    """Hosts that are reached in another way."""
    policy: list[str]
    """What holds for the whole run."""


class HostInfo(Struct, frozen=True):
    """A host of an inventory."""

    host: GraphHost
    vars: list[ValueRow] = field(default_factory=list)


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    run: str
    graph: ExecutionGraph
    """With what was added while it ran."""
    result: GraphExecutionResult
    shown: GraphExecutionResult
    """The same for people: without the pauses between this session and those before."""
    mask: Callable[[Any], Any]
    """Takes the secrets of the run out of anything: they may be in the result."""
    well: bool
    """Whether all that was asked for is done."""
    journaled: bool = False
    """Whether it can be shown and resumed."""
    done_before: int = 0
    """Actions that earlier sessions have done."""
    lost: ServiceError | None = None
    """Why it was stopped, if it could not be written down any more."""
    due: Sequence[DueHandler] = ()
    """Handlers of the graph that are due by now, and that the next run or a resume runs."""

    def to_json(self) -> Any:
        """The result as plain data without any secret."""
        data = self.result.to_json()
        if self.due:
            data["due"] = [{"handler": each.handler, "hostName": each.host, "sure": each.sure} for each in self.due]
        return self.mask(data)


class RunInfo(Struct, frozen=True):
    """A run as the list of runs has it."""

    row: RunRow
    state: Status
    seconds: float | None = None
    """How long processes worked on it so far: all its sessions, without the pauses between them."""


class RunDetails(Struct, frozen=True):
    """All that is known of a run."""

    past: PastRun
    request: RunRequest
    version: str
    """Of kubexm, that began it."""
    events: list[Event] = field(default_factory=list)
    """What a report tells besides."""
    due: Sequence[DueHandler] = ()
    """Handlers that it has notified, and that nobody has run since."""


class Undoable(Struct, frozen=True):
    """What a rollback would do."""

    info: RunInfo
    can: Sequence[tuple[str, str]]
    """Nodes and hosts, in the order in which it was done."""
    cannot: Sequence[tuple[str, str]]
    """Nodes, and where they worked: a host, or a place and the host that was served there (``lb1 for web1``)."""
    blind: list[str]
    """Nodes that are undone without checking for later changes by others."""
    later: list[RunRow]
    """Runs that worked on the same target since."""
    withheld: Sequence[tuple[str, str]] = ()
    """Those among ``can``, and where they worked, whose undo will fail: it needs a secret that was not recorded."""


class Drift(Struct, kw_only=True):
    """What differs from what the last successful run left; actions by their nodes."""

    row: RunRow
    request: RunRequest
    hosts: list[str]
    """All of the run."""
    differs: list[tuple[str, HostResult]] = field(default_factory=list)
    failed: list[tuple[str, HostResult]] = field(default_factory=list)
    unknown: list[tuple[str, HostResult]] = field(default_factory=list)
    unseen: list[tuple[str, HostResult]] = field(default_factory=list)
    """What was not looked at: only running it would tell."""
    same: int = 0
    seen: set[str] = field(default_factory=set)
    """The hosts that were looked at."""
    changes: list[NodeChange] | None = None
    """What is different in the spec since; None if it cannot be compiled."""
    later: RunInfo | None = None
    """A run of the spec on the same target that came later."""
    cancelled: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.differs or self.failed)
