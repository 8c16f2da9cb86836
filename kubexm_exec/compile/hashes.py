"""Pass: gives every node a digest of the values its expressions refer to, so that a changed variable changes the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kubexm_exec.compile.state import State
from kubexm_exec.compile.types import marks_of
from kubexm_exec.expr import is_dynamic, texts
from kubexm_exec.graph import ExecutionNode, digest


def add_hashes(state: State) -> None:
    """Fill ``inputs_hash`` of every step node."""
    collector = _Collector(state)
    for node in list(state.nodes.values()):
        if not node.is_gate:
            inputs = collector.inputs(node)
            if inputs:
                state.nodes[node.id] = replace(node, inputs_hash=digest(inputs))


class _Collector:
    def __init__(self, state: State) -> None:
        self.state = state
        self._known: dict[tuple[str, tuple[str, ...]], tuple[str, list[str]]] = {}

    def inputs(self, node: ExecutionNode) -> dict[str, Any]:
        """What the node's expressions refer to, by name: raw values of params and vars, digests of files."""
        found: dict[str, Any] = {}
        marks = marks_of(self.state.steps.load(node.step_name).params_model)
        for key, value in node.with_.items():
            self._texts(value, node.scope, node, found, bare=key in marks.expressions)
        self._texts(node.outputs, node.scope, node, found)
        if isinstance(node.when, str):
            self._texts(node.when, node.scope, node, found, bare=True)
        for scope, guard in node.guards:
            if isinstance(guard, str):
                self._texts(guard, scope, node, found, bare=True)
        for key in marks.templates | marks.files:
            value = node.with_.get(key)
            if isinstance(value, str) and not is_dynamic(value):
                self._file(key, value, node, key in marks.templates, found)
        return found

    def _file(self, key: str, value: str, node: ExecutionNode, template: bool, found: dict[str, Any]) -> None:
        import pathlib

        base = self.state.scopes[node.scope].base
        path = self.state.finder(base).find(value) if template else pathlib.Path(base, value)
        if path is None:
            return
        below = {str(p.relative_to(path)): d for p, d in self.state.files.items() if p == path or path in p.parents}
        found[f"file:{key}"] = dict(sorted(below.items()))
        if template:
            tree = self.state.expressions.environment.parse(path.read_text("utf-8"))
            from kubexm_exec.expr import find_references

            for reference in find_references(tree):
                self._reference(reference.root, reference.path, node.scope, node, found)

    def _texts(self, value: Any, scope: str, node: ExecutionNode, found: dict[str, Any], *, bare: bool = False) -> None:
        for _, text in texts(value):
            if bare or is_dynamic(text):
                compiled = self.state.expressions.expression(text) if bare else self.state.expressions.text(text)
                for reference in compiled.references:
                    self._reference(reference.root, reference.path, scope, node, found)

    def _reference(
        self, root: str, path: tuple[str, ...], scope: str, node: ExecutionNode, found: dict[str, Any]
    ) -> None:
        if root == "host" and "host" not in found:
            # What the inventory says of the hosts; who they are is in the node already.
            found["host"] = {name: self._host(name) for name in node.hosts}
        if root not in ("params", "vars"):
            return
        names = path[:1] or tuple(self._params(scope)[1] if root == "params" else self._names(scope, node))
        for name in names:
            label = f"{root}@{scope}.{name}"
            if label in found:
                continue
            if root == "params":
                owner, params = self._params(scope)
                found[label] = params.get(name)
                parent = self.state.scopes[owner].parent
                if parent is not None:
                    self._texts(params.get(name), parent, node, found)
            else:
                layers = self._layers(scope, name)
                hosts_digest, dynamic = self._on_hosts(name, node.hosts)
                found[label] = [layers, hosts_digest]
                for owner, value in [*layers, *((scope, value) for value in dynamic)]:
                    self._texts(value, owner, node, found)

    def _host(self, name: str) -> list[Any]:
        host = self.state.hosts[name]
        return [host.address, host.internal_address, host.port, host.user, list(host.roles), dict(host.labels)]

    def _params(self, scope_id: str) -> tuple[str, Mapping[str, Any]]:
        scope = self.state.scopes[scope_id]
        while not scope.own_params and scope.parent is not None:
            scope = self.state.scopes[scope.parent]
        return scope.id, scope.params

    def _names(self, scope: str, node: ExecutionNode) -> dict[str, None]:
        found: dict[str, None] = {}
        for current in self._chain(scope):
            found.update(dict.fromkeys(self.state.scopes[current].vars))
        for host in node.hosts:
            found.update(dict.fromkeys(self.state.hosts[host].vars))
        return found

    def _chain(self, scope: str) -> list[str]:
        chain = [scope]
        while (
            not self.state.scopes[chain[-1]].own_params and (parent := self.state.scopes[chain[-1]].parent) is not None
        ):
            chain.append(parent)
        return chain

    def _layers(self, scope: str, name: str) -> list[tuple[str, Any]]:
        scopes = self.state.scopes
        return [(current, scopes[current].vars[name]) for current in self._chain(scope) if name in scopes[current].vars]

    def _on_hosts(self, name: str, hosts: tuple[str, ...]) -> tuple[str, list[str]]:
        """A digest of a variable's values on some hosts, and those that are expressions; many nodes share the same hosts."""
        if (name, hosts) not in self._known:
            values = {host: self.state.hosts[host].vars[name] for host in hosts if name in self.state.hosts[host].vars}
            dynamic = {text: None for value in values.values() for _, text in texts(value) if is_dynamic(text)}
            self._known[(name, hosts)] = (digest(values) if values else "", list(dynamic))
        return self._known[(name, hosts)]
