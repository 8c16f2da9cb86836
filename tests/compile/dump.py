"""Graphs as readable text: every node with its hosts, what it waits for and what is not as usual."""

from __future__ import annotations

import json

from kubexm_exec.model.graph import Dependency, ExecutionGraph, ExecutionNode, Mode, On


def dump(graph: ExecutionGraph) -> str:
    """One line a node and one for each thing it waits for."""
    lines = [
        f"{graph.name}: {graph.failure_policy.value}, {sum(1 for _ in graph.steps())} nodes, {graph.actions()} actions"
    ]
    for node in graph.nodes.values():
        lines.append("")
        lines.append(_head(node))
        lines.extend(f"    after {_dependency(dep)}" for dep in node.dependencies)
        lines.extend(f"    {fact}" for fact in _facts(node))
    return "\n".join(lines) + "\n"


def _head(node: ExecutionNode) -> str:
    if node.is_gate:
        return f"({node.id})"
    return f"{node.id}  {node.step_name}  on {', '.join(node.hosts) or 'no host'}"


def _dependency(dep: Dependency) -> str:
    text = dep.node
    if dep.mode is Mode.HOST:
        text += ", host by host"
    if dep.on is not On.SUCCESS:
        text += f", on {dep.on.value}"
    if dep.hosts is not None:
        text += f", only {' '.join(dep.hosts)}"
    return text


def _facts(node: ExecutionNode) -> list[str]:
    policy, limits = node.policy, node.constraints
    facts = {
        "with": dict(node.with_),
        "when": node.when,
        "guards": [f"{scope or 'pipeline'}: {condition}" for scope, condition in node.guards],
        "item": node.item if node.has_item else None,
        "outputs": dict(node.outputs),
        "hook": node.hook.value,
        "groups": [f"{each.group}: {each.part.value}" for each in node.groups],
        "notifies": list(node.notifies),
        "handler": node.handler if node.handler != node.id else "",
        "once": list(node.candidates),
        "retry": [policy.retry.attempts, policy.retry.delay, policy.retry.backoff, policy.retry.max_delay]
        if policy.retry.attempts > 1
        else None,
        "timeout": policy.timeout,
        "ignoreErrors": policy.ignore_errors,
        "maxFailures": policy.max_failures if policy.max_failures != "0" else None,
        "globalLimit": limits.global_limit,
        "perHostLimit": limits.per_host_limit,
        "locks": list(limits.locks),
        "sensitive": node.sensitive,
        "tags": list(node.tags),
        "skip": node.skip,
        "pause": node.pause,
        "batchBudget": node.batch_budget,
    }
    return [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items() if value]
