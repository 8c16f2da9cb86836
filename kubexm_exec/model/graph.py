"""The execution graph: pure, serialisable data: steps, their hosts, and their dependencies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import NODEFAULT, Struct, ValidationError, convert, field
from msgspec.structs import fields, replace

from kubexm_exec.model.data import builtins
from kubexm_exec.model.result import where

if TYPE_CHECKING:
    import networkx as nx

NodeID: TypeAlias = str
"""The path of a node: ``module/task/step``, with ``[key]`` for a loop item, with ``+name`` for a fragment's node."""

_MOST_PLACES = 3

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
    """The outcome of a dependency that its dependent requires."""

    SUCCESS = "success"
    FAILURE = "failure"
    DONE = "done"
    BEGUN = "begun"
    """It has ended, however, and may have done something; one of several is enough."""


class Hook(StrEnum):
    """The hook a node belongs to, if any; handlers are no hooks, but like those they are no steps of the task."""

    NONE = ""
    PRE = "pre"
    POST = "post"
    ON_FAILURE = "onFailure"
    ALWAYS = "always"
    HANDLER = "handler"


END_HOOKS: Final = (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS)
"""Hooks at the end of a scope; they may undo what its ``pre`` hooks did."""


class Part(StrEnum):
    """The parts of a group of steps."""

    BODY = "body"
    RESCUE = "rescue"
    """Runs for a host on which a step of the body failed."""
    ALWAYS = "always"
    """Runs for a host on which something of the group has begun, however that ended."""


class FailurePolicy(StrEnum):
    """What a failed node does to the rest of the run."""

    CONTINUE = "continue"
    FAIL_FAST = "failFast"
    ROLLBACK = "rollback"


class Dependency(Data, frozen=True):
    """An edge: the required node, how it is waited for, and its required outcome.

    ``hosts`` limits the edge to some hosts (batches): for a step that waits for a gate, the step's hosts that wait;
    for a gate that waits for a step, the step's hosts that are waited for. ``None`` means all of them.
    """

    node: NodeID
    mode: Mode = Mode.HOST
    on: On = On.SUCCESS
    hosts: tuple[str, ...] | None = None


class Retry(Data, frozen=True):
    """Retries of a failed action."""

    attempts: int = 1
    delay: float = 0.0
    backoff: str = "constant"  # constant | linear | exponential
    max_delay: float | None = None
    on: tuple[str, ...] = ("failed", "timedOut", "unreachable")
    until: str | bool | None = None
    """An attempt after which it does not hold is repeated, whatever ``on`` says."""

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
    """The policies of a step: retry, timeout and the effect of its failure."""

    retry: Retry = Retry()
    timeout: float | None = None
    ignore_errors: bool = False
    max_failures: str = "0"  # a number, or a percentage of the node's hosts
    repeatable: bool | None = None
    """Whether it may be run again when its outcome is unknown; None: as its step type says."""

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


class Membership(Data, frozen=True):
    """The part of a group of steps that a node belongs to."""

    group: str
    """The id of the group, ``module/task/group``."""
    part: Part = Part.BODY


