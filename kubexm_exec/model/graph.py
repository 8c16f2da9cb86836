"""The execution graph: pure, serialisable data that says which step runs on which hosts after what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.model.result import where

NodeID: TypeAlias = str
"""The path of a node: ``module/task/step``, with ``[key]`` for a loop item, with ``+name`` for a fragment's node."""

FORMAT = 1
"""Version of the JSON form of a graph; a plan written by a newer one is refused."""


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


class Dependency(Struct, frozen=True):
    """An edge: the node that is waited for, how, and for which outcome.

    ``hosts`` limits the edge to some hosts (batches): for a step that waits for a gate, the step's hosts that wait;
    for a gate that waits for a step, the step's hosts that are waited for. ``None`` means all of them.
    """

    node: NodeID
    mode: Mode = Mode.HOST
    on: On = On.SUCCESS
    hosts: tuple[str, ...] | None = None


class Retry(Struct, frozen=True):
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


class Policy(Struct, frozen=True):
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


class Constraints(Struct, frozen=True):
    """Limits on how many actions of a node run at once."""

    global_limit: int | None = None
    per_host_limit: int | None = None
    locks: tuple[str, ...] = ()


class Origin(Struct, frozen=True):
    """Where in the user's files a node comes from; line 0 means it is not known."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class ExecutionNode(Struct, frozen=True, kw_only=True):
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
    with_: Mapping[str, Any] = field(default_factory=dict)
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

    def content(self) -> dict[str, Any]:
        """All that defines the node, without where it was written: what its hash covers."""
        data = node_to_json(self)
        data.pop("origin", None)
        return data

    def inputs(self) -> list[Any]:
        """All that decides what its step does on a host, wherever and after whatever else that is."""
        return [self.step_name, self.with_, self.item, self.outputs, self.become, self.inputs_hash]

    def content_hash(self) -> str:
        """A digest that changes exactly when the node's meaning changes."""
        return digest(self.content())


class GraphHost(Struct, frozen=True):
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
    def becomes(self) -> str:
        """The user that it is worked on as unless a step says another one; empty for whoever logs in."""
        said = self.options.get("become") or ""
        if isinstance(said, Mapping):
            said = said.get("always") is not False and (said.get("user") or True)
        return "root" if said is True else said or ""


