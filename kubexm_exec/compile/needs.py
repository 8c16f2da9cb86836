"""What modules, tasks and steps wait for: declared ``needs``, or the order of writing."""

from __future__ import annotations

from collections.abc import Sequence

from kubexm_exec.compile.state import Need, State
from kubexm_spec.diagnostics import Diagnostics, Note, did_you_mean
from kubexm_spec.models import ModuleSpec, StepSpec, TaskSpec
from kubexm_spec.yaml.source import Place


def check_unique(state: State, names: Sequence[str], place: Place, noun: str) -> None:
    """Names are unique among siblings."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            summary, where = f'there are two {noun}s named "{name}"', place.child(index, "name")
            notes = (Note("the first one", place.child(first[name], "name").span()), *place.notes)
            state.diagnostics.error("duplicate-name", summary, where, hint="rename one of them", notes=notes)
        first.setdefault(name, index)


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
            elif (target in self.modules and target != module) or (slash and task in (tasks or ())):
                found.append(Need(target, where, True))
            elif not slash or tasks is not None:
                names = [*siblings, *self.modules]
                paths = [f"{name}/{task}" for name, known in self.modules.items() for task in known or ()]
                hint = did_you_mean(target, paths if slash else [*names, *paths])
                hint = hint or f"there are {', '.join(names[:12])}"
                summary = f'{who} needs "{target}", which is {what}'
                self.state.diagnostics.error("unknown-need", summary, where, hint=hint)
        return found


def check_step_needs(diagnostics: Diagnostics, step: StepSpec, place: Place, names: Sequence[str]) -> None:
    """A step needs steps of its own task."""
    for index, target in enumerate(step.needs or ()):
        if target not in names:
            summary = f'step "{step.name}" needs "{target}", which is not a step of its task'
            hint = did_you_mean(target, names)
            hint = hint or "to wait for a step of another task, add that task to `needs` of the task"
            diagnostics.error("unknown-need", summary, place.child("needs", index), hint=hint)
