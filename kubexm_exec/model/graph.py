"""The execution graph: pure, serialisable data that says which step runs on which hosts after what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import NODEFAULT, Struct, ValidationError, convert, field
from msgspec.structs import fields, replace

from kubexm_exec.model.data import builtins
from kubexm_exec.model.result import where

if TYPE_CHECKING:
    import networkx as nx

NodeID: TypeAlias = str
"""The path of a node: ``module/task/step``, with ``[key]`` for a loop item, with ``+name`` for a fragment's node."""

FORMAT = 2
"""Version of the JSON form of a graph; a plan of another one is refused."""


class Data(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a graph; in JSON its names are in camel case, and what is as by default is left out."""


class NodeKind(StrEnum):
    """What a node is: work on hosts, or a virtual gate that only waits."""

    STEP = "step"
    GATE = "gate"


class Mode(StrEnum):
    """How a dependency is waited for."""

    HOST = "host"
    """Host h waits for host h of the other node (step to step only)."""
    BARRIER = "barrier"
    """All hosts wait for all hosts; one side is always a gate, so that there are never hosts x hosts edges."""


class On(StrEnum):
    """What a dependency must have come to, for the one that waits to run."""

    SUCCESS = "success"
    FAILURE = "failure"
    DONE = "done"


class Hook(StrEnum):
    """The hook a node belongs to, if any."""

    NONE = ""
    PRE = "pre"
    POST = "post"
    ON_FAILURE = "onFailure"
    ALWAYS = "always"


class FailurePolicy(StrEnum):
    """What a failed node does to the rest of the run."""

    CONTINUE = "continue"
    FAIL_FAST = "failFast"
    ROLLBACK = "rollback"


class Dependency(Data, frozen=True):
    """An edge: the node that is waited for, how, and for which outcome.

    ``hosts`` limits the edge to some hosts (batches): for a step that waits for a gate, the step's hosts that wait;
    for a gate that waits for a step, the step's hosts that are waited for. ``None`` means all of them.
    """

    node: NodeID
    mode: Mode = Mode.HOST
    on: On = On.SUCCESS
    hosts: tuple[str, ...] | None = None


class Retry(Data, frozen=True):
    """How often and how a failed action is tried again."""

    attempts: int = 1
    delay: float = 0.0
    backoff: str = "constant"  # constant | linear | exponential
    max_delay: float | None = None
    on: tuple[str, ...] = ("failed", "timedOut", "unreachable")

    def wait(self, attempt: int) -> float:
        """The pause in seconds after the given (1-based) attempt failed."""
        if self.backoff == "exponential":
            # The exponent is capped: 2.0**1024 overflows, and no pause is that long.
            pause = self.delay * 2.0 ** min(attempt - 1, 64)
        elif self.backoff == "linear":
            pause = self.delay * attempt
        else:
            pause = self.delay
        return pause if self.max_delay is None else min(pause, self.max_delay)


class Policy(Data, frozen=True):
    """What wraps a step: retry, timeout and what its failure means."""

    retry: Retry = Retry()
    timeout: float | None = None
    ignore_errors: bool = False
    max_failures: str = "0"  # a number, or a percentage of the node's hosts

    def budget(self, hosts: int) -> int:
        """How many of that many hosts may fail before the node is Failed."""
        if self.max_failures.endswith("%"):
            return int(float(self.max_failures[:-1]) * hosts // 100)
        return int(self.max_failures)


class Constraints(Data, frozen=True):
    """Limits on how many actions of a node run at once."""

    global_limit: int | None = None
    per_host_limit: int | None = None
    locks: tuple[str, ...] = ()


class Origin(Data, frozen=True):
    """Where in the user's files a node comes from; line 0 means it is not known."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class ExecutionNode(Data, frozen=True, kw_only=True):
    """A step on a set of hosts with its dependencies, policy and constraints; or a gate (no hosts, only waits)."""

    id: NodeID
    kind: NodeKind = NodeKind.STEP
    name: str = ""
    step_name: str = ""
    """The step type; empty for a gate."""
    module: str = ""
    task: str = ""
    hosts: tuple[str, ...] = ()
    """The hosts that it is for: an action is the node and one of them, and belongs to that host whatever its place."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where it works for those of its hosts that it does not work on themselves: the place, by the host it serves."""
    once: NodeID = ""
    """``runOnce``: the gate that chooses the one host; until it has, ``hosts`` is the one that would be the first."""
    candidates: tuple[str, ...] = ()
    """``runOnce``: of the gate, the hosts that it chooses from, in order; of a step, those that it can run on. One of
    a fragment has no gate: it has the first host, or cannot be run."""
    dependencies: tuple[Dependency, ...] = ()
    with_: Mapping[str, Any] = field(default_factory=dict, name="with")
    """The step's parameters as written: expressions are rendered for each host when it runs."""
    when: str | bool | None = None
    guards: tuple[tuple[str, str | bool], ...] = ()
    """Conditions of the task and module around it, each with the scope it was written in."""
    item: Any = None
    has_item: bool = False
    outputs: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""
    """Key of the values (params, vars) this node sees: see ``ExecutionGraph.scopes``."""
    policy: Policy = Policy()
    constraints: Constraints = Constraints()
    hook: Hook = Hook.NONE
    become: bool | str | None = None
    """The user it works as, if the host's is not the one: a name, True for root, False for whoever logs in."""
    sensitive: bool = False
    reversible: bool = False
    speaks: bool = False
    """Its output is for the people who watch."""
    """Whether the step type says it can be undone."""
    tags: tuple[str, ...] = ()
    skip: str = ""
    """A reason known before the run why no action of this node runs (tags not selected, no hosts)."""
    pause: float = 0.0
    """Batch gates: seconds to wait before the gate opens."""
    batch_budget: str | None = None
    """Batch gates: ``maxFailures`` of the task; the gate closes (Skipped: limit) when more hosts have failed so far."""
    origin: Origin = Origin()
    inputs_hash: str = ""
    """Digest of the values the node's expressions refer to, so that a changed variable changes the node."""

    @property
    def is_gate(self) -> bool:
        """Whether this is a virtual node."""
        return self.kind is NodeKind.GATE

    def place(self, host: str) -> str:
        """The host on which it works for one of its hosts."""
        return self.places.get(host, host) if self.places else host

    def elsewhere(self, host: str) -> str:
        """The place where it works for one of its hosts, if that is another host; else nothing."""
        place = self.place(host)
        return "" if place == host else place

    def where(self, host: str) -> str:
        """The place and the host it serves there, for people; one name if they are the same."""
        return where(host, self.elsewhere(host))

    @property
    def locations(self) -> tuple[str, ...]:
        """The hosts on which it works."""
        return tuple(dict.fromkeys(map(self.place, self.hosts))) if self.places else self.hosts

    def joined(self, other: ExecutionNode) -> ExecutionNode:
        """The node with the hosts that the same node has elsewhere, too."""
        more = tuple(host for host in other.hosts if host not in set(self.hosts))
        return replace(self, hosts=self.hosts + more, places={**other.places, **self.places}) if more else self

    @property
    def may_run_on(self) -> tuple[str, ...]:
        """Its hosts; with ``runOnce`` all that could be the one."""
        return self.candidates if self.once else self.hosts

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = builtins(self)
        return data

    def content(self) -> dict[str, Any]:
        """All that defines the node, without where it was written: what its hash covers."""
        data = _said(self)
        data.pop("origin", None)
        return data

    def inputs(self) -> list[Any]:
        """All that decides what its step does on a host, wherever and after whatever else that is."""
        return [self.step_name, self.with_, self.item, self.outputs, self.become, self.inputs_hash]

    def content_hash(self) -> str:
        """A digest that changes exactly when the node's meaning changes."""
        return digest(self.content())


class GraphHost(Data, frozen=True):
    """A host as the graph knows it: how to reach it, and what is known of it before the run."""

    name: str
    connector: str = "ssh"
    address: str = ""
    internal_address: str = ""
    port: int | None = None
    user: str | None = None
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    """Inventory variables, already merged (all < role < group < host)."""
    per_host_limit: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else the connector takes (become, privateKeyPath, ...), as written."""

    @property
    def machine(self) -> tuple[str, int | None]:
        """The same for hosts that are the same machine, as far as the inventory tells."""
        return ("", None) if self.connector == "local" else (self.address, self.port)

    @property
    def becomes(self) -> str:
        """The user that it is worked on as unless a step says another one; empty for whoever logs in."""
        said = self.options.get("become") or ""
        if isinstance(said, Mapping):
            said = said.get("always") is not False and (said.get("user") or True)
        return "root" if said is True else said or ""


class Scope(Data, frozen=True):
    """Values that nodes of one module or task see; ``params`` of a used document are rendered in the parent scope."""

    id: str
    parent: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    secret_params: tuple[str, ...] = ()
    own_params: bool = False
    """True for a document of its own (pipeline, used module or task): its params replace the parent's."""
    vars: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Files from elsewhere by name, as they are written; everything inside the scope may use them."""
    base: str = ""
    """Folder of the file it was written in: relative paths (templates, scripts, copies) start there."""


class ExecutionFragment(Struct, frozen=True):
    """Linked nodes with their entries (which wait for nothing inside) and exits (for which waits what comes after)."""

    nodes: tuple[ExecutionNode, ...] = ()
    entry_nodes: tuple[NodeID, ...] = ()
    exit_nodes: tuple[NodeID, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[ExecutionNode], exits: Iterable[NodeID] | None = None) -> ExecutionFragment:
        """The fragment of some nodes; its exits are those that nothing inside waits for, unless they are given."""
        nodes = tuple(nodes)
        inside = {node.id for node in nodes}
        waits = {node.id: [dep.node for dep in node.dependencies if dep.node in inside] for node in nodes}
        if exits is None:
            last = inside.difference(*waits.values())
            exits = [node.id for node in nodes if node.id in last]
        return cls(nodes, tuple(name for name, others in waits.items() if not others), tuple(dict.fromkeys(exits)))

    @property
    def exits(self) -> tuple[ExecutionNode, ...]:
        """The exit nodes themselves."""
        known = {node.id: node for node in self.nodes}
        return tuple(known[name] for name in self.exit_nodes)


class ExecutionGraph(Struct, frozen=True):
    """The whole plan: nodes in graph order (the order they were written in), hosts, scopes and the run's policy."""

    name: str
    nodes: Mapping[NodeID, ExecutionNode]
    hosts: Mapping[str, GraphHost]
    scopes: Mapping[str, Scope]
    failure_policy: FailurePolicy = FailurePolicy.CONTINUE
    locks: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """sha256 of every file the graph was made from, by name."""
    description: str = ""
    target: str = ""
    """What the run works on: two runs of one target never overlap. It may be a path, so that JSON is without it."""

    def steps(self) -> Iterator[ExecutionNode]:
        """The nodes that are work, in graph order."""
        return (node for node in self.nodes.values() if node.kind is NodeKind.STEP)

    def actions(self) -> int:
        """How many (node, host) pairs there are."""
        return sum(len(node.hosts) for node in self.steps())

    def size(self) -> dict[str, int]:
        """How many hosts, nodes and actions there are."""
        hosts = {host for node in self.steps() for host in node.hosts}
        return {"hosts": len(hosts), "nodes": sum(1 for _ in self.steps()), "actions": self.actions()}

    def digraph(self) -> nx.DiGraph[tuple[NodeID, str]]:
        """The graph for networkx: a DAG of actions, with edges from what comes first to what waits for it.

        An action is a pair of node and host; a point where others meet (``web#end``), or a node without hosts, has an
        empty host. Of nodes alone it would be no DAG: batches of one node wait for each other. Loading networkx takes
        0.2 s: no plain run does it.
        """
        import networkx as nx

        graph: nx.DiGraph[tuple[NodeID, str]] = nx.DiGraph(name=self.name)
        for node in self.nodes.values():
            graph.add_nodes_from((node.id, host) for host in node.hosts or ("",))
        for node in self.nodes.values():
            for dep in node.dependencies:
                graph.add_edges_from(self._edges(node, dep), on=dep.on.value)
        return graph

    def _edges(self, node: ExecutionNode, dep: Dependency) -> Iterator[tuple[tuple[NodeID, str], tuple[NodeID, str]]]:
        """What a dependency says of actions. The hosts of an edge are always those of its step."""
        before, after = self.nodes[dep.node].hosts, node.hosts
        chosen = after or before
        if dep.hosts is not None:
            chosen = tuple(filter(frozenset(dep.hosts).__contains__, chosen))
        pairs: Iterable[tuple[str, str]]
        if not before:
            pairs = (("", host) for host in (chosen if after else ("",)))
        elif not after:
            pairs = ((host, "") for host in (chosen if node.is_gate else before))
        elif node.id.startswith(f"{dep.node}+"):
            # A fragment waits for the action that returned it, wherever it runs; here for all that may have.
            pairs = product(before, chosen)
        else:
            pairs = ((host, host) for host in filter(frozenset(before).__contains__, chosen))
        return (((dep.node, one), (node.id, other)) for one, other in pairs)

    def to_json(self) -> dict[str, Any]:
        """Plain data with a content hash for each node and for the whole; the same graph gives the same bytes."""
        saved = _Saved(
            format=FORMAT,
            name=self.name,
            description=self.description,
            failure_policy=self.failure_policy,
            locks=self.locks,
            hosts=tuple(self.hosts.values()),
            scopes=tuple(self.scopes.values()),
            nodes=tuple(self.nodes.values()),
            sources=dict(sorted(self.sources.items())),
            hash=self.content_hash(),
        )
        data: dict[str, Any] = builtins(saved)
        for node, raw in zip(saved.nodes, data["nodes"], strict=True):
            raw["hash"] = node.content_hash()
        return data

    def content_hash(self) -> str:
        """A digest of all that the run depends on."""
        return digest(
            {
                "name": self.name,
                "failurePolicy": self.failure_policy.value,
                "locks": dict(self.locks),
                "hosts": list(self.hosts.values()),
                # Where the files lie is not what they say: the same spec in another folder is the same graph.
                "scopes": [replace(scope, base="") for scope in self.scopes.values()],
                "nodes": [node.content() for node in self.nodes.values()],
            }
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExecutionGraph:
        """The graph that ``to_json`` wrote; raises ValueError if the data is not one or its hash does not fit."""
        if data.get("format") != FORMAT:
            raise ValueError(f"its graph is of format {data.get('format')}, and this version reads format {FORMAT}")
        try:
            saved = convert(data, _Saved)
        except ValidationError as error:
            raise ValueError(f"not a graph: {error}") from error
        graph = cls(
            name=saved.name,
            description=saved.description,
            nodes={node.id: node for node in saved.nodes},
            hosts={host.name: host for host in saved.hosts},
            scopes={scope.id: scope for scope in saved.scopes},
            failure_policy=saved.failure_policy,
            locks=saved.locks,
            sources=saved.sources,
        )
        if graph.content_hash() != saved.hash:
            raise ValueError("the graph does not match its own hash: the file was edited or is damaged")
        return graph

    def with_nodes(self, nodes: Iterable[ExecutionNode]) -> ExecutionGraph:
        """The same graph with other nodes."""
        return replace(self, nodes={node.id: node for node in nodes})


class _Saved(Struct, rename="camel", kw_only=True):
    """A graph as it is saved: what has a name of its own is in lists, so that its order is part of it."""

    format: int
    name: str
    description: str
    failure_policy: FailurePolicy
    locks: Mapping[str, int]
    hosts: tuple[GraphHost, ...]
    scopes: tuple[Scope, ...]
    nodes: tuple[ExecutionNode, ...]
    sources: Mapping[str, str]
    hash: str


def digest(data: Any) -> str:
    """sha256 of the canonical JSON form of plain data, and of parts of a graph."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_said_or_text)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _said_or_text(value: Any) -> Any:
    return _said(value) if isinstance(value, Struct) else str(value)


def _said(part: Struct) -> dict[str, Any]:
    """What is not as by default, so that a digest stays the same when there is more that could be said.

    By value: msgspec leaves out only what is the very object of the default.
    """
    return {key: value for name, key, default in _defaults(type(part)) if (value := getattr(part, name)) != default}


@lru_cache
def _defaults(kind: type[Struct]) -> list[tuple[str, str, Any]]:
    """The fields of a part of a graph: attribute, name in JSON, default."""
    return [
        (each.name, each.encode_name, each.default if each.default_factory is NODEFAULT else each.default_factory())
        for each in fields(kind)
    ]
