"""Turns the groups, hosts and variables of an ansible inventory into ours, with ansible's rules of precedence."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from kubexm_spec.diagnostics import Diagnostics, Span, did_you_mean
from kubexm_spec.inventories.ansible_yaml import is_encrypted
from kubexm_spec.inventories.converted import Body, Unfinished
from kubexm_spec.ranges import expand_range
from kubexm_spec.yaml.source import Path

ALL: Final = "all"
UNGROUPED: Final = "ungrouped"

_TEXTS: Final = {
    "ansible_host": "address",
    "ansible_ssh_host": "address",
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_private_key_file": "privateKeyPath",
    "ansible_ssh_private_key_file": "privateKeyPath",
    "ansible_connection": "connector",
}
_PORTS: Final = ("ansible_port", "ansible_ssh_port")
_SECRETS: Final = {
    "ansible_password": "password",
    "ansible_ssh_pass": "password",
    "ansible_ssh_password": "password",
    "ansible_private_key": "privateKey",
    "ansible_ssh_private_key": "privateKey",
    "ansible_private_key_passphrase": "passphrase",
    "ansible_ssh_private_key_passphrase": "passphrase",
}
_BECOME_SECRETS: Final = (
    "ansible_become_password", "ansible_become_pass", "ansible_sudo_pass", "ansible_sudo_password", "ansible_su_pass",
)  # fmt: skip
_BECOME: Final = ("ansible_become", "ansible_become_user", "ansible_become_method", *_BECOME_SECRETS)
_MAPPED: Final = frozenset([*_TEXTS, *_PORTS, *_SECRETS, *_BECOME, "ansible_group_priority"])
_KEYS: Final = {**_TEXTS, **dict.fromkeys(_PORTS, "port"), **_SECRETS}
"""Our keys by ansible's, without those of ``become``."""
_REFERENCES: Final = frozenset([*_SECRETS, *_BECOME_SECRETS])
_SSH: Final = frozenset(
    {"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"}
)
_LOCAL: Final = frozenset({"local", "ansible.builtin.local"})
_ENV_LOOKUP: Final = re.compile(
    r"""\{\{\s*(?:lookup|query)\(\s*['"](?:ansible\.builtin\.)?env['"]\s*,\s*['"](\w+)['"]\s*\)\s*\}\}"""
)
_BRACKETED_PORT: Final = re.compile(r"\[(.+)\]:([0-9]+)")
_PORT: Final = re.compile(r"((?:[^:\[\]]|\[[^\]]*\])+):([0-9]+)")
_REFERENCE: Final = re.compile(r"[a-z][a-z0-9_-]*:\S+")


class Var(Struct, frozen=True):
    """A value and where it was written."""

    value: Any
    origin: Path


Vars = dict[str, Var]


class Group(Struct):
    """A group as it was written."""

    origin: Path = ()
    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, Path] = field(default_factory=dict)
    vars: Vars = field(default_factory=dict)
    files: Vars = field(default_factory=dict)
    """Out of ``group_vars``."""


class Host(Struct):
    """A host as it was written."""

    origin: Path = ()
    vars: Vars = field(default_factory=dict)
    files: Vars = field(default_factory=dict)
    """Out of ``host_vars``."""


class Found(Struct):
    """Everything that readers found in an ansible inventory, however many files it has."""

    diagnostics: Diagnostics
    span_of: Callable[[Path], Span | None]
    """Gives the span of an origin."""
    groups: dict[str, Group] = field(default_factory=lambda: {ALL: Group(), UNGROUPED: Group()})
    hosts: dict[str, Host] = field(default_factory=dict)

    def group(self, name: str, origin: Path) -> Group:
        """The group of that name, new or known."""
        group = self.groups.setdefault(name, Group(origin))
        group.origin = group.origin or origin
        return group

    def host(self, group: str, name: str, origin: Path, variables: Vars, port: Var | None = None) -> None:
        """One more mention of a host; the port of a later one means nothing."""
        self.group(group, origin).hosts.setdefault(name)
        if name not in self.hosts:
            self.hosts[name] = Host(origin, {"ansible_port": port} if port is not None else {})
        # A group that is called like the host gets them, as in ansible.
        owner = self.groups[name] if name in self.groups else self.hosts[name]
        owner.vars.update(variables)

    def error(self, code: str, summary: str, origin: Path, hint: str = "") -> None:
        """A finding at the place that something came from."""
        self.diagnostics.error(code, summary, self.span_of(origin), hint=hint)


