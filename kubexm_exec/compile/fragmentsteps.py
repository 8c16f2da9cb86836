"""The steps of a fragment as spec data: their model, and what can be said of them before they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from kubexm_exec.compile.needs import check_step_needs
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.checking import check
from kubexm_spec.models import StepSpec
from kubexm_spec.models.common import RunOn
from kubexm_spec.yaml.source import Place


class FragmentStepSpec(StepSpec):
    """A step of a fragment; it runs on the host that returned it unless it says otherwise."""

    run_on: RunOn | None = Field(default=None, description="Other hosts to run on.")


def parse_steps(
    steps: Sequence[Mapping[str, Any]], place: Place, diagnostics: Diagnostics
) -> list[tuple[Place, FragmentStepSpec]]:
    """The steps as their model, each with its place; findings for what is wrong with them."""
    found: list[tuple[Place, FragmentStepSpec]] = []
    names: set[str] = set()
    for number, data in enumerate(steps):
        where = place.child(number)
        spec = check(FragmentStepSpec, data, where, diagnostics, what=f"step {number + 1} of the fragment")
        if spec is None:
            continue
        if spec.name in names:
            diagnostics.error("duplicate-name", f'there are two steps named "{spec.name}"', where.child("name"))
        if spec.hooks is not None or spec.on_failure:
            diagnostics.error("no-hooks", "a step of a fragment cannot have hooks", where.child("name"))
        names.add(spec.name)
        found.append((where, spec))
    if len(found) == len(steps):
        for where, spec in found:
            check_step_needs(diagnostics, spec, where, [one.name for _, one in found])
    return found
