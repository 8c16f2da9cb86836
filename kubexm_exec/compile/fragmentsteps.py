"""The steps of a fragment as spec data: their model, and what can be said of them before they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from kubexm_exec.compile.needs import check_step_needs
from kubexm_spec.diagnostics import Diagnostics, did_you_mean
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


def check_notify(diagnostics: Diagnostics, spec: StepSpec, place: Place, handlers: Sequence[str]) -> None:
    """A step of a fragment notifies handlers that the step which returns it notifies: they wait for its host."""
    if spec.notify and isinstance(spec, FragmentStepSpec) and spec.run_on is not None:
        summary = f'step "{spec.name}" runs on other hosts than the step that returns it, so it cannot notify'
        hint = "handlers on those hosts do not wait for it"
        diagnostics.error("notify-elsewhere", summary, place.child("notify"), hint=hint)
        return
    for name in spec.notify:
        if name not in handlers:
            summary = f'step "{spec.name}" notifies "{name}", which the step that returns it does not notify'
            hint = did_you_mean(name, handlers) or f"add it to `notify` of that step: its hosts are those of {name}"
            diagnostics.error("unknown-handler", summary, place.child("notify"), hint=hint)