class Origin(Data, frozen=True):
    """Where in the user's files a node comes from; line 0 means it is not known."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Loop(Data, frozen=True):
    """A loop as it is written: its items, or lists to combine, and the expression for the key of an item."""

    items: Any = None
    matrix: Mapping[str, Any] | None = None
    key: str | None = None
    parallel: bool = False

    def __str__(self) -> str:
        """What it is over, for people."""
        return str(self.items) if self.matrix is None else ", ".join(map(str, self.matrix.values()))


class Batch(Data, frozen=True):
    """One of the batches in which a task rolls over its hosts."""

    number: int
    count: int
    hosts: tuple[str, ...]


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
    """The hosts that it serves: an action is the node and one of them, and belongs to that host whatever its place."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The place of the action for each host that is not served on itself."""
    choices: tuple[tuple[str, ...], ...] = ()
    """``delegateTo`` with ``one``: places of which the run chooses one for each host, in order; until it has, the place
    of a host is the first of them."""
    choice: Mapping[str, int] = field(default_factory=dict)
    """Which of the ``choices`` a host has, if that is not the first; -1 for one whose place is known already."""
    batch: Batch | None = None
    """Of a hook of a batch: the batch."""
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
    loop: Loop | None = None
    """Its items are known only when it is reached: it runs nothing itself, but adds a node for each of them."""
    item: Any = None
    has_item: bool = False
    """Whether its expressions know an item."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    failed_when: tuple[str | bool, ...] = ()
    """If all of these hold of its result, the action has failed although its work was done."""
    scope: str = ""
    """Key of the values (params, vars) this node sees: see ``ExecutionGraph.scopes``."""
    policy: Policy = Policy()
    constraints: Constraints = Constraints()
    hook: Hook = Hook.NONE
    groups: tuple[Membership, ...] = ()
    """The groups of steps that it is in, the innermost first."""
    notifies: tuple[NodeID, ...] = ()
    """The handlers that a change by this node makes due on its host, as far as they have that host: the ids of the
    nodes at the end of their scopes."""
    handler: NodeID = ""
    """The handler that it runs: its own id at the end of the scope, that one's id at a flush."""
    become: bool | str | None = None
    """The user it runs as, if not that of the host: a name, True for root, False for the login user."""
    env: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    """Environment variables of the commands that it runs on its host: by name the scope around it that an expression
    sees (None: it is the step's own, and sees what the step sees), and the value as written."""
    sensitive: bool = False
    reversible: bool = False
    speaks: bool = False
    """Its output is for the people who watch."""
    """Whether the step type says it can be undone."""
    every_session: bool = False
    """What it finds out holds for one process only: each session does it again, on hosts with work left."""
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
    def judgements(self) -> tuple[str, ...]:
        """The expressions that judge its result."""
        return tuple(each for each in (*self.failed_when, self.policy.retry.until) if isinstance(each, str))

    @property
    def is_gate(self) -> bool:
        """Whether this is a virtual node."""
        return self.kind is NodeKind.GATE

    @property
    def is_item(self) -> bool:
        """Whether it is one of the items of a loop; what an item returns knows the item, and is none itself."""
        return self.has_item and "+" not in self.id.rpartition("]")[2]

    @property
    def opens_batch(self) -> bool:
        """Whether it is a gate between two batches, and not one that only counts what has failed in a batch."""
        return self.batch_budget is not None and not self.id.endswith("#failures")

    @property
    def is_of_group(self) -> bool:
        """Whether it is a step of the ``always`` of a group, which is a hook of that group alone."""
        return self.hook is Hook.ALWAYS and bool(self.groups) and self.groups[0].part is Part.ALWAYS

    @property
    def after_failure(self) -> str:
        """The group whose ``rescue`` or ``always`` it is in; the innermost one."""
        return next((each.group for each in self.groups if each.part is not Part.BODY), "")

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

    def places_for(self, host: str) -> tuple[str, ...]:
        """The places of which the run chooses one for a host; none if there is no choice."""
        number = self.choice.get(host, 0) if self.choices else -1
        return self.choices[number] if number >= 0 else ()

    @property
    def summary(self) -> str:
        """Where it works for whom, in few words: ``4 hosts``, ``lb1 for web1``, ``cp1 or cp2 for 4 hosts``."""
        hosts = self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        places = list(dict.fromkeys(chain(*self.choices) if self.choices else map(self.place, self.hosts)))
        if not self.places or places == list(self.hosts):
            return hosts
        shown = places if len(places) <= _MOST_PLACES else [*places[: _MOST_PLACES - 1], "..."]
        return f"{(' or ' if self.choices else ', ').join(shown)} for {hosts}"

    @property
    def locations(self) -> tuple[str, ...]:
        """The hosts on which it works, or may."""
        if not self.places:
            return self.hosts
        return tuple(dict.fromkeys((*map(self.place, self.hosts), *chain(*self.choices))))

    def joined(self, other: ExecutionNode) -> ExecutionNode:
        """The node with the hosts that the same node has elsewhere, too."""
        more = tuple(host for host in other.hosts if host not in set(self.hosts))
        if not more:
            return self
        places, choices = {**other.places, **self.places}, dict.fromkeys((*self.choices, *other.choices))
        choice = {
            host: list(choices).index(found) if (found := node.places_for(host)) else -1
            for node in (other, self)
            for host in node.hosts
            if node.choices
        }
        return replace(self, hosts=self.hosts + more, places=places, choices=tuple(choices), choice=choice)

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
        found = [self.step_name, self.with_, self.item, self.outputs, self.become, self.inputs_hash]
        return [*found, *(part for part in (self.env, self.loop) if part)]

    def content_hash(self) -> str:
        """A digest that changes exactly when the meaning of the node changes."""
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
        """The user of its steps unless they name another one; empty for the login user."""
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
    given: Mapping[str, Any] = field(default_factory=dict)
    """Of the pipeline: variables from outside, which are data and win over all others, also those of hosts."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Files from elsewhere by name, as they are written; everything inside the scope may use them."""
    base: str = ""
    """Folder of the file it was written in: relative paths (templates, scripts, copies) start there."""
    item: Any = None
    has_item: bool = False
    """Whether it is around one item of a looped module or task: what is inside knows the item."""


