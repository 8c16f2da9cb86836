"""Pass: gives every node a digest of the values it refers to: a changed variable changes the nodes that use it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kubexm_exec.compile.scopes import is_given, layers_of, owner_of, visible_vars
from kubexm_exec.compile.state import State
from kubexm_exec.compile.templatefiles import TemplateFile
from kubexm_exec.compile.types import Marks, marks_of
from kubexm_exec.model.graph import ExecutionNode, digest, scope_of_item
from kubexm_exec.resources.resolve import identity
from kubexm_exec.values.evaluate import CONTROL_NODE, host_values
from kubexm_exec.values.expressions import Reference, is_dynamic, texts
from kubexm_exec.values.names import MAPPING_METHODS


def add_hashes(state: State) -> None:
    """Fill ``inputs_hash`` of every step node."""
    collector = _Collector(state, detailed=False)
    for node in list(state.nodes.values()):
        if not node.is_gate:
            inputs = collector.inputs(node)
            if inputs:
                state.nodes[node.id] = replace(node, inputs_hash=digest(inputs))


def inputs_of(state: State, node: ExecutionNode) -> dict[str, Any]:
    """The values that a node refers to, by the names that expressions use, in full instead of as digests."""
    return _Collector(state, detailed=True).inputs(node)


class _Collector:
    def __init__(self, state: State, *, detailed: bool) -> None:
        self.state = state
        self.detailed = detailed
        self._on_hosts: dict[tuple[str, str, tuple[str, ...]], tuple[Any, list[tuple[str, str]]]] = {}
        self._marks: dict[str, Marks] = {}

    def inputs(self, node: ExecutionNode) -> dict[str, Any]:
        """Raw values of what the node's expressions refer to, by name; digests of its files."""
        marks = self._marks_of(node.step_name)
        look = _Look(self, node)
        for key, value in node.with_.items():
            if key not in marks.steps:
                look.texts(value, node.scope, bare=key in marks.expressions)
        if node.outputs:
            look.texts(node.outputs, node.scope)
        for text in node.judgements:
            look.texts(text, node.scope, bare=True)
        if isinstance(node.when, str):
            look.texts(node.when, node.scope, bare=True)
        if node.loop is not None:
            bare = isinstance(node.loop.items, str) and not is_dynamic(node.loop.items)
            look.texts(node.loop.items, node.scope, bare=bare)
            look.texts(dict(node.loop.matrix or {}), node.scope)
            look.texts(node.loop.key, node.scope, bare=True)
        for scope, value in node.env.values():
            look.texts(value, node.scope if scope is None else scope)
        if node.guards:
            look.node = replace(node, places={})
            for scope, guard in node.guards:
                if isinstance(guard, str):
                    look.texts(guard, scope, bare=True)
            look.node = node
        draft = self.state.drafts.get(node.id)
        for path, label in self.state.file_users.get(draft.id if draft is not None else node.id, {}).items():
            look.found[f"file {label}"] = self.state.files[path]
            template: TemplateFile | None = self.state.templates_read.get(path)
            if template is not None:
                look.references(template.references, node.scope)
        for name, scope in self.state.resource_users.get(draft.id if draft is not None else node.id, {}).items():
            data = identity(self.state.scopes[scope].resources[name])
            look.found[f"resource {name}"] = data
            look.texts(data, scope)
        return look.found

    def _marks_of(self, step_name: str) -> Marks:
        if step_name not in self._marks:
            self._marks[step_name] = marks_of(self.state.steps.load(step_name).params_model)
        return self._marks[step_name]

    def variable(self, name: str, scope_id: str, hosts: tuple[str, ...]) -> tuple[Any, list[tuple[str, str]]]:
        """A variable's values as some hosts see it, and the expressions among them with their scopes.

        What a stronger value hides on every host does not count. Many nodes share the same hosts.
        """
        key = (name, scope_id, hosts)
        if key not in self._on_hosts:
            known = self.state.hosts
            on_hosts = {host: known[host].vars[name] for host in hosts if name in known[host].vars}
            if is_given(self.state, scope_id, name, host_has_it=bool(on_hosts)):
                self._on_hosts[key] = ({"given": self.state.scopes[""].given[name]}, [])
                return self._on_hosts[key]
            dynamic = {(text, scope_id): None for value in on_hosts.values() for text in _dynamic_texts(value)}
            values: dict[str, Any] = {}
            if on_hosts:
                values["hosts"] = on_hosts if self.detailed else digest(on_hosts)
            if len(on_hosts) < len(hosts) or not hosts:
                for scope in layers_of(self.state, scope_id):
                    if name in scope.vars:
                        values["scope"] = scope.vars[name]
                        dynamic.update({(text, scope.id): None for text in _dynamic_texts(scope.vars[name])})
                        break
            self._on_hosts[key] = (values, list(dynamic))
        return self._on_hosts[key]


