"""Everything that one run shares: graph, plug-ins, values, connections, secrets, and the way to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from io import StringIO
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.connectors.base import Connector
from kubexm_exec.connectors.pool import ConnectorPool, Loads
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine.attempt import ActionRecords
from kubexm_exec.engine.blobs import BlobStore
from kubexm_exec.engine.output import Later
from kubexm_exec.engine.ports import Journal
from kubexm_exec.engine.prefetch import Prefetch
from kubexm_exec.engine.prior import Known
from kubexm_exec.engine.prompts import Asker, InputLines
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError
from kubexm_exec.model.events import EventBus
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode, GraphHost, NodeID
from kubexm_exec.runner.facts import Facts
from kubexm_exec.runner.transfers import UPLOADS, Transfers
from kubexm_exec.scheduler import Action
from kubexm_exec.secrets import Secrets
from kubexm_exec.step import HostView
from kubexm_exec.values.evaluate import Evaluator
from kubexm_exec.values.expressions import Expressions, UnknownValueError
from kubexm_exec.values.templates import TemplateFinder, Templates

if TYPE_CHECKING:
    from kubexm_exec.resources.store import ResourceStore

FragmentCompiler: TypeAlias = Callable[
    [ExecutionGraph, ExecutionNode, str, Sequence[Mapping[str, Any]]], ExecutionFragment
]
"""Makes a fragment of the steps (spec data) that a node returned on a host; raises SpecError or ValueError."""

_FACTS_TIME: Final = 60.0
"""Seconds that an expression waits for a host's facts."""