class Scope(Struct, frozen=True):
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
    """Some nodes with their entries (nothing inside comes before them) and exits (nothing inside comes after them)."""

    nodes: tuple[ExecutionNode, ...]
    entry_nodes: tuple[NodeID, ...]
    exit_nodes: tuple[NodeID, ...]


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

    def digraph(self) -> Any:
        """The graph as a ``networkx.DiGraph`` of node ids, edges from what comes first to what waits for it."""
        import networkx as nx

        graph: Any = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from((dep.node, node.id) for node in self.nodes.values() for dep in node.dependencies)
        return graph

    def to_json(self) -> dict[str, Any]:
        """Plain data with a content hash for each node and for the whole; the same graph gives the same bytes."""
        nodes = []
        for node in self.nodes.values():
            data = node_to_json(node)
            data["hash"] = node.content_hash()
            nodes.append(data)
        body: dict[str, Any] = {
            "format": FORMAT,
            "name": self.name,
            "description": self.description,
            "failurePolicy": self.failure_policy.value,
            "locks": dict(self.locks),
            "hosts": [host_to_json(host) for host in self.hosts.values()],
            "scopes": [scope_to_json(scope) for scope in self.scopes.values()],
            "nodes": nodes,
            "sources": dict(sorted(self.sources.items())),
        }
        body["hash"] = self.content_hash()
        return body

    def content_hash(self) -> str:
        """A digest of all that the run depends on."""
        return digest(
            {
                "name": self.name,
                "failurePolicy": self.failure_policy.value,
                "locks": dict(self.locks),
                "hosts": [host_to_json(host) for host in self.hosts.values()],
                # Where the files lie is not what they say: the same spec in another folder is the same graph.
                "scopes": [{**scope_to_json(scope), "base": ""} for scope in self.scopes.values()],
                "nodes": [node.content() for node in self.nodes.values()],
            }
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExecutionGraph:
        """The graph that ``to_json`` wrote; raises ValueError if the data is not one or its hash does not fit."""
        if data.get("format") != FORMAT:
            raise ValueError(f"not a graph of format {FORMAT}")
        try:
            nodes = {raw["id"]: node_from_json(raw) for raw in data["nodes"]}
            graph = cls(
                name=data["name"],
                description=data.get("description", ""),
                nodes=nodes,
                hosts={raw["name"]: host_from_json(raw) for raw in data["hosts"]},
                scopes={raw["id"]: scope_from_json(raw) for raw in data["scopes"]},
                failure_policy=FailurePolicy(data["failurePolicy"]),
                locks=dict(data["locks"]),
                sources=dict(data["sources"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a graph: {error!r}") from error
        if graph.content_hash() != data.get("hash"):
            raise ValueError("the graph does not match its own hash: the file was edited or is damaged")
        return graph

    def with_nodes(self, nodes: Iterable[ExecutionNode]) -> ExecutionGraph:
        """The same graph with other nodes."""
        return replace(self, nodes={node.id: node for node in nodes})


def digest(data: Any) -> str:
    """sha256 of the canonical JSON form of plain data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# Parts of a graph as plain JSON data, and back


def _dependency_to_json(dep: Dependency) -> dict[str, Any]:
    data: dict[str, Any] = {"node": dep.node, "mode": dep.mode.value, "on": dep.on.value}
    if dep.hosts is not None:
        data["hosts"] = list(dep.hosts)
    return data


def node_to_json(node: ExecutionNode) -> dict[str, Any]:
    """A node as plain data, without the keys that say nothing."""
    retry = node.policy.retry
    data: dict[str, Any] = {
        "id": node.id,
        "kind": node.kind.value,
        "name": node.name,
        "stepName": node.step_name,
        "module": node.module,
        "task": node.task,
        "hosts": list(node.hosts),
        "dependencies": [_dependency_to_json(dep) for dep in node.dependencies],
        "with": dict(node.with_),
        "when": node.when,
        "guards": [list(guard) for guard in node.guards],
        "outputs": dict(node.outputs),
        "scope": node.scope,
        "retry": {
            "attempts": retry.attempts,
            "delay": retry.delay,
            "backoff": retry.backoff,
            "maxDelay": retry.max_delay,
            "on": list(retry.on),
        },
        "timeout": node.policy.timeout,
        "ignoreErrors": node.policy.ignore_errors,
        "maxFailures": node.policy.max_failures,
        "globalLimit": node.constraints.global_limit,
        "perHostLimit": node.constraints.per_host_limit,
        "locks": list(node.constraints.locks),
        "hook": node.hook.value,
        "sensitive": node.sensitive,
        "reversible": node.reversible,
        "tags": list(node.tags),
        "skip": node.skip,
        "pause": node.pause,
        "batchBudget": node.batch_budget,
        "inputsHash": node.inputs_hash,
        "origin": {"file": node.origin.file, "line": node.origin.line, "column": node.origin.column},
    }
    if node.candidates:
        data["once"] = node.once
        data["candidates"] = list(node.candidates)
    if node.has_item:
        data["item"] = node.item
    if node.become is not None:
        data["become"] = node.become
    if node.places:
        data["places"] = dict(node.places)
    return data


def node_from_json(raw: Mapping[str, Any]) -> ExecutionNode:
    """The node that ``node_to_json`` wrote."""
    retry = raw["retry"]
    return ExecutionNode(
        id=raw["id"],
        kind=NodeKind(raw["kind"]),
        name=raw["name"],
        step_name=raw["stepName"],
        module=raw["module"],
        task=raw["task"],
        hosts=tuple(raw["hosts"]),
        places=raw.get("places", {}),
        once=raw.get("once", ""),
        candidates=tuple(raw.get("candidates", ())),
        dependencies=tuple(
            Dependency(
                dep["node"],
                Mode(dep["mode"]),
                On(dep["on"]),
                tuple(dep["hosts"]) if dep.get("hosts") is not None else None,
            )
            for dep in raw["dependencies"]
        ),
        with_=raw["with"],
        when=raw["when"],
        guards=tuple((scope, condition) for scope, condition in raw["guards"]),
        item=raw.get("item"),
        has_item="item" in raw,
        outputs=raw["outputs"],
        scope=raw["scope"],
        policy=Policy(
            retry=Retry(
                attempts=retry["attempts"],
                delay=retry["delay"],
                backoff=retry["backoff"],
                max_delay=retry["maxDelay"],
                on=tuple(retry["on"]),
            ),
            timeout=raw["timeout"],
            ignore_errors=raw["ignoreErrors"],
            max_failures=raw["maxFailures"],
        ),
        constraints=Constraints(raw["globalLimit"], raw["perHostLimit"], tuple(raw["locks"])),
        hook=Hook(raw["hook"]),
        become=raw.get("become"),
        sensitive=raw["sensitive"],
        reversible=raw["reversible"],
        tags=tuple(raw["tags"]),
        skip=raw["skip"],
        pause=raw["pause"],
        batch_budget=raw["batchBudget"],
        inputs_hash=raw["inputsHash"],
        origin=Origin(**raw["origin"]),
    )


def host_to_json(host: GraphHost) -> dict[str, Any]:
    """A host as plain data."""
    return {
        "name": host.name,
        "connector": host.connector,
        "address": host.address,
        "internalAddress": host.internal_address,
        "port": host.port,
        "user": host.user,
        "roles": list(host.roles),
        "groups": list(host.groups),
        "labels": dict(host.labels),
        "vars": dict(host.vars),
        "perHostLimit": host.per_host_limit,
        "options": dict(host.options),
    }


def host_from_json(raw: Mapping[str, Any]) -> GraphHost:
    """The host that ``host_to_json`` wrote."""
    return GraphHost(
        name=raw["name"],
        connector=raw["connector"],
        address=raw["address"],
        internal_address=raw["internalAddress"],
        port=raw["port"],
        user=raw["user"],
        roles=tuple(raw["roles"]),
        groups=tuple(raw["groups"]),
        labels=raw["labels"],
        vars=raw["vars"],
        per_host_limit=raw["perHostLimit"],
        options=raw["options"],
    )


def scope_to_json(scope: Scope) -> dict[str, Any]:
    """A scope as plain data."""
    data = {
        "id": scope.id,
        "parent": scope.parent,
        "params": dict(scope.params),
        "secretParams": list(scope.secret_params),
        "ownParams": scope.own_params,
        "vars": dict(scope.vars),
        "outputs": dict(scope.outputs),
        "base": scope.base,
    }
    if scope.resources:
        data["resources"] = dict(scope.resources)
    return data


def scope_from_json(raw: Mapping[str, Any]) -> Scope:
    """The scope that ``scope_to_json`` wrote."""
    return Scope(
        id=raw["id"],
        parent=raw["parent"],
        params=raw["params"],
        secret_params=tuple(raw["secretParams"]),
        own_params=raw["ownParams"],
        vars=raw["vars"],
        outputs=raw["outputs"],
        resources=raw.get("resources", {}),
        base=raw["base"],
    )
