"""Compares two compiled graphs: which nodes are new, gone or changed, and on which hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubexm_exec.graph import ExecutionGraph, ExecutionNode

_PLAIN = {"hash", "origin", "hosts", "inputsHash", "dependencies"}


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node that is not the same."""

    node: str
    change: str
    """added, removed or changed"""
    hosts_added: tuple[str, ...] = ()
    hosts_removed: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "node": self.node,
            "change": self.change,
            "hosts": list(self.hosts),
            "hostsAdded": list(self.hosts_added),
            "hostsRemoved": list(self.hosts_removed),
            "details": list(self.details),
        }


def compare(before: ExecutionGraph, after: ExecutionGraph) -> list[NodeChange]:
    """What changes from one graph to the other, in graph order; gates show up only through the nodes that wait for them."""
    changes: list[NodeChange] = []
    old = {node.id: node for node in before.steps()}
    new = {node.id: node for node in after.steps()}
    for node_id, node in old.items():
        if node_id not in new:
            changes.append(NodeChange(node_id, "removed", hosts=node.hosts))
    for node_id, node in new.items():
        if node_id not in old:
            changes.append(NodeChange(node_id, "added", hosts=node.hosts))
        elif (details := _details(old[node_id], node)) or set(old[node_id].hosts) != set(node.hosts):
            was = old[node_id]
            changes.append(
                NodeChange(
                    node_id,
                    "changed",
                    tuple(h for h in node.hosts if h not in set(was.hosts)),
                    tuple(h for h in was.hosts if h not in set(node.hosts)),
                    tuple(details),
                    node.hosts,
                )
            )
    return changes


def _details(before: ExecutionNode, after: ExecutionNode) -> list[str]:
    old, new = before.content(), after.content()
    found: list[str] = []
    for key in old.keys() | new.keys():
        if key in _PLAIN or old.get(key) == new.get(key):
            continue
        if key == "with":
            for name in sorted(old[key].keys() | new[key].keys()):
                if old[key].get(name) != new[key].get(name):
                    found.append(f"with.{name}: {_short(old[key].get(name))} -> {_short(new[key].get(name))}")
        else:
            found.append(f"{key}: {_short(old.get(key))} -> {_short(new.get(key))}")
    if _edges(before) != _edges(after):
        gone, come = _edges(before) - _edges(after), _edges(after) - _edges(before)
        found.append(
            "order: " + ", ".join([*(f"-{one}" for one in sorted(gone)), *(f"+{one}" for one in sorted(come))])
        )
    if old["inputsHash"] != new["inputsHash"]:
        found.append("a value it refers to")
    return sorted(found)


def _edges(node: ExecutionNode) -> set[str]:
    return {f"{dep.node} ({dep.on.value})" if dep.on.value != "success" else dep.node for dep in node.dependencies}


def _short(value: Any) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
