"""What a node's expressions see on a host, and their values: params, vars, host, facts, outputs of earlier steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from kubexm_exec.model.data import builtins
from kubexm_exec.model.graph import (
    ExecutionGraph,
    ExecutionNode,
    GraphHost,
    Loop,
    Membership,
    NodeID,
    Part,
    Scope,
    scope_of_item,
)
from kubexm_exec.model.plain import plain
from kubexm_exec.model.result import Status
from kubexm_exec.values.expressions import ExpressionError, Expressions, Namespace, UnknownValueError, is_dynamic
from kubexm_exec.values.limits import Budget
from kubexm_exec.values.names import BUDGET, Explained
from kubexm_spec.diagnostics import some

ROOTS = ("host", "origin", "hosts", "facts", "params", "vars", "steps", "tasks", "modules", "item", "secret", "run")
"""The top-level names of every expression; ``result`` is there too in a step's own ``outputs``, ``failedWhen`` and
``retry.until``, ``batch`` in the hooks of a batch, and ``failure`` in ``rescue`` and ``always`` of a group."""

OF_NODE = frozenset({"steps", "tasks", "modules", "item", "batch", "failure", "result"})
"""Those of them whose values are not the same for all nodes of a scope."""

CONTROL_NODE = "control-node"
"""This machine; it is a host like any other, but not one of the inventory's."""

NO_ITEMS = "there is nothing to loop over"
"""Why the one node of an empty loop is skipped."""


class ActionRecord(Struct, frozen=True):
    """What later expressions may know of a finished action."""

    status: str
    changed: bool = False
    outputs: Mapping[str, Any] = field(default_factory=dict)
    unknown: str = ""
    """Not empty: its outputs are not known (dry-run, check), because of this; that it changes something may be."""
    message: str = ""
    """What was said of it: why it was skipped, how it failed."""
    failure: Mapping[str, Any] | None = None
    """Of a failure that its step does not ignore: what ``failure`` tells of it."""
    rescued: bool = False
    """A rescue has handled it."""
    foreseen: bool = False
    """It has not run (dry-run, check): nobody knows whether it fails."""


class Records(Protocol):
    """Where finished actions are looked up."""

    def get(self, node: NodeID, host: str) -> ActionRecord | None:
        """The record of an action, or None if it has not finished."""

    def owes(self, node: NodeID, host: str, by: tuple[NodeID, str] | None) -> bool:
        """Whether a change that an earlier session of the run made counts for the action ``by``, or for anybody."""


def task_key(node: ExecutionNode) -> str:
    """What names of steps are unique in: the task, or one hook of it."""
    return f"{node.task}#{node.hook.value}" if node.hook else node.task


class StepIndex:
    """Finds nodes by the names that expressions use: ``step``, ``task/step`` or ``module/task/step``."""

    def __init__(self, nodes: Mapping[NodeID, ExecutionNode]) -> None:
        self._nodes = dict(nodes)
        self._by_name: dict[tuple[str, str, str], list[NodeID]] = {}
        self._names: dict[tuple[str, str], dict[str, None]] = {}
        self._parts: dict[Membership, dict[NodeID, None]] = {}
        """The nodes in the parts of groups of steps."""
        for node in nodes.values():
            self.add(node)

    def add(self, node: ExecutionNode) -> None:
        """Know one more node (of a fragment)."""
        if not node.is_gate:
            known = self._nodes.get(node.id)
            if known is not None and known.hosts != node.hosts and not set(node.hosts).issuperset(known.hosts):
                # Several hosts returned the same fragment.
                node = known.joined(node)
            self._nodes[node.id] = node
            found = self._by_name.setdefault((node.module, task_key(node), node.name), [])
            if node.id not in found:
                found.append(node.id)
            self._names.setdefault((node.module, task_key(node)), {})[node.name] = None
            for each in node.groups:
                self._parts.setdefault(each, {})[node.id] = None

    def move(self, node: ExecutionNode) -> None:
        """A node that is known already has other hosts."""
        self._nodes[node.id] = node

    def part(self, group: str, part: Part) -> Iterable[NodeID]:
        """The nodes in a part of a group of steps, in graph order."""
        return self._parts.get(Membership(group, part), ())

    def get(self, node_id: NodeID) -> ExecutionNode:
        """A node by its id."""
        return self._nodes[node_id]

    def find(self, key: str, node: ExecutionNode) -> list[NodeID]:
        """The nodes (several for a loop) that a key means in an expression of a node."""
        if key in self._nodes and not self._nodes[key].is_gate and not self._nodes[key].loop:
            return [key]
        name, item = (key, "") if not key.endswith("]") else (key.rpartition("[")[0], key.rpartition("[")[2])
        parts = name.split("/")
        if len(parts) == 1:
            places = [(node.module, task_key(node), name), (node.module, node.task, name)]
            if "+" in node.name:
                # A step of a fragment sees the fragment's own steps first.
                places.insert(0, (node.module, task_key(node), f"{node.name.rpartition('+')[0]}+{name}"))
        elif len(parts) == 2:
            places = [(node.module, parts[0], parts[1])]
        else:
            places = [(parts[0], parts[1], "/".join(parts[2:]))]
        for place in places:
            found = self._by_name.get(place, [])
            if item:
                found = [one for one in found if one.endswith(f"[{item}")]
            if found:
                return found
        return [key] if key in self._nodes and not self._nodes[key].is_gate else []

    def names(self, node: ExecutionNode) -> list[str]:
        """The step names that an expression of a node may use."""
        own = self._names.get((node.module, task_key(node)), {})
        return sorted({**own, **self._names.get((node.module, node.task), {})})

    def tasks(self, module: str) -> list[str]:
        """The names of a module's tasks."""
        return sorted({task for (m, task) in self._names if m == module and task and "#" not in task})