def host_names(pattern: str) -> tuple[list[str], str]:
    """The hosts that a pattern of an inventory file stands for, and their port; ValueError says what is wrong.

    ``web1:2222`` and ``[2001:db8::1]:22`` have one; the colons of ranges and of bare IPv6 addresses are none.
    """
    match = _BRACKETED_PORT.fullmatch(pattern) or _PORT.fullmatch(pattern)
    name, port = (match[1], match[2]) if match else (pattern, "")
    if match and "[" not in name:
        return [name], port
    return expand_range(name.replace("[:", "[0:")), port


def to_body(found: Found) -> Body | None:
    """The inventory in our form, or None with findings."""
    depths = _depths(found)
    if depths is None:
        return None
    _set_ungrouped(found)
    body = Body(origins={(): ()})
    general = found.groups[ALL]
    _put_vars(body, ("vars",), {**general.vars, **general.files}, body.data)
    members: dict[str, dict[str, None]] = {}
    order = sorted(
        (name for name in found.groups if name != ALL),
        key=lambda name: (depths[name], _priority(found.groups[name]), name),
    )
    groups_of: dict[str, list[Group]] = {name: [] for name in found.hosts}
    groups: dict[str, Any] = {}
    for name in order:
        group = found.groups[name]
        hosts = _members(found, name, members)
        for host in hosts:
            groups_of[host].append(group)
        # Files for all hosts are stronger than what the inventory itself says of a group.
        variables = {key: var for key, var in group.vars.items() if key not in general.files} | group.files
        if name == UNGROUPED and not variables:
            continue
        data: dict[str, Any] = {"hosts": list(hosts), "roles": [] if name == UNGROUPED else [name]}
        body.origins["groups", name] = group.origin
        _put_vars(body, ("groups", name, "vars"), variables, data)
        groups[name] = data
    body.data["groups"] = groups
    empty = {name for name in order if not members[name]}
    for name, group in found.groups.items():
        _refuse_secrets(found, group, encrypted=name not in empty)
    for one in found.hosts.values():
        _refuse_secrets(found, one, encrypted=True)
    contested = {key for group in found.groups.values() for key in group.vars}
    contested &= {key for name in order for key in found.groups[name].files}
    body.data["hosts"] = [
        _host(found, body, index, name, [general, *groups_of[name]], contested)
        for index, name in enumerate(found.hosts)
    ]
    return body


def _set_ungrouped(found: Found) -> None:
    """Who is in no other group is in this one, whatever was written."""
    grouped = {host for name, group in found.groups.items() if name not in (ALL, UNGROUPED) for host in group.hosts}
    found.groups[UNGROUPED].hosts = {host: None for host in found.hosts if host not in grouped}


def _put_vars(body: Body, path: Path, variables: Mapping[str, Var], data: dict[str, Any]) -> None:
    kept = {name: var for name, var in variables.items() if name not in _MAPPED}
    if kept:
        data["vars"] = {name: var.value for name, var in kept.items()}
        body.origins.update({(*path, name): var.origin for name, var in kept.items()})


def _host(
    found: Found, body: Body, index: int, name: str, groups: Sequence[Group], contested: Collection[str]
) -> dict[str, Any]:
    host = found.hosts[name]
    path: Path = ("hosts", index)
    body.origins[path] = host.origin
    data: dict[str, Any] = {"name": name}
    # All groups of the inventory itself, then all files of groups, then the host.
    layers = [*(group.vars for group in groups), *(group.files for group in groups), host.vars, host.files]
    merged: Vars = {}
    for layer in layers:
        # Two spellings of one thing: the later layer wins, whichever it uses.
        for key, var in layer.items():
            if key in _MAPPED:
                merged.pop(key, None)
                merged[key] = var
    dynamic = {key for key, var in merged.items() if isinstance(var.value, str) and "{{" in var.value} - _REFERENCES
    given = {key: var.value for key, var in merged.items()}
    if dynamic:
        body.unfinished[index] = Unfinished(
            {key: given[key] for key in merged if key in dynamic},
            {key: value for key, value in given.items() if key not in dynamic},
            {key: merged[key].origin for key in dynamic},
        )
    data.update(connection({key: value for key, value in given.items() if key not in dynamic}))
    for key, var in merged.items():
        if key in _KEYS:
            body.origins[(*path, _KEYS[key])] = var.origin
    become = next((merged[key] for key in (*_BECOME_SECRETS, "ansible_become_user", *_BECOME) if key in merged), None)
    if become is not None:
        body.origins[(*path, "become")] = become.origin
    own = {**_corrected(groups, contested), **host.vars, **host.files}
    _put_vars(body, (*path, "vars"), own, data)
    return data


def _corrected(groups: Sequence[Group], contested: Collection[str]) -> Vars:
    """The variables for which ansible ranks a file of a weak group above the inventory itself."""
    corrected: Vars = {}
    for key in contested:
        strongest = next((group for group in reversed(groups) if key in group.files), None)
        if strongest is None:
            continue
        shown = next(group for group in reversed(groups) if key in group.files or key in group.vars)
        if shown is not strongest:
            corrected[key] = strongest.files[key]
    return corrected


