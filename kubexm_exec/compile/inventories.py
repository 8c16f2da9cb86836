"""Inventories of third parties: entry points of the group ``kubexm.inventories``, used as ``NAME:argument``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from kubexm_exec.plugins import RAISES, Registry, RegistryError, raised
from kubexm_spec.diagnostics import Diagnostic, SpecError


def inventory_registry() -> Registry[Any]:
    """Sources of inventories: each a function from its argument to an inventory as data, in the form of a document."""
    return Registry("kubexm.inventories", "inventory source")


def ask(name: str, argument: str) -> Mapping[str, Any]:
    """The inventory that a source gives for an argument; SpecError says why there is none."""
    registry = inventory_registry()
    try:
        source = registry.load(name)
        if wrong := _mistake(source):
            raise registry.broken(name, wrong)
    except RegistryError as error:
        hint = error.hint if registry.names() else "use a file; no package with inventory sources is installed"
        raise _failure(
            error.code, f'the inventory "{name}:{argument}" is not a file, and {error.message}', hint
        ) from error
    who = f'inventory source "{name}" of package {registry.info(name).distribution}'
    try:
        found = source(argument)
    except RAISES as error:
        summary = f"{who} failed: {raised(error)}"
        raise _failure("inventory-source-failed", summary, f'check the argument "{argument}"') from error
    hint = "it should return hosts, groups, roles, vars and defaults"
    if not isinstance(found, Mapping):
        raise _failure("inventory-source-failed", f"{who} returned a {type(found).__name__}, not a mapping", hint)
    try:
        text = json.dumps(dict(found), default=_plain, ensure_ascii=False)
        text.encode()
        return dict(json.loads(text))
    except RAISES as error:
        said = str(error) if isinstance(error, TypeError | ValueError | RecursionError) else raised(error)
        raise _failure("inventory-source-failed", f"{who} returned what is not plain data: {said}", hint) from error


def _mistake(source: Any) -> str:
    """What the author of a source has to mend before it can be asked; empty if there is nothing to be seen."""
    import inspect

    if not callable(source):
        return f"is not a function but {source!r:.60}"
    if inspect.iscoroutinefunction(source):
        return "is an async function: it must return the inventory itself"
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):  # of a function in C nothing is known
        return ""
    try:
        signature.bind("")
    except TypeError as error:
        return f"takes {signature}, but is called with one argument: {error}"
    return ""


def _plain(value: Any) -> Any:
    """Data for what JSON does not know: addresses, paths and times are texts."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set | Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    said: Any = type(value).__str__
    if said is object.__str__ or isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a value of the type {type(value).__name__}")
    return str(value)


def _failure(code: str, summary: str, hint: str) -> SpecError:
    return SpecError([Diagnostic(code, summary, hint=hint)])
