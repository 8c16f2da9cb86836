"""The options of a compilation: values of parameters, the inventory, limits, tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from kubexm_spec.diagnostics import Span


class CompileOptions(Struct, frozen=True):
    """Values and choices from outside the spec."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Typed values of parameters and variables (from files); they lose against ``texts``."""
    given_at: Mapping[str, Span] = field(default_factory=dict)
    """Where those were written."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Values as text (``-e key=value``), typed by their parameter, or by the value of the variable."""
    inventory: str | None = None
    """Takes the place of the pipeline's own."""
    limit: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    skip_tags: frozenset[str] = frozenset()
    templates: tuple[str, ...] = ()
    folder: str = ""
    """Where names from outside (spec, inventory) start; the working directory of the process if it is empty."""
