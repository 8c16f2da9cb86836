"""What modules, tasks and steps wait for: declared ``needs``, or the order of writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubexm_exec.compile.state import Need, State
from kubexm_spec.diagnostics import Diagnostics, Note, did_you_mean
from kubexm_spec.models import FlushSpec, ModuleSpec, StepGroupSpec, StepSpec, TaskSpec
from kubexm_spec.yaml.source import Place

_OUTSIDE: Final = {
    "group": "a step of a group needs steps beside it; `needs` of the group is for what is outside",
    "task": "to wait for a step of another task, add that task to `needs` of the task",
}
"""By what a step is in: what to do about a step outside of it."""


def check_unique(state: State, names: Sequence[str], place: Place, noun: str) -> None:
    """Names are unique among siblings."""
    if len(set(names)) < len(names):
        check_names(state, [(name, place.child(index, "name")) for index, name in enumerate(names)], noun)


def check_names(state: State, names: Sequence[tuple[str, Place]], noun: str) -> None:
    """Names are unique, wherever they stand."""
    first: dict[str, Place] = {}
    for name, where in names:
        if name in first:
            summary = f'there are two {noun}s named "{name}"'
            notes = (Note("the first one", first[name].span()), *where.notes)
            state.diagnostics.error("duplicate-name", summary, where, hint="rename one of them", notes=notes)
        first.setdefault(name, where)


class NeedsOf:
    """Resolves the names in ``needs`` of modules and tasks."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.modules: dict[str, list[str] | None] = {}
        """The tasks of each module; None if its document cannot be used, so that they are unknown."""
        for number, module in enumerate(state.bundle.pipeline.document.modules):
            self.modules.setdefault(module.name, self._tasks(number, module))

    def _tasks(self, number: int, module: ModuleSpec) -> list[str] | None:
        used = self.state.bundle.modules.get(("modules", number))
        if used is not None:
            return [task.name for task in used.document.tasks]
        return None if module.uses is not None else [task.name for task in module.tasks]

    def module(self, spec: ModuleSpec, place: Place, number: int) -> list[Need]:
        """What a module waits for."""
        if spec.needs is None:
            previous = self.state.bundle.pipeline.document.modules[number - 1].name
            return [Need(previous, place.child("name"), False)] if number else []
        return self._declared(spec.needs, place, f'module "{spec.name}"', "neither a module nor a module/task")

    def task(self, spec: TaskSpec, place: Place, index: int, names: Sequence[str], module: str) -> list[Need]:
        """What a task waits for: siblings come before modules of the same name."""
        if spec.needs is None:
            return [Need(f"{module}/{names[index - 1]}", place.child("name"), False)] if index else []
        what = "neither a task of its module, nor another module, nor a module/task"
        return self._declared(spec.needs, place, f'task "{spec.name}"', what, names, module)

    def _declared(
        self, needs: Sequence[str], place: Place, who: str, what: str, siblings: Sequence[str] = (), module: str = ""
    ) -> list[Need]:
        found: list[Need] = []
        for index, target in enumerate(needs):
            where = place.child("needs", index)
            other, slash, task = target.partition("/")
            tasks = self.modules.get(other, [])
            if target in siblings:
                found.append(Need(f"{module}/{target}", where, True))
            elif (target in self.modules and target != module.partition("[")[0]) or (slash and task in (tasks or ())):
                found.append(Need(target, where, True))
            elif not slash or tasks is not None:
                names = [*siblings, *self.modules]
                paths = [f"{name}/{task}" for name, known in self.modules.items() for task in known or ()]
                hint = did_you_mean(target, paths if slash else [*names, *paths])
                hint = hint or f"there are {', '.join(names[:12])}"
                summary = f'{who} needs "{target}", which is {what}'
                self.state.diagnostics.error("unknown-need", summary, where, hint=hint)
        return found


def check_step_needs(
    diagnostics: Diagnostics,
    step: StepSpec | FlushSpec | StepGroupSpec,
    place: Place,
    names: Sequence[str],
    noun: str = "task",
) -> None:
    """A step needs steps of its own task, or, in a group, of the same group."""
    for index, target in enumerate(step.needs or ()):
        if target not in names:
            summary = f'step "{step.name}" needs "{target}", which is not a step of its {noun}'
            hint = did_you_mean(target, names) or _OUTSIDE[noun]
            diagnostics.error("unknown-need", summary, place.child("needs", index), hint=hint)
