"""Compares two compiled graphs: which nodes are new, gone or changed, and on which hosts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from posixpath import commonprefix
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from kubexm_exec.model.data import builtins
from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, Mode, On
from kubexm_spec.diagnostics import some

_SEPARATE = {"origin", "hosts", "candidates", "hasItem", "inputsHash", "dependencies", "policy", "constraints"}
"""What is compared in its own way, or not at all."""
_HOST_KEYS = ("connector", "address", "internalAddress", "port", "user", "perHostLimit", "options")
_LONGEST = 60
"""Characters of a value that are shown."""
_MOST = 10
"""Differences in one value that are shown."""

Inputs = Callable[[ExecutionNode], Mapping[str, Any]]
"""Gives the values that a node refers to, by name."""


class NodeChange(Struct, frozen=True, rename="camel"):
    """One node that is not the same."""

    node: str
    change: str
    """added, removed or changed"""
    hosts_added: tuple[str, ...] = ()
    hosts_removed: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    gate: bool = False
    """Nothing that runs: only what it makes others wait for has changed."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = builtins(self)
        return data


def compare(
    before: ExecutionGraph,
    after: ExecutionGraph,
    *,
    inputs_before: Inputs | None = None,
    inputs_after: Inputs | None = None,
) -> list[NodeChange]:
    """What changes from one graph to the other, in graph order; with ``inputs`` it is said which value has changed.

    A gate is told only if it is in both: one that comes or goes shows in the steps that wait for it.
    """
    changes = [
        NodeChange(node.id, "removed", hosts=node.hosts) for node in before.steps() if node.id not in after.nodes
    ]
    for node in after.nodes.values():
        was = before.nodes.get(node.id)
        if was is None or was.kind is not node.kind:
            if not node.is_gate:
                changes.append(NodeChange(node.id, "added", hosts=node.hosts))
            continue
        details = _details(was, node)
        if was.inputs_hash != node.inputs_hash:
            details.extend(_inputs(was, node, inputs_before, inputs_after))
        come = tuple(host for host in node.hosts if host not in set(was.hosts))
        gone = tuple(host for host in was.hosts if host not in set(node.hosts))
        if details or come or gone:
            changes.append(NodeChange(node.id, "changed", come, gone, tuple(details), node.hosts, node.is_gate))
    return changes


def compare_hosts(before: ExecutionGraph, after: ExecutionGraph) -> list[str]:
    """How hosts that both graphs have are reached in another way."""
    found: list[str] = []
    for name in (name for name in after.hosts if name in before.hosts):
        old, new = _said(before.hosts[name]), _said(after.hosts[name])
        for key in _HOST_KEYS:
            if old[key] != new[key]:
                found.extend(differences(f"host {name}: {key}", old[key], new[key]))
    return found


def _details(before: ExecutionNode, after: ExecutionNode) -> list[str]:
    old, new = _content(before), _content(after)
    found: list[str] = []
    for key in sorted((old.keys() | new.keys()) - _SEPARATE):
        one, other = old.get(key), new.get(key)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            for name in sorted(one.keys() | other.keys()):
                if one.get(name) != other.get(name):
                    found.extend(differences(f"{key}.{name}", one.get(name), other.get(name)))
        else:
            found.extend(differences(key, one, other))
    edges, others = set(map(_edge, before.dependencies)), set(map(_edge, after.dependencies))
    moved = [*(f"-{one}" for one in sorted(edges - others)), *(f"+{one}" for one in sorted(others - edges))]
    return [*found, *([f"order: {some(moved, 6)}"] if moved else [])]


def _content(node: ExecutionNode) -> dict[str, Any]:
    """All that a node says, also what is as by default, by the names that specs have for it."""
    return {**_said(node), **_said(node.policy), **_said(node.constraints), "retry": _said(node.policy.retry)}


def _said(part: Struct) -> dict[str, Any]:
    return {each.encode_name: getattr(part, each.name) for each in fields(type(part))}


def _inputs(
    before: ExecutionNode, after: ExecutionNode, inputs_before: Inputs | None, inputs_after: Inputs | None
) -> list[str]:
    """Which of the values that a node refers to are not the same."""
    if inputs_before is None or inputs_after is None:
        return ["a value it refers to"]
    old, new = inputs_before(before), inputs_after(after)
    found: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        if one == other:
            continue
        if name.startswith("file "):
            found.append(f"{name}: {'content' if one and other else 'it is new' if other else 'it is gone'}")
        else:
            found.extend(differences(name, _value(one, other), _value(other, one)))
    return found


def _value(value: Any, other: Any) -> Any:
    """The part of a variable's value that is worth showing: what is written once, or the first host that differs."""
    if not isinstance(value, Mapping) or not {"given", "scope", "hosts"} >= value.keys():
        return value
    if "given" in value:
        return value["given"]
    theirs = other if isinstance(other, Mapping) else {}
    if "scope" in value and value["scope"] != theirs.get("scope"):
        return value["scope"]
    hosts, others = value.get("hosts", {}), theirs.get("hosts", {})
    for host in [*hosts, *others]:
        if hosts.get(host) != others.get(host):
            return {host: hosts.get(host)}
    return value


def _edge(dep: Dependency) -> str:
    """What is waited for; what is not as usual is added."""
    notes = []
    if dep.on is not On.SUCCESS:
        notes.append(dep.on.value)
    if dep.mode is Mode.HOST:
        notes.append("host by host")
    if dep.hosts is not None:
        notes.append(some(dep.hosts, 6))
    return f"{dep.node} ({', '.join(notes)})" if notes else dep.node


def differences(name: str, one: Any, other: Any) -> Iterable[str]:
    """How a value has changed; of long ones only what differs, wherever in them it is."""
    old, new = json.dumps(one, ensure_ascii=False, default=str), json.dumps(other, ensure_ascii=False, default=str)
    if max(len(old), len(new)) > _LONGEST:
        parts = _parts(one, other)
        if parts:
            shown = parts[:_MOST]
            for key, before, after in shown:
                yield from differences(f"{name}{key}", before, after)
            if len(parts) > len(shown):
                yield f"{name}: {len(parts) - len(shown)} more differences in it"
            return
        name += _line(one, other)
        old, new = _windows(old, new)
    yield f"{name}: {old} -> {new}"


def _parts(one: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """The parts of two mappings or lists that are not the same, each with how it is written behind their name."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = dict.fromkeys([*one, *other])
        return [(f".{key}", one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [(f"[{index}]", before, after) for index, (before, after) in pairs if before != after]
    return []


def _windows(old: str, new: str) -> tuple[str, str]:
    """Two long texts, each cut round the first place where they differ."""
    same = len(commonprefix([old, new]))
    start = max(0, same - _LONGEST // 3)

    def cut(text: str) -> str:
        end = start + _LONGEST
        return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")

    return cut(old), cut(new)


def _line(one: Any, other: Any) -> str:
    if not isinstance(one, str) or not isinstance(other, str) or "\n" not in one + other:
        return ""
    number = commonprefix([one, other]).count("\n") + 1
    return f" (from line {number} on)"
