"""Reads ansible inventories that are data: YAML files, and the JSON of inventory programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubexm_spec.diagnostics import Diagnostics, did_you_mean
from kubexm_spec.inventories.ansible import ALL, Found, Var, Vars, to_body
from kubexm_spec.inventories.converted import Body
from kubexm_spec.ranges import expand_range
from kubexm_spec.source import Path, SourceFile

_KEYS: Final = ("hosts", "children", "vars")


def is_ansible(document: Any) -> bool:
    """Whether a document is an inventory of ansible's, as far as can be told."""
    if not isinstance(document, Mapping) or not document or "apiVersion" in document or "kind" in document:
        return False
    meta = document.get("_meta")
    if isinstance(meta, Mapping) and "hostvars" in meta:
        return True
    groups = [value for value in document.values() if isinstance(value, Mapping)]
    others = [value for value in document.values() if value is not None and not isinstance(value, Mapping)]
    return not others and any(key in group for group in groups for key in _KEYS) and _are_groups(groups)


def _are_groups(groups: Iterable[Mapping[str, Any]]) -> bool:
    """``all: {hosts: ...}`` is one; ``inventory: {hosts: [{name: a}]}`` is a mistake of another kind."""
    return all(isinstance(group.get("hosts"), Mapping | list | str | None) for group in groups) and not any(
        isinstance(host, Mapping) for group in groups for host in _listed(group.get("hosts"))
    )


def _listed(hosts: Any) -> list[Any]:
    return hosts if isinstance(hosts, list) else []


def read_data(source: SourceFile, diagnostics: Diagnostics) -> Body | None:
    """The inventory in our form, or None with findings."""
    return _Reader(source, diagnostics).read()


class _Reader:
    def __init__(self, source: SourceFile, diagnostics: Diagnostics) -> None:
        self.document: Mapping[str, Any] = source.documents[0]
        self.found = Found(diagnostics, lambda origin: source.place(0, origin).span())

    def read(self) -> Body | None:
        before = len(self.found.diagnostics.errors)
        meta = self.document.get("_meta")
        self.host_vars: Mapping[str, Any] = meta.get("hostvars") or {} if isinstance(meta, Mapping) else {}
        for name, value in self.document.items():
            if name != "_meta":
                self._group(str(name), value, (name,))
        for host in self.host_vars:
            if host not in self.found.hosts:
                origin = ("_meta", "hostvars", host)
                self.found.host(ALL, host, origin, self._vars(self.host_vars[host], origin))
        body = to_body(self.found)
        return body if len(self.found.diagnostics.errors) == before else None

    def _wrong(self, what: str, origin: Path) -> None:
        self.found.error("wrong-type", what, origin)

    def _group(self, name: str, value: Any, origin: Path) -> None:
        group = self.found.group(name, origin)
        if isinstance(value, list):  # the short form of inventory programs
            self._hosts(name, value, origin)
            return
        if value is None:
            return
        if not isinstance(value, Mapping):
            self._wrong(f'group "{name}" should be a mapping with hosts, children or vars', origin)
            return
        for key in value:
            if key not in _KEYS:
                self.found.error(
                    "unknown-key",
                    f'group "{name}" of an ansible inventory has no key "{key}"; it takes {", ".join(_KEYS)}',
                    (*origin, key),
                    did_you_mean(str(key), _KEYS) or f'a group below it goes under "children" of "{name}"',
                )
        self._hosts(name, value.get("hosts"), (*origin, "hosts"))
        group.vars.update(self._vars(value.get("vars"), (*origin, "vars")))
        children = value.get("children")
        where: Path = (*origin, "children")
        if isinstance(children, Mapping):
            for child, content in children.items():
                group.children[str(child)] = (*where, child)
                self._group(str(child), content, (*where, child))
        elif isinstance(children, list):
            for index, child in enumerate(children):
                group.children[str(child)] = (*where, index)
                # Programs may name a group that has nothing of its own.
                self.found.group(str(child), (*where, index))
        elif children is not None:
            self._wrong(f'"children" of group "{name}" should be a mapping or a list', where)

    def _hosts(self, group: str, hosts: Any, origin: Path) -> None:
        if isinstance(hosts, str):
            self._host(group, hosts, None, origin)
        elif isinstance(hosts, list):
            for index, name in enumerate(hosts):
                self._host(group, name, None, (*origin, index))
        elif isinstance(hosts, Mapping):
            for name, variables in hosts.items():
                self._host(group, name, variables, (*origin, name))
        elif hosts is not None:
            self._wrong(f'"hosts" of group "{group}" should be a mapping or a list', origin)

    def _host(self, group: str, name: Any, variables: Any, origin: Path) -> None:
        if isinstance(name, Mapping | list) or name is None:
            self._wrong(f'a host of group "{group}" should be a name', origin)
            return
        try:
            names = expand_range(str(name))
        except ValueError as error:
            self.found.error("bad-range", str(error), origin)
            return
        own = self._vars(variables, origin)
        for one in names:
            told = self._vars(self.host_vars.get(one), ("_meta", "hostvars", one))
            self.found.host(group, one, origin, {**told, **own})

    def _vars(self, variables: Any, origin: Path) -> Vars:
        if variables is None:
            return {}
        if not isinstance(variables, Mapping):
            self._wrong("variables should be a mapping", origin)
            return {}
        return {str(key): Var(value, (*origin, key)) for key, value in variables.items()}
