"""Reads ansible inventories that are data: YAML and TOML files, and the JSON of inventory programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubexm_spec.diagnostics import did_you_mean
from kubexm_spec.inventories.ansible import Found, Group, Var, Vars, host_names
from kubexm_spec.ranges import is_range
from kubexm_spec.yaml.source import Path

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
        isinstance(host, Mapping) for group in groups if isinstance(group.get("hosts"), list) for host in group["hosts"]
    )


def read_data(document: Mapping[str, Any], found: Found, file: int) -> None:
    """Add what the document of a file says; origins are its paths, after the number of the file."""
    _Reader(document, found, file).read()


class _Reader:
    def __init__(self, document: Mapping[str, Any], found: Found, file: int) -> None:
        self.document = document
        self.found = found
        self.root: Path = (file,)
        self.printed = "_meta" in document
        """Whether a program printed it: names are no ranges, and variables of hosts are elsewhere."""

    def read(self) -> None:
        meta = self.document.get("_meta")
        host_vars = meta.get("hostvars") or {} if isinstance(meta, Mapping) else {}
        for name, value in self.document.items():
            if name != "_meta":
                self._group(name, value, (*self.root, name))
        for name, variables in host_vars.items():
            origin: Path = (*self.root, "_meta", "hostvars", name)
            told = self._vars(variables, origin)
            if name in self.found.hosts:  # one that is in no group is no host, for ansible too
                self.found.hosts[name].vars.update(told)

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
        for key, content in value.items():  # in this order: of two values of a host's variable the later one counts
            where = (*origin, key)
            if key == "hosts":
                self._hosts(name, content, where)
            elif key == "vars":
                group.vars.update(self._vars(content, where))
            elif key == "children":
                self._children(name, group, content, where)
            else:
                summary = f'group "{name}" of an ansible inventory has no key "{key}"; it takes {", ".join(_KEYS)}'
                hint = did_you_mean(str(key), _KEYS) or f'put a child group under "children" of "{name}"'
                self.found.error("unknown-key", summary, where, hint)

    def _children(self, name: str, group: Group, children: Any, where: Path) -> None:
        if isinstance(children, Mapping):
            for child, content in children.items():
                group.children[child] = (*where, child)
                self._group(child, content, (*where, child))
        elif isinstance(children, list | str):
            for index, child in enumerate([children] if isinstance(children, str) else children):
                origin = where if isinstance(children, str) else (*where, index)
                group.children[str(child)] = origin
                # It may have nothing of its own.
                self.found.group(str(child), origin)
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
        if self.printed and is_range(str(name)):
            self.found.error("bad-host-name", "a program must print host names, not ranges", origin)
            return
        try:
            names, port = ([str(name)], "") if self.printed else host_names(str(name))
        except ValueError as error:
            self.found.error("bad-range", str(error), origin)
            return
        own = self._vars(variables, origin)
        for one in names:
            self.found.host(group, one, origin, own, Var(int(port), origin) if port else None)

    def _vars(self, variables: Any, origin: Path) -> Vars:
        if variables is None:
            return {}
        if not isinstance(variables, Mapping):
            self._wrong("variables should be a mapping", origin)
            return {}
        return {str(key): Var(value, (*origin, key)) for key, value in variables.items()}
