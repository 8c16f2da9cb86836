"""Drafts the entries among the steps of a task: steps, flushes, and groups of steps with their rescue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kubexm_exec.compile.delegation import Delegation, delegate
from kubexm_exec.compile.hooks import Surroundings, draft_group_hooks, draft_step_hooks
from kubexm_exec.compile.needs import check_names, check_step_needs, check_unique
from kubexm_exec.compile.state import EntryDraft, FlushDraft, GroupDraft, Guard, State, StepDraft, TaskDraft, with_tags
from kubexm_exec.model.graph import Membership, Part
from kubexm_spec.models import FlushSpec, StepGroupSpec, StepSpec
from kubexm_spec.yaml.source import Place

Entry = StepSpec | FlushSpec | StepGroupSpec
_DEEPEST: Final = 5
"""Groups in groups, at most."""
_DEFAULTS: Final = ("retry", "timeout", "ignore_errors", "become")


class Entries(Struct, frozen=True):
    """What the entries of a task or a group take over from what is around them."""

    task: TaskDraft
    around: Surroundings
    delegation: Delegation | None = None
    groups: tuple[Membership, ...] = ()


def draft_steps(state: State, entries: Sequence[Entry], place: Place, context: Entries) -> None:
    """Fill the steps of a task."""
    check_step_names(state, entries, place)
    context.task.entries = _draft(state, entries, place, context)


def check_step_names(state: State, entries: Sequence[Entry], place: Place) -> None:
    """Names of steps are unique in their task, whatever groups they are in."""
    if any(isinstance(entry, StepGroupSpec) for entry in entries):
        check_names(state, list(_names(entries, place)), "step")
    else:
        check_unique(state, [entry.name for entry in entries], place, "step")


def _names(entries: Sequence[Entry], place: Place) -> Iterator[tuple[str, Place]]:
    """The names of all entries, those of groups included, each with its place."""
    for number, entry in enumerate(entries):
        where = place.child(number)
        yield entry.name, where.child("name")
        if isinstance(entry, StepGroupSpec):
            yield from _names(entry.steps, where.child("steps"))
            yield from _names(entry.rescue, where.child("rescue"))


def _draft(state: State, entries: Sequence[Entry], place: Place, context: Entries) -> list[EntryDraft]:
    names, noun = [entry.name for entry in entries], "group" if context.groups else "task"
    found: list[EntryDraft] = []
    for number, entry in enumerate(entries):
        where = place.child(number)
        check_step_needs(state.diagnostics, entry, where, names, noun)
        if isinstance(entry, StepGroupSpec):
            found.append(_group(state, entry, where, context))
            continue
        task, around = context.task, context.around
        name = f"{task.id}/{entry.name}"
        draft: StepDraft | FlushDraft
        if isinstance(entry, FlushSpec):
            draft = FlushDraft(entry, where, name, around.module, around.task, around.hosts)
        else:
            draft = _step(state, entry, where, name, context)
        task.steps.append(draft)
        found.append(draft)
    return found


def _step(state: State, spec: StepSpec, place: Place, name: str, context: Entries) -> StepDraft:
    task, around = context.task, context.around
    draft = StepDraft(
        spec=spec, place=place, id=name, module=around.module, task=around.task, scope=task.id, hosts=around.hosts,
        once=around.once, guards=around.guards, env=around.env, tags=with_tags(around.tags, spec.tags),
        defaults=around.defaults, groups=context.groups,
    )  # fmt: skip
    own = spec.delegate_to
    to = context.delegation if own is None else Delegation(own, place.child("delegateTo"), task.id)
    if to is not None:
        delegate(state, draft, to)
    draft_step_hooks(state, draft, spec)
    return draft


def _group(state: State, spec: StepGroupSpec, place: Place, context: Entries) -> GroupDraft:
    task, around = context.task, context.around
    draft = GroupDraft(
        spec=spec, place=place, id=f"{task.id}/{spec.name}", module=around.module, task=around.task,
        hosts=around.hosts, groups=context.groups,
    )  # fmt: skip
    if len(context.groups) >= _DEEPEST:
        summary = f"groups can be {_DEEPEST} deep, and this one is deeper"
        hint = "move some of its steps to a task of their own"
        state.diagnostics.error("groups-too-deep", summary, place.child("name"), hint=hint)
        return draft
    defaults: Mapping[str, Any] = {
        **around.defaults,
        **{key: value for key in _DEFAULTS if (value := getattr(spec, key)) is not None},
    }
    inside = replace(around, defaults=defaults, tags=with_tags(around.tags, spec.tags))
    delegation = context.delegation
    if spec.delegate_to is not None:
        delegation = Delegation(spec.delegate_to, place.child("delegateTo"), task.id)

    def part(of: Part, around: Surroundings) -> Entries:
        return Entries(task, around, delegation, (Membership(draft.id, of), *context.groups))

    guarded = inside
    if spec.when is not None:
        # Not of what follows a failure or a begin: then it has held.
        guarded = replace(inside, guards=(*inside.guards, Guard(task.id, spec.when, place.child("when"))))
    draft.steps = _draft(state, spec.steps, place.child("steps"), part(Part.BODY, guarded))
    draft.rescue = _draft(state, spec.rescue, place.child("rescue"), part(Part.RESCUE, inside))
    hooks = replace(inside, prefix=f"{draft.id}/{Part.ALWAYS.value}")
    groups = part(Part.ALWAYS, hooks).groups
    draft.always = draft_group_hooks(state, spec.always, place.child("always"), task.id, hooks, groups)
    task.steps.extend(draft.always)
    return draft
