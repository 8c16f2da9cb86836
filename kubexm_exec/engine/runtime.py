"""What all parts of a run share: graph, plug-ins, values, connections, secrets, and how to stop it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
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
from kubexm_exec.connectors.pool import ConnectorPool
from kubexm_exec.connectors.thirdparty import Loads
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine.attempt import ActionRecords
from kubexm_exec.engine.history import Known
from kubexm_exec.engine.notifications import Notification
from kubexm_exec.engine.output import Later
from kubexm_exec.engine.ports import Journal
from kubexm_exec.engine.prefetch import Prefetch
from kubexm_exec.engine.prompts import Asker, InputLines
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError
from kubexm_exec.model.events import EventBus
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode, GraphHost, NodeID
from kubexm_exec.model.harmless import clean
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
"""Compiles the steps (spec data) that a node returned on a host; raises SpecError or ValueError."""

_FACTS_TIME: Final = 60.0
"""Seconds that an expression waits for a host's facts."""
_SMALL_BLOB: Final = 64 << 10
_BLOBS_IN_MEMORY: Final = 32 << 20


class RunOptions(Struct, kw_only=True):
    """The caller's options for a run."""

    forks: int = 50
    """How many actions run at once."""
    input: TextIO | None = None
    """Where answers and the debugger's commands come from; None: there is no input."""
    output: TextIO = field(default_factory=StringIO)
    """Where questions and the debugger are shown."""
    terminal: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered while a question is open: the terminal is reserved for it."""
    patient: bool = False
    """Whether questions wait for answers from other processes if there is no input."""
    overwrite: bool = False
    """Whether to undo also what somebody else has changed since."""
    verbose: int = 0
    templates: tuple[Path, ...] = ()
    """More folders of templates."""
    open_timeout: float = 30.0
    """Seconds to wait for a connection."""
    grace: float = 2.0
    """Seconds that a step has to return after its timeout, before it is abandoned."""
    folder: str = ""
    """Where relative paths on the control node start; the working directory if it is empty."""
    bundle: Path | None = None
    """Folder of resources that is searched before anything is fetched."""
    offline: bool = False
    """Whether nothing is fetched."""
    uploads: int = UPLOADS
    """How many large files are sent to hosts at once."""
    breakpoints: tuple[str, ...] = ()
    """Globs of nodes at which the debugger stops."""


class Runtime:
    """What a run shares. Executors drive it; steps see only their context."""

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
        self.nodes: dict[NodeID, ExecutionNode] = {name: _movable(node) for name, node in graph.nodes.items()}
        """All nodes, with those of fragments; the same mapping as in ``graph``."""
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
        """Those that the spec was compiled with: they have its texts cached."""
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
        """Set it to stop the run: no new action starts, running ones are stopped, ``always`` hooks run. In a signal
        handler call ``interrupt`` instead."""
        self.abort = Cancel()
        """Set it to end now, without waiting for anything."""
        self.work = Cancel()
        """For running steps; set with ``cancel``."""
        self.last = Cancel()
        """For ``always`` hooks and undos; set with ``abort``."""
        # Directly, not by the driver: it may be busy with the very step that must stop.
        self.cancel.on_set(self.work.set)
        self.abort.on_set(self.last.set)
        self.later: Later | None = None
        """Set by a loop that can call back while actions run."""
        self.offline = ""
        """Why no host may be contacted, if that is so."""
        self.looks_only = ""
        """Why nothing may be fetched or changed, not even on the control node, if that is so."""
        self.journal: Journal | None = None
        """Where the run is recorded, if it is; set before the run begins."""
        self.prior: Mapping[Action, Known] = {}
        """What earlier sessions of this run tell about its actions."""
        self.pending: Sequence[Notification] = ()
        """Handlers of its target that are due, from whichever run."""
        self.blobs = BlobStore()
        self.transfers = Transfers(options.uploads)
        self._finder = templates
        self.connections = ConnectorPool(
            graph.hosts, connectors, secrets.resolve, open_timeout=options.open_timeout, folder=options.folder
        )
        self.known_facts = Facts(self.connect)
        self._caches: dict[tuple[str, ...], dict[str, Any]] = {}
        self._interrupts = 0
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._watcher: threading.Thread | None = None

    # For steps and expressions

    @cached_property
    def templates(self) -> Templates:
        """Renders templates with the run's expressions."""
        return Templates(self.expressions, self._finder_for)

    def finder(self, scope: str) -> TemplateFinder:
        """Finds templates for the nodes of a scope."""
        return self._finder_for(self._base(scope))

    def _finder_for(self, base: str) -> TemplateFinder:
        if self._finder is None:
            return TemplateFinder.for_spec(base, self.options.templates)
        return TemplateFinder([Path(base) / "templates", Path(base), *self._finder.folders])

    @cached_property
    def resources(self) -> ResourceStore:
        """Fetches resources, each one once."""
        from kubexm_exec.resources.store import ResourceStore

        return ResourceStore(bundle=self.options.bundle, offline=self.options.offline)

    @cached_property
    def lines(self) -> InputLines | None:
        """The lines of the input; all readers must share this object."""
        return None if self.options.input is None else InputLines(self.options.input)

    @cached_property
    def asker(self) -> Asker:
        """Asks the user."""
        options = self.options
        return Asker(self.lines, self.say, options.terminal, patient=options.patient)

    def say(self, text: str) -> None:
        """Show a text to whoever sits at the terminal: without secrets, and without anything that steers it."""
        self.options.output.write(clean(self.redactor.mask(text)))
        self.options.output.flush()

    def connect(self, host: str, deadline: Deadline, cancel: Cancel) -> Connector:
        """The open connector of a host; raises ConnectorError, or CommandCancelled."""
        if self.offline:
            raise UnknownValueError(f"host {host}", self.offline)
        return self.connections.get(host, deadline, cancel)

    def secret(self, reference: str) -> str:
        """The value behind a reference, for an expression; raises SecretError."""
        if self.offline:
            raise UnknownValueError(f"secret({reference!r})", "a dry run resolves no secrets")
        return self.secrets.resolve(reference)

    def facts(self, host: str) -> Mapping[str, Any]:
        """The facts of a host for an expression."""
        if self.offline:
            raise UnknownValueError(f"facts of {host}", self.offline)
        try:
            # After a cancel only ``always`` hooks run, and they are not cancelled.
            cancel = self.last if self.cancel.is_set() else self.work
            return self.known_facts.of(host, Deadline.after(_FACTS_TIME), cancel)
        except CommandTimedOut as error:
            raise ConnectorError(f"{host} did not return its facts within {_FACTS_TIME:g}s") from error

    def cache(self, *key: str) -> MutableMapping[str, Any]:
        """The values cached under a key for the length of the run."""
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

    # Extending the graph

    def add_nodes(self, nodes: Sequence[ExecutionNode]) -> list[ExecutionNode]:
        """Add the nodes of a fragment, or hosts to known ones; returns the nodes as they are now."""
        added: list[ExecutionNode] = []
        for node in nodes:
            known = self.nodes.get(node.id)
            if known is not None:
                node = known.joined(node)
            node = self.nodes[node.id] = _movable(node)
            self.evaluator.index.add(node)
            added.append(node)
        return added

    def move(self, node: NodeID, hosts: tuple[str, ...]) -> None:
        """Set the host of a ``runOnce`` node."""
        self.nodes[node] = replace(self.nodes[node], hosts=hosts)
        self.evaluator.index.move(self.nodes[node])

    def set_place(self, node: NodeID, host: str, place: str) -> str:
        """Set the place where a node works for a host; returns the one before."""
        # In place: a node may have thousands of hosts, and each may have to move.
        places = self.nodes[node].places
        assert isinstance(places, dict)
        before = places.get(host, host)
        places[host] = place
        return str(before)

    # Stopping

    def interrupt(self) -> int:
        """Stop the run, the second time at once; returns how often it was called. Safe in a signal handler."""
        # The watcher takes locks: the handler runs in a thread that may hold them itself.
        self._interrupts += 1
        self._signals.put(self._interrupts)
        return self._interrupts

    def watch(self) -> None:
        """Start to react to ``interrupt``."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="kubexm-interrupt", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        while times := self._signals.get():
            self.cancel.set()
            if times > 1:
                self.abort.set()

    def close(self) -> None:
        """Release all resources of the run."""
        if self._watcher is not None:
            self._signals.put(0)
            self._watcher.join()
            self._watcher = None
        for host, error in self.connections.close():
            self.logger(host=host).warning("the connection could not be closed", error=str(error))
        self.blobs.close()


def _movable(node: ExecutionNode) -> ExecutionNode:
    """The node with places of its own, if they may change."""
    return replace(node, places=dict(node.places)) if node.choices else node


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


class BlobStore:
    """Keeps bytes for the length of a run, by their digest: small ones in memory, large ones in a private folder."""

    def __init__(self) -> None:
        self._memory: dict[str, bytes] = {}
        self._held = 0
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def put(self, data: bytes, *, secret: bool = False) -> str:
        """Keep bytes; ``get`` returns them for the token. A secret is kept in memory, whatever its size."""
        token = hashlib.sha256(data).hexdigest()
        with self._lock:
            if token in self._memory:
                return token
            if secret or (len(data) <= _SMALL_BLOB and self._held + len(data) <= _BLOBS_IN_MEMORY):
                self._memory[token] = bytes(data)
                self._held += len(data)
                return token
            if self._folder is None:
                # mkdtemp gives it mode 0700: the content may be secret.
                self._folder = Path(tempfile.mkdtemp(prefix="kubexm-undo-"))
            path = self._folder / token
            if not path.exists():
                path.write_bytes(data)
        return token

    def get(self, token: str) -> bytes:
        """The bytes of a token; raises KeyError for an unknown one."""
        with self._lock:
            if token in self._memory:
                return self._memory[token]
            path = self._folder / token if self._folder is not None and token.isalnum() else None
            if path is None or not path.is_file():
                raise KeyError(f"no content is stored under the token {token!r}")
        return path.read_bytes()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._memory.clear()
            self._held = 0
            folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
