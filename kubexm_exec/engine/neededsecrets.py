"""Finds the secrets that a run will need in its graph: one that is missing is told before anything has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from kubexm_exec.compile.namedhosts import written
from kubexm_exec.compile.types import Marks, marks_of
from kubexm_exec.model.graph import ExecutionGraph, ExecutionNode, GraphHost, Hook, Scope
from kubexm_exec.plugins import RegistryError
from kubexm_exec.resources.source import ResourceError
from kubexm_exec.scheduler import Action
from kubexm_exec.secrets import SecretError, Secrets
from kubexm_exec.values.expressions import ExpressionError, Expressions, Reference, is_dynamic, texts
from kubexm_exec.values.templates import TemplateFinder
from kubexm_spec.diagnostics import Diagnostics, Span

_RESOURCE: Final = "resource:"
_OF_HOSTS: Final = ("password", "passphrase", "privateKey")
_OF_STORES: Final = ("accessKeyId", "secretAccessKey", "sessionToken")


class Use(Struct, frozen=True):
    """A reference to a secret, and who needs it."""

    reference: str
    by: str
    span: Span | None
    sure: bool
    """False if a condition may skip whatever needs it."""
    host: str = ""
    """The host that is reached with it: where that is written is not in the graph."""


def uses_of(
    graph: ExecutionGraph,
    load: Callable[[str], Any],
    expressions: Expressions,
    finder: Callable[[str], TemplateFinder],
    left: Callable[[Action], bool] | None = None,
) -> Iterator[Use]:
    """Every secret that the actions that are ``left`` (all if it is None) refer to, as far as that is written."""
    collector = _Collector(graph, expressions, finder)
    hosts: dict[str, bool] = {}
    becoming: set[str] = set()
    for node in graph.steps():
        wanted = node.hosts
        if left is not None:
            wanted = tuple(host for host in wanted if left(Action(node.id, host)))
        if not wanted or node.skip:
            continue
        sure = _is_sure(node)
        places = [node.place(host) for host in wanted]
        if node.choices:
            # One of them is enough.
            places = list(dict.fromkeys((*places, *chain(*node.choices))))
        if sure and not node.choices:
            hosts.update(dict.fromkeys(places, True))
        else:
            hosts = {**dict.fromkeys(places, False), **hosts}
        if node.become:
            becoming.update(places)
        try:
            marks = marks_of(load(node.step_name).params_model)
        except RegistryError:  # told where it runs
            continue
        named = [name for path in marks.hosts if isinstance(name := written(node.with_, path), str)]
        for name in named:
            if name in graph.hosts:
                hosts[name] = sure or hosts.get(name, False)
                becoming.update([name] if node.become else [])
        span = Span(node.origin.file, node.origin.line, node.origin.column, node.origin.line, node.origin.column + 1)
        for reference in collector.node(node, marks, wanted):
            yield Use(reference, node.id, span if node.origin.line else None, sure)
    for name, sure in hosts.items():
        host = graph.hosts[name]
        for reference in _of_host(host, bool(host.becomes) or name in becoming):
            yield Use(reference, f"host {name}", None, sure, name)


def check(
    uses: Iterable[Use], secrets: Secrets, of_host: Callable[[str, str], Span | None] | None = None
) -> Diagnostics:
    """Resolve what can be before the run, with a finding for each failure; ``of_host``: where a host's is written."""
    found = Diagnostics()
    by_reference: dict[str, Use] = {}
    for use in uses:
        known = by_reference.get(use.reference)
        if known is None or (use.sure and not known.sure):
            by_reference[use.reference] = use
    for use in by_reference.values():
        try:
            if secrets.is_early(use.reference):
                secrets.resolve(use.reference)
        except SecretError as error:
            summary = f'{use.by} needs the secret "{error.reference}": {error.what}'
            span = of_host(use.host, use.reference) if use.host and of_host is not None else use.span
            if use.sure:
                found.error("missing-secret", summary, span, hint=error.hint)
            else:
                detail = "a condition may skip it; if it runs, it fails"
                found.warning("missing-secret", summary, span, hint=error.hint, detail=detail)
    return found


def _is_sure(node: ExecutionNode) -> bool:
    conditions = (node.when, *(condition for _, condition in node.guards))
    return node.hook not in (Hook.ON_FAILURE, Hook.HANDLER) and all(one is None or one is True for one in conditions)


def _of_host(host: GraphHost, becomes: bool) -> Iterator[str]:
    # On this machine nobody logs in.
    given = [] if host.connector == "local" else [host.options.get(key) for key in _OF_HOSTS]
    become = host.options.get("become")
    if becomes and isinstance(become, Mapping):
        given.append(become.get("password"))
    return (str(reference) for reference in given if reference is not None)