def scope_of_item(scopes: Mapping[str, Scope], scope_id: str) -> Scope | None:
    """The scope of the item that a scope knows, if it is in a loop; a used document knows none from outside."""
    scope = scopes.get(scope_id)
    while scope is not None and not scope.has_item:
        scope = None if scope.own_params or scope.parent is None else scopes.get(scope.parent)
    return scope


class ExecutionFragment(Struct, frozen=True):
    """Linked nodes with their entries (which wait for nothing inside) and exits (for which waits what comes after)."""

    nodes: tuple[ExecutionNode, ...] = ()
    exit_nodes: tuple[NodeID, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[ExecutionNode], exits: Iterable[NodeID] | None = None) -> ExecutionFragment:
        """The fragment of some nodes; its exits are those that nothing inside waits for, unless they are given."""
        nodes = tuple(nodes)
        if exits is None:
            waited_for = {dep.node for node in nodes for dep in node.dependencies}
            exits = [node.id for node in nodes if node.id not in waited_for]
        return cls(nodes, tuple(dict.fromkeys(exits)))

    @property
    def entry_nodes(self) -> tuple[NodeID, ...]:
        """The nodes that wait for nothing inside."""
        inside = {node.id for node in self.nodes}
        return tuple(node.id for node in self.nodes if inside.isdisjoint(dep.node for dep in node.dependencies))

    @classmethod
    def of_items(cls, node: ExecutionNode, host: str, items: Iterable[tuple[str, Any]]) -> ExecutionFragment:
        """The fragment of a loop on a host: a node for each item, one after another unless the loop is parallel."""
        parallel = node.loop is not None and node.loop.parallel
        places = {host: node.places[host]} if host in node.places else {}
        choice = {host: node.choice[host]} if host in node.choice else {}
        made: list[ExecutionNode] = []
        for key, item in items:
            waits = Dependency(node.id if parallel or not made else made[-1].id)
            made.append(
                replace(
                    node, id=f"{node.id}[{key}]", loop=None, item=item, has_item=True, hosts=(host,), places=places,
                    choice=choice, once="", candidates=(), dependencies=(waits,),
                )
            )  # fmt: skip
        return cls.of(made)

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
    """The target: two runs of one target never overlap. It may be a path, so that JSON omits it."""

    def steps(self) -> Iterator[ExecutionNode]:
        """The nodes that are work, in graph order."""
        return (node for node in self.nodes.values() if node.kind is NodeKind.STEP)

    def actions(self) -> int:
        """How many (node, host) pairs there are."""
        return sum(len(node.hosts) for node in self.steps())

    def size(self) -> dict[str, int]:
        """How many hosts, nodes and actions there are."""
        places = [node.hosts for node in self.steps()]
        hosts: set[str] = set().union(*set(places))
        return {"hosts": len(hosts), "nodes": len(places), "actions": sum(map(len, places))}

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
            # A fragment waits for the action that returned it: on the same host, unless it names other ones.
            own = frozenset(chosen) <= frozenset(before)
            pairs = zip(chosen, chosen, strict=True) if own else product(before, chosen)
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


def returned_by(node: NodeID) -> Iterator[NodeID]:
    """The nodes that may have added a node to the graph, innermost first, as its id tells: it may have had an item."""
    while (end := max(node.rfind("+"), node.rfind("["))) > 0:
        node = node[:end]
        yield node


def digest(data: Any) -> str:
    """sha256 of the canonical JSON form of plain data, and of parts of a graph."""
    return hashlib.sha256(_CANONICAL.encode(data).encode("utf-8", "surrogatepass")).hexdigest()


def _said_or_text(value: Any) -> Any:
    return _said(value) if isinstance(value, Struct) else str(value)


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_said_or_text)


def _said(part: Struct) -> dict[str, Any]:
    """The fields that differ by value from their defaults: a digest stays the same when fields are added."""
    return {key: value for name, key, default in _defaults(type(part)) if (value := getattr(part, name)) != default}


@lru_cache
def _defaults(kind: type[Struct]) -> list[tuple[str, str, Any]]:
    """The fields of a part of a graph: attribute, name in JSON, default."""
    return [
        (each.name, each.encode_name, each.default if each.default_factory is NODEFAULT else each.default_factory())
        for each in fields(kind)
    ]