def connection(given: Mapping[str, Any]) -> dict[str, Any]:
    """How a host is reached, by our keys, out of ansible's variables; of two spellings the later one counts."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in _TEXTS:
            found[_TEXTS[key]] = _connector(str(value)) if key == "ansible_connection" else str(value)
        elif key in _PORTS:
            found["port"] = int(value) if isinstance(value, str) and value.isdecimal() else value
        elif key in _SECRETS:
            found[_SECRETS[key]] = _reference(value)
    become = _become({key: given[key] for key in _BECOME if key in given})
    return found if become is None else {**found, "become": become}


def _become(given: Mapping[str, Any]) -> Any:
    wanted = "ansible_become" in given and _truth(given["ansible_become"])
    how = given.keys() - {"ansible_become", "ansible_become_user"}
    if not wanted and not how:
        return False if "ansible_become" in given else None
    become: dict[str, Any] = {"user": str(given.get("ansible_become_user", "root"))}
    if not wanted:
        # How it is done if a task or step asks for it.
        become["always"] = False
    method = str(given.get("ansible_become_method", "")).removeprefix("ansible.builtin.")
    if method and (wanted or method in ("sudo", "su", "doas")):
        become["method"] = method
    secret = next((given[key] for key in _BECOME_SECRETS if key in given), None)
    if secret is not None:
        become["password"] = _reference(secret)
    return become if len(become) > 1 else True if become["user"] == "root" else become["user"]


def _connector(name: str) -> str:
    return "ssh" if name in _SSH else "local" if name in _LOCAL else name


def _truth(value: Any) -> bool:
    return value.strip().lower() in ("1", "on", "t", "true", "y", "yes") if isinstance(value, str) else bool(value)


def _reference(value: Any) -> str:
    lookup = _ENV_LOOKUP.fullmatch(str(value).strip())
    return f"env:{lookup[1]}" if lookup else str(value)


def _refuse_secrets(found: Found, owner: Group | Host, encrypted: bool) -> None:
    """Secrets themselves, and encrypted ones if there is anybody who has them."""
    for key, var in (*owner.vars.items(), *owner.files.items()):
        if is_encrypted(var.value):
            if encrypted:
                summary = f"{key} is encrypted with ansible-vault, which kubexm does not decrypt"
                hint = "use a secret reference instead, such as env:NAME or file:PATH"
                found.error("encrypted-variable", summary, var.origin, hint)
        elif key in _REFERENCES and not _REFERENCE.fullmatch(_reference(var.value)):
            summary = f"{key} contains a plain-text secret; only secret references are accepted"
            hint = f"write {key}: env:NAME or file:PATH, or \"{{{{ lookup('env', 'NAME') }}}}\""
            found.error("plain-password", summary, var.origin, hint)


def _priority(group: Group) -> int:
    var = group.vars.get("ansible_group_priority")
    try:
        return int(var.value) if var is not None else 1
    except (TypeError, ValueError):
        return 1


def _members(found: Found, name: str, known: dict[str, dict[str, None]]) -> dict[str, None]:
    """The hosts of a group and of all groups below it; there is no cycle any more."""
    if name not in known:
        group = found.groups[name]
        hosts = dict(group.hosts)
        for child in group.children:
            hosts.update(_members(found, child, known))
        known[name] = hosts
    return known[name]


def _depths(found: Found) -> dict[str, int] | None:
    """How far below ``all`` each group is: what is deeper is more special, and wins."""
    ok = True
    for name, group in list(found.groups.items()):
        for child, origin in group.children.items():
            if child not in found.groups:
                ok = False
                hint = did_you_mean(child, found.groups) or f"write [{child}] with its hosts, or remove it here"
                summary = f'group "{name}" has a child "{child}", which is not a group'
                found.error("unknown-group", summary, origin, hint)
    depths = dict.fromkeys(found.groups, 1)
    changed = list(found.groups) if ok else []
    rounds = 0
    while changed:
        rounds += 1
        if rounds > len(found.groups) + 1:
            name = changed[0]
            hint = "a group cannot be its own child, directly or indirectly"
            found.error("group-cycle", f'group "{name}" contains itself', found.groups[name].origin, hint)
            return None
        following: dict[str, None] = {}
        for name in changed:
            if name == ALL:
                continue
            for child in found.groups[name].children:
                if depths[child] < depths[name] + 1:
                    depths[child] = depths[name] + 1
                    following[child] = None
        changed = list(following)
    return depths if ok else None