class _Collector:
    """Follows expressions to the references in them; each variable is looked into once for each scope."""

    def __init__(
        self, graph: ExecutionGraph, expressions: Expressions, finder: Callable[[str], TemplateFinder]
    ) -> None:
        self._graph = graph
        self._expressions = expressions
        self._finder = finder
        self._known: dict[tuple[str, str, str | int], tuple[str, ...]] = {}
        self._variables: dict[tuple[str, str, tuple[str, ...]], tuple[str, ...]] = {}
        self._templates: dict[Path, tuple[Reference, ...]] = {}

    def node(self, node: ExecutionNode, marks: Marks, hosts: tuple[str, ...]) -> dict[str, None]:
        """The references of a step, as some hosts see it."""
        found: dict[str, None] = {}
        for key, value in node.with_.items():
            if key not in marks.steps:
                self._texts(value, node.scope, hosts, found, bare=key in marks.expressions)
            if isinstance(value, str) and not is_dynamic(value):
                if key in marks.templates:
                    self._template(value, node.scope, hosts, found)
                if key in marks.resources or (key in marks.files and value.startswith(_RESOURCE)):
                    self._resource(value.removeprefix(_RESOURCE), node.scope, hosts, found)
        self._texts(node.outputs, node.scope, hosts, found)
        self._texts(list(node.judgements), node.scope, hosts, found, bare=True)
        for around, value in node.env.values():
            self._texts(value, node.scope if around is None else around, hosts, found)
        for scope, condition in (*node.guards, (node.scope, node.when)):
            if isinstance(condition, str):
                self._texts(condition, scope, hosts, found, bare=True)
        return found

    def _texts(
        self, value: Any, scope: str, hosts: tuple[str, ...], found: dict[str, None], *, bare: bool = False
    ) -> None:
        for _, text in texts(value):
            if bare or is_dynamic(text):
                try:
                    compiled = self._expressions.expression(text) if bare else self._expressions.text(text)
                except ExpressionError:  # told where it is evaluated
                    continue
                self._references(compiled.references, scope, hosts, found)

    def _references(
        self, references: Iterable[Reference], scope: str, hosts: tuple[str, ...], found: dict[str, None]
    ) -> None:
        for reference in references:
            if reference.root == "secret":
                if reference.argument and reference.exact:
                    found.setdefault(reference.argument)
            elif reference.path and reference.root == "params":
                found.update(dict.fromkeys(self._param(reference.path[0], scope, hosts)))
            elif reference.path and reference.root == "vars":
                found.update(dict.fromkeys(self._variable(reference.path[0], scope, hosts)))

    def _param(self, name: str, scope_id: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
        scope = self._graph.scopes[scope_id]
        while not scope.own_params and scope.parent is not None:
            scope = self._graph.scopes[scope.parent]
        value = scope.params.get(name)
        if scope.parent is not None and is_dynamic(value):
            return self._value("params", scope.id, name, value, scope.parent, hosts)
        return (value,) if name in scope.secret_params and isinstance(value, str) else ()

    def _variable(self, name: str, scope_id: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
        key = (name, scope_id, hosts)
        if key not in self._variables:
            self._variables[key] = ()  # for one that refers to itself
            self._variables[key] = self._written(name, scope_id, hosts)
        return self._variables[key]

    def _written(self, name: str, scope_id: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for value in {id(one): one for one in (self._graph.hosts[host].vars.get(name) for host in hosts)}.values():
            if value is not None:
                found.update(dict.fromkeys(self._value("vars", scope_id, id(value), value, scope_id, hosts)))
        scope: Scope | None = self._graph.scopes[scope_id]
        while scope is not None:
            if name in scope.vars:
                found.update(dict.fromkeys(self._value("vars", scope.id, name, scope.vars[name], scope.id, hosts)))
                break
            scope = None if scope.own_params or scope.parent is None else self._graph.scopes[scope.parent]
        return tuple(found)

    def _value(
        self, kind: str, owner: str, name: str | int, value: Any, scope: str, hosts: tuple[str, ...]
    ) -> tuple[str, ...]:
        key = (kind, owner, name)
        if key not in self._known:
            self._known[key] = ()  # for one that refers to itself
            found: dict[str, None] = {}
            self._texts(value, scope, hosts, found)
            self._known[key] = tuple(found)
        return self._known[key]

    def _template(self, name: str, scope: str, hosts: tuple[str, ...], found: dict[str, None]) -> None:
        path = self._finder(scope).find(name)
        if path is None:
            return
        if path not in self._templates:
            try:
                self._templates[path] = self._expressions.template_references(path.read_text("utf-8"))
            except (ExpressionError, OSError, ValueError):  # told where it is rendered
                self._templates[path] = ()
        self._references(self._templates[path], scope, hosts, found)

    def _resource(self, name: str, scope: str, hosts: tuple[str, ...], found: dict[str, None]) -> None:
        from kubexm_exec.resources.resolve import find

        try:
            owner, spec = find(self._graph.scopes, scope, name)
        except ResourceError:
            return
        self._texts(spec.headers, owner.id, hosts, found)
        keys = spec.s3.model_dump(by_alias=True, exclude_none=True) if spec.s3 is not None else {}
        self._texts(keys, owner.id, hosts, found)
        found.update(dict.fromkeys(keys[key] for key in _OF_STORES if key in keys and not is_dynamic(keys[key])))
        password = spec.registry.password if spec.registry is not None else None
        if password is not None:
            self._texts(password, owner.id, hosts, found)
            found.update({} if is_dynamic(password) else {password: None})