class _Look:
    """One node: collects what its expressions refer to."""

    def __init__(self, collector: _Collector, node: ExecutionNode) -> None:
        self.collector = collector
        self.state = collector.state
        self.node = node
        self.found: dict[str, Any] = {}
        self._seen: set[tuple[str, str, str]] = set()

    def texts(self, value: Any, scope: str, *, bare: bool = False) -> None:
        for _, text in texts(value):
            if bare or is_dynamic(text):
                compiled = self.state.expressions.expression(text) if bare else self.state.expressions.text(text)
                self.references(compiled.references, scope)

    def references(self, references: Iterable[Reference], scope: str) -> None:
        for reference in references:
            self._reference(reference.root, reference.path, scope)

    def _reference(self, root: str, path: tuple[str, ...], scope: str) -> None:
        if root == "item" and (around := scope_of_item(self.state.scopes, scope)) is not None:
            self.found["item"] = around.item
        elif root == "host":
            self._host(root, path, self.node.locations)
        elif root == "origin":
            self._host(root, path, self.node.hosts)
        elif root == "hosts":
            self._hosts(path)
        elif root == "run":
            self.found["run.name"] = self.state.name
        elif root in ("params", "vars"):
            for name in self._names(root, path, scope):
                if (root, name, scope) not in self._seen:
                    self._seen.add((root, name, scope))
                    self._param(name, scope) if root == "params" else self._variable(name, scope)
        elif root in ("tasks", "modules") and len(path) > 2:
            self._outputs(root, path)

    def _names(self, root: str, path: tuple[str, ...], scope: str) -> list[str]:
        """The one name, or all of them where the whole mapping is used."""
        if root == "params":
            known: Iterable[str] = owner_of(self.state, scope).params
        else:
            known = (
                visible_vars(self.state, scope, self.node.locations) if not path or path[0] in MAPPING_METHODS else path
            )
        whole = not path or (path[0] in MAPPING_METHODS and path[0] not in known)
        return sorted(known) if whole else [path[0]]

    def _param(self, name: str, scope_id: str) -> None:
        owner = owner_of(self.state, scope_id)
        value = owner.params.get(name)
        self._add(f"params.{name}", owner.id, value)
        if owner.parent is not None:
            self.texts(value, owner.parent)

    def _variable(self, name: str, scope_id: str) -> None:
        values, dynamic = self.collector.variable(name, scope_id, self.node.locations)
        self._add(f"vars.{name}", scope_id, values)
        for text, scope in dynamic:
            self.texts(text, scope)

    def _add(self, label: str, scope: str, value: Any) -> None:
        """Two documents can have different values of one name."""
        known = label in self.found and self.found[label] != value
        self.found[f"{label} of {scope or 'the pipeline'}" if known else label] = value

    def _host(self, root: str, path: tuple[str, ...], hosts: tuple[str, ...]) -> None:
        """What the inventory says of the node's hosts; who they are is in the node already."""
        keys = path[:1] if path and path[0] not in MAPPING_METHODS else ("address", "port", "user", "roles", "labels")
        for key in keys:
            if key != "name" and f"{root}.{key}" not in self.found:
                values = {name: host_values(self.state.hosts[name]).get(key) for name in hosts}
                self.found[f"{root}.{key}"] = values if self.collector.detailed else digest(values)

    def _hosts(self, path: tuple[str, ...]) -> None:
        names = [name for name in self.state.hosts if name != CONTROL_NODE]
        if path and path[0] in self.state.hosts:
            names = [path[0]]
        label = "hosts" if len(names) > 1 else f"hosts.{names[0]}" if names else "hosts"
        if label not in self.found:
            values = {name: host_values(self.state.hosts[name]) for name in names}
            self.found[label] = values if self.collector.detailed else digest(values)

    def _outputs(self, root: str, path: tuple[str, ...]) -> None:
        scope_id = f"{self.node.module}/{path[0]}" if root == "tasks" else path[0]
        scope = self.state.scopes.get(scope_id)
        label = ".".join((root, *path[:3]))
        if scope is not None and path[2] in scope.outputs and label not in self.found:
            self.found[label] = scope.outputs[path[2]]
            self.texts(scope.outputs[path[2]], scope_id)


def _dynamic_texts(value: Any) -> list[str]:
    return [text for _, text in texts(value) if is_dynamic(text)]
