"""Hosts of ansible inventories: expressions in what says how they are reached see the host's own variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubexm_exec.compile.scopes import var_layers
from kubexm_exec.compile.state import State
from kubexm_exec.values.expressions import ExpressionError, is_dynamic
from kubexm_spec.documents.checking import check
from kubexm_spec.documents.loader import Loaded
from kubexm_spec.inventories.ansible import UNGROUPED, connection
from kubexm_spec.inventories.converted import MergedSource
from kubexm_spec.models import HostSpec, InventoryBody

_DEEPEST: Final = 20
"""The longest chain of variables that refer to each other."""


def finish_hosts(state: State, inventory: Loaded[InventoryBody]) -> None:
    """Evaluate the expressions, and give their values to the hosts as if they had been written."""
    source, body = inventory.source, inventory.document
    if not isinstance(source, MergedSource) or not source.unfinished:
        return
    groups: dict[str, list[str]] = {host.name: [] for host in body.hosts}
    for group, spec in body.groups.items():
        for name in spec.hosts:
            groups[name].append(group)
    for index, unfinished in source.unfinished.items():
        host = body.hosts[index]
        variables: dict[str, Any] = {**unfinished.known, **unfinished.expressions}
        for _, _, values in var_layers(body, (), groups[host.name], index):
            variables.update(values)
        variables["inventory_hostname"] = host.name
        variables["inventory_hostname_short"] = host.name.split(".")[0]
        variables["group_names"] = sorted(groups[host.name]) or [UNGROUPED]
        found: dict[str, Any] = {}
        done: dict[str, Any] = {}
        for key, text in unfinished.expressions.items():
            try:
                found[key] = _evaluated(state, text, variables, done, _DEEPEST)
            except ExpressionError as error:
                summary = f'host "{host.name}": {key} cannot be evaluated: {error}'
                where = source.span(unfinished.origins[key])
                hint = "it can use the variables of the inventory, inventory_hostname and group_names"
                state.diagnostics.error("templated-connection", summary, where, hint=hint)
                state.hosts_known = False
        if len(found) < len(unfinished.expressions):
            continue
        data = source.documents[0]["hosts"][index]
        finished = check(
            HostSpec,
            {**data, **connection({**unfinished.known, **found})},
            inventory.place("hosts", index),
            state.diagnostics,
            what=f'host "{host.name}"',
        )
        if finished is not None:
            body.hosts[index] = finished


def _evaluated(state: State, value: Any, variables: Mapping[str, Any], done: dict[str, Any], left: int) -> Any:
    """A value with its expressions evaluated, also those of the variables that they name; each is ``done`` once."""
    if isinstance(value, Mapping):
        return {key: _evaluated(state, one, variables, done, left) for key, one in value.items()}
    if isinstance(value, list):
        return [_evaluated(state, one, variables, done, left) for one in value]
    if not is_dynamic(value):
        return value
    if not left:
        raise ExpressionError("its variables refer to each other")
    compiled = state.expressions.text(value)
    named = {reference.root for reference in compiled.references} & variables.keys()
    for name in named - done.keys():
        done[name] = _evaluated(state, variables[name], variables, done, left - 1)
    return compiled({name: done[name] for name in named})
