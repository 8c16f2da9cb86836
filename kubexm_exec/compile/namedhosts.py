"""Pass: hosts that steps name in their parameters exist, and can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.compile.files import values_of
from kubexm_exec.compile.state import State
from kubexm_exec.compile.static import linked_evaluator
from kubexm_exec.compile.types import marks_of
from kubexm_spec.diagnostics import did_you_mean


def check_named_hosts(state: State) -> None:
    """Look at every parameter that names a host, on every host if it differs between them."""
    for draft in state.all_drafts():
        paths = () if draft.step_type is None else marks_of(draft.step_type.params_model).hosts
        for path in paths:
            for name in values_of(linked_evaluator(state), draft, written(draft.spec.with_, path)):
                state.named_hosts.add(name)
                place = draft.place.child("with", *path)
                if name not in state.hosts and state.hosts_known:
                    hint = did_you_mean(name, state.hosts) or "name a host of the inventory"
                    state.diagnostics.error("unknown-host", f'there is no host "{name}"', place, hint=hint)
                elif name in state.beyond_reach:
                    error, _ = state.beyond_reach[name]
                    state.diagnostics.error(error.code, f'host "{name}": {error.message}', place, hint=error.hint)


def written(params: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path of a step's parameters; None if there is none."""
    value: Any = params
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
