"""The parts of an execution graph as plain JSON data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.model.graph import (
    Constraints,
    Dependency,
    ExecutionNode,
    GraphHost,
    Hook,
    Mode,
    NodeKind,
    On,
    Origin,
    Policy,
    Retry,
    Scope,
)


def _dependency_to_json(dep: Dependency) -> dict[str, Any]:
    data: dict[str, Any] = {"node": dep.node, "mode": dep.mode.value, "on": dep.on.value}
    if dep.hosts is not None:
        data["hosts"] = list(dep.hosts)
    return data


def node_to_json(node: ExecutionNode) -> dict[str, Any]:
    """A node as plain data, without the keys that say nothing."""
    retry = node.policy.retry
    data: dict[str, Any] = {
        "id": node.id,
        "kind": node.kind.value,
        "name": node.name,
        "stepName": node.step_name,
        "module": node.module,
        "task": node.task,
        "hosts": list(node.hosts),
        "dependencies": [_dependency_to_json(dep) for dep in node.dependencies],
        "with": dict(node.with_),
        "when": node.when,
        "guards": [list(guard) for guard in node.guards],
        "outputs": dict(node.outputs),
        "scope": node.scope,
        "retry": {
            "attempts": retry.attempts,
            "delay": retry.delay,
            "backoff": retry.backoff,
            "maxDelay": retry.max_delay,
            "on": list(retry.on),
        },
        "timeout": node.policy.timeout,
        "ignoreErrors": node.policy.ignore_errors,
        "maxFailures": node.policy.max_failures,
        "globalLimit": node.constraints.global_limit,
        "perHostLimit": node.constraints.per_host_limit,
        "locks": list(node.constraints.locks),
        "hook": node.hook.value,
        "sensitive": node.sensitive,
        "reversible": node.reversible,
        "tags": list(node.tags),
        "skip": node.skip,
        "pause": node.pause,
        "batchBudget": node.batch_budget,
        "inputsHash": node.inputs_hash,
        "origin": {"file": node.origin.file, "line": node.origin.line, "column": node.origin.column},
    }
    if node.candidates:
        data["once"] = node.once
        data["candidates"] = list(node.candidates)
    if node.has_item:
        data["item"] = node.item
    if node.become is not None:
        data["become"] = node.become
    if node.places:
        data["places"] = dict(node.places)
    return data


def node_from_json(raw: Mapping[str, Any]) -> ExecutionNode:
    """The node that ``node_to_json`` wrote."""
    retry = raw["retry"]
    return ExecutionNode(
        id=raw["id"],
        kind=NodeKind(raw["kind"]),
        name=raw["name"],
        step_name=raw["stepName"],
        module=raw["module"],
        task=raw["task"],
        hosts=tuple(raw["hosts"]),
        places=raw.get("places", {}),
        once=raw.get("once", ""),
        candidates=tuple(raw.get("candidates", ())),
        dependencies=tuple(
            Dependency(
                dep["node"],
                Mode(dep["mode"]),
                On(dep["on"]),
                tuple(dep["hosts"]) if dep.get("hosts") is not None else None,
            )
            for dep in raw["dependencies"]
        ),
        with_=raw["with"],
        when=raw["when"],
        guards=tuple((scope, condition) for scope, condition in raw["guards"]),
        item=raw.get("item"),
        has_item="item" in raw,
        outputs=raw["outputs"],
        scope=raw["scope"],
        policy=Policy(
            retry=Retry(
                attempts=retry["attempts"],
                delay=retry["delay"],
                backoff=retry["backoff"],
                max_delay=retry["maxDelay"],
                on=tuple(retry["on"]),
            ),
            timeout=raw["timeout"],
            ignore_errors=raw["ignoreErrors"],
            max_failures=raw["maxFailures"],
        ),
        constraints=Constraints(raw["globalLimit"], raw["perHostLimit"], tuple(raw["locks"])),
        hook=Hook(raw["hook"]),
        become=raw.get("become"),
        sensitive=raw["sensitive"],
        reversible=raw["reversible"],
        tags=tuple(raw["tags"]),
        skip=raw["skip"],
        pause=raw["pause"],
        batch_budget=raw["batchBudget"],
        inputs_hash=raw["inputsHash"],
        origin=Origin(**raw["origin"]),
    )


def host_to_json(host: GraphHost) -> dict[str, Any]:
    """A host as plain data."""
    return {
        "name": host.name,
        "connector": host.connector,
        "address": host.address,
        "internalAddress": host.internal_address,
        "port": host.port,
        "user": host.user,
        "roles": list(host.roles),
        "groups": list(host.groups),
        "labels": dict(host.labels),
        "vars": dict(host.vars),
        "perHostLimit": host.per_host_limit,
        "options": dict(host.options),
    }


def host_from_json(raw: Mapping[str, Any]) -> GraphHost:
    """The host that ``host_to_json`` wrote."""
    return GraphHost(
        name=raw["name"],
        connector=raw["connector"],
        address=raw["address"],
        internal_address=raw["internalAddress"],
        port=raw["port"],
        user=raw["user"],
        roles=tuple(raw["roles"]),
        groups=tuple(raw["groups"]),
        labels=raw["labels"],
        vars=raw["vars"],
        per_host_limit=raw["perHostLimit"],
        options=raw["options"],
    )


def scope_to_json(scope: Scope) -> dict[str, Any]:
    """A scope as plain data."""
    data = {
        "id": scope.id,
        "parent": scope.parent,
        "params": dict(scope.params),
        "secretParams": list(scope.secret_params),
        "ownParams": scope.own_params,
        "vars": dict(scope.vars),
        "outputs": dict(scope.outputs),
        "base": scope.base,
    }
    if scope.resources:
        data["resources"] = dict(scope.resources)
    return data


def scope_from_json(raw: Mapping[str, Any]) -> Scope:
    """The scope that ``scope_to_json`` wrote."""
    return Scope(
        id=raw["id"],
        parent=raw["parent"],
        params=raw["params"],
        secret_params=tuple(raw["secretParams"]),
        own_params=raw["ownParams"],
        vars=raw["vars"],
        outputs=raw["outputs"],
        resources=raw.get("resources", {}),
        base=raw["base"],
    )
