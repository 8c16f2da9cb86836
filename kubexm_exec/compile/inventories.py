"""Inventories of third parties: entry points of the group ``kubexm.inventories``, used as ``NAME:argument``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.plugins import Registry, RegistryError
from kubexm_spec.diagnostics import Diagnostic, SpecError


def inventory_registry() -> Registry[Any]:
    """Sources of inventories: each a function from its argument to an inventory as data, in the form of a document."""
    return Registry("kubexm.inventories", "inventory source")


def ask(name: str, argument: str) -> Mapping[str, Any]:
    """The inventory that a source gives for an argument; SpecError says why there is none."""
    registry = inventory_registry()
    try:
        source = registry.load(name)
        owner = registry.info(name).distribution
    except RegistryError as error:
        hint = error.hint if registry.names() else "use a file; no package with inventory sources is installed"
        raise _failure(
            error.code, f'the inventory "{name}:{argument}" is not a file, and {error.message}', hint
        ) from error
    try:
        found = source(argument)
    except Exception as error:  # whatever a third party's code raises is its answer, never a traceback
        reason = f"{type(error).__name__}: {error}"
        summary = f'inventory source "{name}" of package {owner} failed: {reason}'
        raise _failure("inventory-source-failed", summary, f'check the argument "{argument}"') from error
    if not isinstance(found, Mapping):
        summary = f'inventory source "{name}" of package {owner} returned a {type(found).__name__}, not a mapping'
        raise _failure("inventory-source-failed", summary, "it should return hosts, groups, roles, vars and defaults")
    return found


def _failure(code: str, summary: str, hint: str) -> SpecError:
    return SpecError([Diagnostic(code, summary, hint=hint)])