class Evaluator:
    """Makes contexts and evaluates what nodes hold; pure except for the lookups it is given."""

    def __init__(
        self,
        graph: ExecutionGraph,
        expressions: Expressions,
        *,
        records: Records,
        facts: Callable[[str], Mapping[str, Any]],
        secret: Callable[[str], str],
        run_id: str = "",
    ) -> None:
        self.graph = graph
        self.expressions = expressions
        self.records = records
        self.facts = facts
        self.secret = secret
        self.run_id = run_id
        self.index = StepIndex(graph.nodes)
        self._hosts = {name: host_values(host) for name, host in graph.hosts.items()}
        self._inventory = {name: host for name, host in self._hosts.items() if name != CONTROL_NODE} or self._hosts
        self._dynamic: dict[NodeID, bool] = {}

    def context(
        self, node: ExecutionNode, host: str, *, like: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """The names that a node's expressions see when it works for a host, which is ``origin`` in them.

        ``like``: another context with the same params and vars.
        """
        # Outputs are read by other steps, and which changes those have seen is not known here.
        view = _View(self, node, host, by=None if "result" in more else (node.id, host))
        context: dict[str, Any] = {
            "host": self._hosts[view.place],
            "origin": self._hosts[host],
            "hosts": self._inventory,
            "facts": _Facts(self.facts, view.place),
            "params": view.params(node.scope) if like is None else like["params"],
            "vars": view.vars(node.scope) if like is None else like["vars"],
            "steps": _Steps(view, node),
            "tasks": Namespace("tasks", _Any(), lambda name: view.task(node.module, name)),
            "modules": Namespace("modules", _Any(), view.module),
            "secret": self.secret,
            "run": {"id": self.run_id, "name": self.graph.name},
            BUDGET: Budget(),
        }
        if node.has_item:
            context["item"] = node.item
        elif (around := scope_of_item(self.graph.scopes, node.scope)) is not None:
            context["item"] = around.item
        if node.batch is not None:
            context["batch"] = {**builtins(node.batch), "hosts": list(node.batch.hosts)}
        if node.groups and (group := node.after_failure):
            context["failure"] = self._failure(group, host)
        context.update(more)
        view.root = context
        return context

    def _failure(self, group: str, host: str) -> Mapping[str, Any] | None:
        """The first failure in the body of a group on a host; None if nothing failed."""
        records: list[ActionRecord] = []
        for node in self.index.part(group, Part.BODY):
            record = self.records.get(node, host)
            if record is not None and not (record.rescued and self._is_rescued_inside(node, group, host)):
                records.append(record)
        found = next((each.failure for each in records if each.failure is not None), None)
        # As long as something has not really run, nobody knows what will fail.
        is_open = not records or any(each.foreseen for each in records)
        return _UnknownFailure() if found is None and is_open else found

    def _is_rescued_inside(self, node: NodeID, group: str, host: str) -> bool:
        """Whether a group inside another one has a rescue for a node of both, and that rescue did not fail."""
        for inner in itertools.takewhile(lambda each: each.group != group, self.index.get(node).groups):
            rescue = self.index.part(inner.group, Part.RESCUE) if inner.part is Part.BODY else ()
            records = [self.records.get(each, host) for each in rescue]
            if records and all(each is None or each.failure is None for each in records):
                return True
        return False

    def is_static(self, node: ExecutionNode) -> bool:
        """Whether the node's parameters hold no expression, so that all hosts share them."""
        known = self._dynamic.get(node.id)
        if known is None:
            known = self._dynamic[node.id] = is_dynamic(node.with_)
        return not known

    def unmet(self, node: ExecutionNode, host: str) -> str | None:
        """The condition that does not hold on a host: the node's, or one of the task and module around it."""
        for scope, guard in node.guards:
            # They are about the hosts of the task, wherever a hook works for these.
            if not self.is_met(guard, replace(node, scope=scope, places={}, has_item=False), host):
                return as_written(guard)
        when = node.when
        if when is None or when is True:
            return None
        return None if when is not False and self.is_met(when, node, host) else as_written(when)

    def is_met(self, condition: str | bool, node: ExecutionNode, host: str) -> bool:
        """Whether a condition of a node holds on a host."""
        return self.expressions.condition(condition, self.context(node, host))

    def params(self, node: ExecutionNode, host: str, *, skip: frozenset[str] = frozenset()) -> dict[str, Any]:
        """The node's ``with`` for a host; keys in ``skip`` (bare expressions) are left as they are."""
        if self.is_static(node):
            return dict(node.with_)
        context = self.context(node, host)
        render = self.expressions.render
        return {key: value if key in skip else render(value, context) for key, value in node.with_.items()}

    def partial_params(
        self, node: ExecutionNode, host: str, *, skip: frozenset[str] = frozenset()
    ) -> tuple[dict[str, Any], list[UnknownValueError]]:
        """Like ``params``, but a text whose value is not known yet stays as written and is named."""
        context = self.context(node, host)
        unknown: list[UnknownValueError] = []
        rendered = {
            key: value if key in skip else self._partial(value, context, unknown) for key, value in node.with_.items()
        }
        return rendered, unknown

    def _partial(self, value: Any, context: Mapping[str, Any], unknown: list[UnknownValueError]) -> Any:
        if isinstance(value, str):
            try:
                return self.expressions.render(value, context)
            except UnknownValueError as error:
                unknown.append(error)
                return value
        if isinstance(value, Mapping):
            return {key: self._partial(item, context, unknown) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._partial(item, context, unknown) for item in value]
        return value

    def items(
        self, node: ExecutionNode, loop: Loop, host: str, is_secret: Callable[[str], bool]
    ) -> list[tuple[str, Any]]:
        """The items of a loop for a host, each with its key; raises ItemsError and ExpressionError."""
        from kubexm_exec.values.items import items_of

        def evaluate(value: Any, part: tuple[str, ...], names: Mapping[str, Any]) -> Any:
            if part == ("key",) or (isinstance(value, str) and not is_dynamic(value)):
                return self.expressions.expression(value)({**context, **names})
            return self.expressions.render(value, context)

        context = self.context(node, host)
        return [(key, plain(item)) for key, item in items_of(loop, evaluate, distinct=True, is_secret=is_secret)]

    def env(self, node: ExecutionNode, host: str) -> dict[str, str]:
        """The environment variables of the node's commands for a host; raises ExpressionError."""
        found: dict[str, str] = {}
        contexts: dict[str | None, Mapping[str, Any]] = {}
        for name, (scope, written) in node.env.items():
            value: Any = written
            if is_dynamic(written):
                if scope not in contexts:
                    around = node if scope is None else replace(node, scope=scope, has_item=False)
                    contexts[scope] = self.context(around, host)
                value = self.expressions.render(written, contexts[scope])
            if isinstance(value, bool):
                value = "true" if value else "false"
            if not isinstance(value, str | int | float) or "\0" in str(value):
                # The value is not shown: it may be made from a secret.
                wrong = "contains a null byte" if isinstance(value, str) else "is no text and no number"
                raise ExpressionError(f"the value of the environment variable {name} {wrong}", written)
            found[name] = str(value)
        return found

    def outputs(self, node: ExecutionNode, host: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """The step's own outputs with those that the spec adds."""
        if not node.outputs:
            return dict(own)
        context = self.context(node, host, result=own)
        return {**own, **self.expressions.render(node.outputs, context)}

    def holds(self, node: ExecutionNode, host: str, condition: str | bool, own: Mapping[str, Any]) -> bool:
        """Whether a condition holds of the step's own outputs."""
        return self.expressions.condition(condition, self.context(node, host, result=own))

    def output(self, node: ExecutionNode, host: str, value: Any, own: Mapping[str, Any]) -> Any:
        """One of those that the spec adds."""
        return self.expressions.render(value, self.context(node, host, result=own))


def as_written(condition: str | bool) -> str:
    """A condition, for people."""
    return condition if isinstance(condition, str) else str(condition).lower()


class _View:
    """One node for one host: resolves scopes lazily and remembers what it made while one action is evaluated."""

    def __init__(self, evaluator: Evaluator, node: ExecutionNode, host: str, *, by: tuple[NodeID, str] | None) -> None:
        self.evaluator = evaluator
        self.node = node
        self.host = host
        self.place = node.place(host)
        self.by = by
        """For whom a change counts that an earlier session made."""
        self.root: dict[str, Any] = {}
        self._params: dict[str, Namespace] = {}
        self._vars: dict[str, Namespace] = {}

    def _scope(self, scope_id: str) -> Scope:
        return self.evaluator.graph.scopes[scope_id]

    def _owner(self, scope_id: str) -> Scope:
        scope = self._scope(scope_id)
        while not scope.own_params and scope.parent is not None:
            scope = self._scope(scope.parent)
        return scope

    def _in_scope(self, scope_id: str) -> dict[str, Any]:
        """The same names, seen from another scope."""
        names = {**self.root, "params": self.params(scope_id), "vars": self.vars(scope_id)}
        around = scope_of_item(self.evaluator.graph.scopes, scope_id)
        return names if around is None else {**names, "item": around.item}

    def params(self, scope_id: str) -> Namespace:
        scope = self._owner(scope_id)
        if scope.id not in self._params:

            def value(name: str) -> Any:
                raw = scope.params[name]
                # Only what a spec passes on is an expression; values from outside and defaults are data.
                if scope.parent is not None and is_dynamic(raw):
                    raw = self.evaluator.expressions.render(raw, self._in_scope(scope.parent))
                if name in scope.secret_params and isinstance(raw, str):
                    return self.evaluator.secret(raw)
                return raw

            self._params[scope.id] = Namespace("params", scope.params, value)
        return self._params[scope.id]

    def vars(self, scope_id: str) -> Namespace:
        if scope_id not in self._vars:
            layers: list[tuple[Mapping[str, Any], str]] = [(self.evaluator.graph.hosts[self.place].vars, scope_id)]
            current: Scope | None = self._scope(scope_id)
            while current is not None:
                layers.append((current.vars, current.id))
                # A used document is closed: it sees its own vars and the inventory's, not those of who uses it.
                current = None if current.own_params or current.parent is None else self._scope(current.parent)
            names: dict[str, tuple[Any, str]] = {}
            for mapping, owner in reversed(layers):
                names.update({name: (raw, owner) for name, raw in mapping.items()})
            given = self._given(layers)

            def value(name: str) -> Any:
                if name in given:
                    return given[name]
                raw, owner = names[name]
                return self.evaluator.expressions.render(raw, self._in_scope(owner)) if is_dynamic(raw) else raw

            self._vars[scope_id] = Namespace("vars", names, value)
        return self._vars[scope_id]

    def _given(self, layers: Sequence[tuple[Mapping[str, Any], str]]) -> Mapping[str, Any]:
        """The variables from outside that are seen: all of them, or, in a used document, those of its host."""
        root = self.evaluator.graph.scopes.get("")
        if root is None or not root.given:
            return {}
        if layers[-1][1] == "":
            return root.given
        on_host = layers[0][0]
        return {name: value for name, value in root.given.items() if name in on_host}

    def step(self, key: str, node: ExecutionNode) -> Any:
        found = self.evaluator.index.find(key, node)
        if not found and ("+" in key or key.endswith("]")):
            # A step of a fragment is not there as long as the step that returns it has not run; nor is a loop's item.
            base = key.partition("+")[0] if "+" in key else key.rpartition("[")[0]
            found = [one for one in self.evaluator.index.find(base, node) if not self._has_run(one)]
        if not found:
            self._refuse_early(f"steps.{key}")
            raise KeyError(key)
        return _step_view(self, key, found)

    def _has_run(self, node_id: NodeID) -> bool:
        record = self.evaluator.records.get(node_id, self.host)
        return record is not None and record.status == Status.SUCCESS and not record.unknown

    def _refuse_early(self, name: str) -> None:
        """What a loop or a selector asks for has no node as long as it is compiled, and is no unknown name."""
        if not self.evaluator.graph.nodes:
            raise UnknownValueError(name, "no step has run")

    def task(self, module: str, name: str) -> Any:
        if not module:
            self._refuse_early(f"tasks.{name}")
        return self._outputs_of(f"{module}/{name}", module, name, f"tasks.{name}")

    def module(self, name: str) -> Any:
        return self._outputs_of(name, name, "", f"modules.{name}")

    def _outputs_of(self, scope_id: str, module: str, task: str, label: str) -> Any:
        scope = self.evaluator.graph.scopes.get(scope_id)
        if scope is None:
            items = {key: one for one in self.evaluator.graph.scopes if (key := _key_in(one, scope_id))}
            if not items:
                raise KeyError(scope_id)
            # Of a loop: those of each item, by its key.
            return {
                "items": {
                    key: self._outputs_of(one, *(_parts(one) if task else (one, "")), f"{label}[{key}]")
                    for key, one in items.items()
                }
            }

        def value(name: str) -> Any:
            context = self._in_scope(scope.id)
            context["steps"] = _Steps(self, ExecutionNode(id="", module=module, task=task))
            context["tasks"] = Namespace("tasks", _Any(), lambda other: self.task(module, other))
            return self.evaluator.expressions.render(scope.outputs[name], context)

        return {"outputs": Namespace(f"{label}.outputs", scope.outputs, value)}


def _key_in(scope_id: str, base: str) -> str:
    """The key of an item of a looped module or task, if a scope is one; else nothing."""
    found = scope_id.startswith(f"{base}[") and scope_id.endswith("]") and "/" not in scope_id[len(base) :]
    return scope_id[len(base) + 1 : -1] if found else ""


def _parts(scope_id: str) -> tuple[str, str]:
    module, _, task = scope_id.partition("/")
    return module, task


class _Any(Mapping[str, Any]):
    """Claims to have every name; the lookup itself says what is not there."""

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_NOT_RUN = "the group has not run yet"


class _UnknownFailure(Mapping[str, Any]):
    """What failed, before everything has run that may."""

    def __getitem__(self, name: str) -> Any:
        raise UnknownValueError("failure", _NOT_RUN)

    def __iter__(self) -> Iterator[str]:
        raise UnknownValueError("failure", _NOT_RUN)

    def __len__(self) -> int:
        raise UnknownValueError("failure", _NOT_RUN)

    def __str__(self) -> str:
        raise UnknownValueError("failure", _NOT_RUN)


class _Steps(Namespace):
    def __init__(self, view: _View, node: ExecutionNode) -> None:
        super().__init__("steps", _Any(), lambda key: view.step(key, node))


class _Facts(Mapping[str, Any]):
    """Facts of a host, gathered when the first one is asked for."""

    def __init__(self, source: Callable[[str], Mapping[str, Any]], host: str) -> None:
        self._source = source
        self._host = host

    def __getitem__(self, name: str) -> Any:
        return self._source(self._host)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._source(self._host))

    def __len__(self) -> int:
        return len(self._source(self._host))


def _step_view(view: _View, key: str, found: list[NodeID]) -> Any:
    """A step as expressions see it; of a loop ``items``: those on this host, or all of a task on other hosts."""
    nodes = {node_id: view.evaluator.index.get(node_id) for node_id in found}
    if key.endswith("]") or not any(node.is_item or node.loop or node.skip == NO_ITEMS for node in nodes.values()):
        return _node_view(view, key, _seen_from(view, key, list(nodes.values())))
    for loop in (node for node in nodes.values() if node.loop and view.host in node.hosts):
        record = view.evaluator.records.get(loop.id, view.host)
        if record is None or record.unknown:
            because = f"{loop.id} has not run on {view.host}" if record is None else record.unknown
            raise UnknownValueError(f"steps.{key}.items", because)
    looped = [node for node in nodes.values() if node.is_item]
    here = [node for node in looped if view.host in node.hosts]
    if not here and any((node.module, node.task) != (view.node.module, view.node.task) for node in looped):
        here = looped
    items = {item_key(node.id): _node_view(view, f"{key}[{item_key(node.id)}]", node.id) for node in here}
    return {"items": items or Explained({}, f"step {key} has no items: {NO_ITEMS}")}


def _seen_from(view: _View, key: str, nodes: list[ExecutionNode]) -> NodeID:
    """Which of the nodes of a step is meant: a hook can work for the same host at several places."""
    if len(nodes) > 1:
        here = [node for node in nodes if view.host in node.hosts] or nodes
        nodes = [node for node in here if node.place(view.host) == view.place] or here
        if len(nodes) > 1:
            ids = " or ".join(f"steps['{node.id}']" for node in nodes[:2])
            raise ExpressionError(f"step {key} is ambiguous ({len(nodes)} steps); write {ids}", f"steps.{key}")
    return nodes[0].id


def item_key(node_id: NodeID) -> str:
    """The key of a loop's item in the id of its node."""
    return node_id.rpartition("[")[2].partition("]")[0]


def _node_view(view: _View, key: str, node_id: NodeID) -> Any:
    """``outputs``, ``changed`` and ``status`` on this host, or on the only host of the step; ``hosts.NAME`` for any."""
    hosts = view.evaluator.index.get(node_id).hosts
    records = view.evaluator.records

    def of(host: str) -> dict[str, Any] | Namespace:
        record = records.get(node_id, host)
        if record is None:
            raise UnknownValueError(f"steps.{key}", f"{node_id} has not run on {host}")
        if record.unknown:
            because = record.unknown

            def unknown(name: str) -> Any:
                if name == "changed" and record.changed:
                    return True
                raise UnknownValueError(f"steps.{key}.{name}", because)

            return Namespace(f"steps.{key}", {"outputs": 0, "changed": 0, "status": 0}, unknown)
        outputs = record.outputs
        if record.status != Status.SUCCESS or not outputs:
            outputs = Explained(outputs, _absence(node_id, host, record))
        changed = record.changed or records.owes(node_id, host, view.by)
        return {"outputs": outputs, "changed": changed, "status": record.status}

    near = (host for host in (view.host, view.place) if host in hosts)
    mine = next(near, hosts[0] if len(hosts) == 1 else None)

    def value(name: str) -> Any:
        if name == "hosts":
            return _Hosts(node_id, hosts, of)
        if not hosts and name == "outputs":
            return Explained({}, f"step {node_id} runs on no host")  # `default` has its chance
        if mine is None:
            raise ExpressionError(
                f"step {node_id} did not run on {view.host} but on {len(hosts)} other hosts; "
                f"write steps['{key}'].hosts['NAME'].{name}",
                f"steps.{key}",
            )
        return of(mine)[name]

    return Namespace(f"steps.{key}", {"outputs": 0, "changed": 0, "status": 0, "hosts": 0}, value)


class _Hosts(Namespace):
    def __init__(self, node_id: NodeID, hosts: Sequence[str], of: Callable[[str], Any]) -> None:
        super().__init__(f"step {node_id}", dict.fromkeys(hosts), of)

    def missing(self, name: str) -> str:
        """What to say when a host is none of the step's."""
        return f"{self._label} does not run on {name}; it runs on {some(self, 5) or 'no host'}"


def _absence(node_id: NodeID, host: str, record: ActionRecord) -> str:
    said = record.message.partition("\n")[0]
    match record.status:
        case Status.SUCCESS:
            what = f"step {node_id} produced no outputs on {host}"
        case Status.SKIPPED:
            what, said = f"step {node_id} was skipped on {host}", said.removeprefix("Skipped ")
        case Status.FAILED:
            what = f"step {node_id} failed on {host}"
        case _:
            what = f"step {node_id} has not run on {host}"
    return f"{what}: {said}" if said else what


def host_values(host: GraphHost) -> dict[str, Any]:
    """A host as expressions see it."""
    return {
        "name": host.name,
        "address": host.address,
        "internalAddress": host.internal_address or host.address,
        "port": host.port,
        "user": host.user,
        "connector": host.connector,
        "roles": list(host.roles),
        "groups": list(host.groups),
        "labels": dict(host.labels),
    }