class RunOptions(Struct, kw_only=True):
    """What the caller chooses for a run."""

    forks: int = 50
    """How many actions run at once."""
    input: TextIO | None = None
    """Where answers to questions and the debugger's commands come from; None: nobody is there."""
    output: TextIO = field(default_factory=StringIO)
    """Where questions and the debugger are shown; without one, nobody sees them."""
    terminal: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while somebody is asked something: the terminal is theirs inside."""
    patient: bool = False
    """Whether questions wait for answers from elsewhere if there is no input."""
    overwrite: bool = False
    """Undo also what somebody else has changed since."""
    verbose: int = 0
    templates: tuple[Path, ...] = ()
    """More folders of templates."""
    open_timeout: float = 30.0
    """Seconds to wait for a connection."""
    grace: float = 2.0
    """Seconds that a step has to come back after its time is over, before it is left behind."""
    folder: str = ""
    """Where relative names of the control node begin; the working directory of the process if it is empty."""
    bundle: Path | None = None
    """Folder with resources that is looked at before anything is fetched."""
    uploads: int = UPLOADS
    """How many large files are sent to hosts at once."""
    breakpoints: tuple[str, ...] = ()
    """Globs of nodes at which the debugger stops."""


class Runtime:
    """Everything a run shares. Executors drive it; steps see nothing of it but their context."""

    def __init__(
        self,
        graph: ExecutionGraph,
        *,
        options: RunOptions,
        bus: EventBus,
        secrets: Secrets,
        steps: Loads,
        connectors: Loads,
        templates: TemplateFinder | None = None,
        compile_fragment: FragmentCompiler | None = None,
        expressions: Expressions | None = None,
    ) -> None:
        self.nodes: dict[NodeID, ExecutionNode] = dict(graph.nodes)
        """All nodes, those of fragments too; the same mapping that ``graph`` has."""
        self.graph = replace(graph, nodes=self.nodes)
        self.options = options
        self.bus = bus
        self.run_id = bus.run
        self.secrets = secrets
        self.redactor = secrets.redactor
        self.steps = steps
        self.compile_fragment = compile_fragment
        self.records = ActionRecords()
        self.expressions = expressions or Expressions()
        """Those that the spec was compiled with, if it was: they know its texts already."""
        self.evaluator = Evaluator(
            self.graph,
            self.expressions,
            records=self.records,
            facts=self.facts,
            secret=self.secret,
            run_id=bus.run,
        )
        self.prefetch = Prefetch(self.graph, steps, self.evaluator)
        self.host_views = {name: _view(host) for name, host in graph.hosts.items()}
        self.cancel = Cancel()
        """Set it to stop the run: nothing new starts, what runs is told, ``always`` hooks run. Not in a signal handler:
        there, call ``interrupt``."""
        self.abort = Cancel()
        """Set it to end now, without waiting for anything."""
        self.work = Cancel()
        """What running steps look at; set with ``cancel``."""
        self.last = Cancel()
        """What ``always`` hooks and undos look at; set with ``abort``."""
        # At once, not by the driver: it may be busy with the very step that is to be stopped.
        self.cancel.on_set(self.work.set)
        self.abort.on_set(self.last.set)
        self.later: Later | None = None
        """Set by a driver that can call back while actions run."""
        self.offline = ""
        """Not empty: no host may be contacted, because of this."""
        self.looks_only = ""
        """Not empty: nothing is fetched or changed, not even on the control node, because of this."""
        self.journal: Journal | None = None
        """Where the run is written down, if it is; set it before the run begins."""
        self.prior: Mapping[Action, Known] = {}
        """What earlier sessions of this run have done."""
        self.blobs = BlobStore()
        self.transfers = Transfers(options.uploads)
        self._finder = templates
        self.connections = ConnectorPool(
            graph.hosts, connectors, secrets.resolve, open_timeout=options.open_timeout, folder=options.folder
        )
        self._facts = Facts(self.connect)
        self._caches: dict[tuple[str, ...], dict[str, Any]] = {}
        self._interrupts = 0
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._watcher: threading.Thread | None = None

    # What steps and expressions need

    @cached_property
    def templates(self) -> Templates:
        """Renders templates with the run's expressions."""
        return Templates(self.expressions, self._finder_for)

    def finder(self, scope: str) -> TemplateFinder:
        """Finds templates as nodes of a scope see them."""
        return self._finder_for(self._base(scope))

    def _finder_for(self, base: str) -> TemplateFinder:
        if self._finder is None:
            return TemplateFinder.for_spec(base, self.options.templates)
        return TemplateFinder([Path(base) / "templates", Path(base), *self._finder.folders])

    @cached_property
    def resources(self) -> ResourceStore:
        """Fetches files from elsewhere, each one once."""
        from kubexm_exec.resources.store import ResourceStore

        return ResourceStore(bundle=self.options.bundle)

    @cached_property
    def lines(self) -> InputLines | None:
        """The lines of the input; everybody who reads it must use this one object."""
        return None if self.options.input is None else InputLines(self.options.input)

    @cached_property
    def asker(self) -> Asker:
        """Asks the person who runs this."""
        options = self.options
        return Asker(self.lines, options.output, options.terminal, patient=options.patient)

    def connect(self, host: str, deadline: Deadline, cancel: Cancel) -> Connector:
        """The open connector of a host; raises ConnectorError, or CommandCancelled."""
        if self.offline:
            raise UnknownValueError(f"host {host}", self.offline)
        return self.connections.get(host, deadline, cancel)

    def secret(self, reference: str) -> str:
        """The value behind a reference, for an expression; raises SecretError."""
        if self.offline:
            raise UnknownValueError(f"secret({reference!r})", "a dry run looks no secret up")
        return self.secrets.resolve(reference)

    def facts(self, host: str) -> Mapping[str, Any]:
        """The facts of a host for an expression."""
        if self.offline:
            raise UnknownValueError(f"facts of {host}", self.offline)
        try:
            # After a cancel only hooks ask, and what they do is not cancelled.
            cancel = self.last if self.cancel.is_set() else self.work
            return self._facts.of(host, Deadline.after(_FACTS_TIME), cancel)
        except CommandTimedOut as error:
            raise ConnectorError(f"{host} did not give its facts in {_FACTS_TIME:g}s") from error

    def facts_by(self, host: str, deadline: Deadline, cancel: Cancel) -> Mapping[str, Any]:
        """The facts of a host for a step, within its time."""
        return self._facts.of(host, deadline, cancel)

    def forget_facts(self, host: str) -> None:
        """Have a host's facts gathered again when they are asked for: it was rebooted, say."""
        self._facts.forget(host)

    def cache(self, *key: str) -> MutableMapping[str, Any]:
        """The values remembered under a key for the length of the run."""
        return self._caches.setdefault(key, {})

    def base(self, node: ExecutionNode) -> str:
        """The folder that a node's relative paths start in."""
        return self._base(node.scope)

    def _base(self, scope_id: str) -> str:
        scope = self.graph.scopes.get(scope_id)
        while scope is not None and not scope.base:
            scope = self.graph.scopes.get(scope.parent) if scope.parent is not None else None
        return scope.base if scope is not None else self.options.folder or str(Path.cwd())

    def logger(self, **bound: Any) -> Any:
        """A logger with the run and more bound to it."""
        from kubexm_exec.logs import get_logger

        return get_logger(self.redactor.mask, run=self.run_id, **bound)

    # Growing

    def add_nodes(self, nodes: Sequence[ExecutionNode]) -> list[ExecutionNode]:
        """Know the nodes of a fragment, or more hosts of those already known; gives the nodes as they are now."""
        added: list[ExecutionNode] = []
        for node in nodes:
            known = self.nodes.get(node.id)
            if known is not None:
                node = known.joined(node)
            self.nodes[node.id] = node
            self.evaluator.index.add(node)
            added.append(node)
        return added

    def move(self, node: NodeID, hosts: tuple[str, ...]) -> None:
        """Know on which host a node runs that runs once."""
        self.nodes[node] = replace(self.nodes[node], hosts=hosts)
        self.evaluator.index.move(self.nodes[node])

    # Stopping

    def interrupt(self) -> int:
        """Stop the run, the second time at once; says which time it is. May be called in a signal handler."""
        # Locks are taken by the watcher: the handler runs in a thread that may hold them itself.
        self._interrupts += 1
        self._signals.put(self._interrupts)
        return self._interrupts

    def watch(self) -> None:
        """Begin to act on ``interrupt``."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="kubexm-interrupt", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        while times := self._signals.get():
            self.cancel.set()
            if times > 1:
                self.abort.set()

    def close(self) -> None:
        """Let go of everything the run held."""
        if self._watcher is not None:
            self._signals.put(0)
            self._watcher.join()
            self._watcher = None
        for host, error in self.connections.close():
            self.logger(host=host).warning("the connection could not be closed", error=str(error))
        self.blobs.close()


def _view(host: GraphHost) -> HostView:
    return HostView(
        name=host.name,
        address=host.address,
        internal_address=host.internal_address or host.address,
        roles=host.roles,
        groups=host.groups,
        labels=host.labels,
        user=host.user,
    )
