"""What specs and inventories say, without running anything: differences, values and hosts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kubexm_exec.service.documents import compiled, hosts_of, site_of
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Difference, Documents, HostInfo
from kubexm_spec.diagnostics import did_you_mean

if TYPE_CHECKING:
    from kubexm_exec.compile import Compilation
    from kubexm_exec.compile.compare import Inputs
    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.compile.state import State
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.service.documents import Warn


def diff(before: Documents, after: Documents, warn: Warn) -> Difference:
    """What changes in the graph from one spec to another."""
    from kubexm_exec.compile.compare import compare, compare_hosts

    was, old = compiled(before, warn)
    now, new = compiled(after, warn)
    changes = compare(old, new, inputs_before=_inputs(was), inputs_after=_inputs(now))
    return Difference(changes, compare_hosts(old, new), _policy(old, new))


def _inputs(compilation: Compilation) -> Inputs | None:
    from kubexm_exec.compile.hashes import inputs_of

    return None if compilation.state is None else partial(inputs_of, compilation.state)


def _policy(old: ExecutionGraph, new: ExecutionGraph) -> list[str]:
    """What holds for the whole run and is not the same."""
    found = []
    if old.failure_policy is not new.failure_policy:
        found.append(f"failurePolicy: {old.failure_policy.value} -> {new.failure_policy.value}")
    for name in sorted(old.locks.keys() | new.locks.keys()):
        if old.locks.get(name, 1) != new.locks.get(name, 1):
            found.append(f"lock {name}: {old.locks.get(name, 1)} -> {new.locks.get(name, 1)}")
    return found


def values(documents: Documents, host: str, scope: str, warn: Warn) -> list[ValueRow]:
    """The values that a host sees in a scope, and where each is from."""
    from kubexm_exec.compile.explain import explain

    result, graph = compiled(documents, warn)
    if result.state is None:
        raise RuntimeError("a compiled graph has its state")
    if host not in result.state.hosts:
        raise Invalid(f'there is no host "{host}"', did_you_mean(host, result.state.hosts), kind="unknown-host")
    if scope not in graph.scopes:
        hint = did_you_mean(scope, graph.scopes)
        raise Invalid(f'there is no module or task "{scope}"', hint, kind="unknown-scope")
    return explain(result.state, host, scope)


def hosts(documents: Documents, pattern: str, warn: Warn) -> list[HostInfo]:
    """The hosts of a spec or an inventory; those that a pattern selects come with their variables."""
    site, state = site_of(documents, warn)
    if not pattern:
        return [HostInfo(state.hosts[name]) for name in site.names]
    names = hosts_of(site, [pattern], reached=False)
    return [HostInfo(state.hosts[name], _vars(state, name)) for name in names]


def _vars(state: State, name: str) -> list[ValueRow]:
    from kubexm_exec.compile.explain import ValueRow
    from kubexm_exec.compile.hosts import merged_layers

    sources: dict[str, list[str]] = {}
    for label, key, place in merged_layers(state, name):
        sources.setdefault(key, []).append(f"{label} at {place.file_line}")
    found = state.hosts[name].vars
    return [ValueRow(key, found[key], several[-1], tuple(several[-2::-1])) for key, several in sorted(sources.items())]
