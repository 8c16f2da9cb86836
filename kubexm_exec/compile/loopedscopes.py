"""Modules and tasks with ``forEach``: one of each for every item, and what it means to need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from kubexm_exec.compile.loops import loop_place
from kubexm_exec.compile.state import Need, State
from kubexm_exec.compile.static import FAILED, render_static
from kubexm_exec.model.graph import Loop, Scope
from kubexm_exec.values.expressions import ExpressionError, is_dynamic, texts
from kubexm_exec.values.items import MOST_ITEMS, ItemsError, items_of
from kubexm_spec.models import ForEachSpec, ModuleSpec, TaskSpec
from kubexm_spec.yaml.source import Place


class Item(Struct, frozen=True):
    """A module or task as it is drafted: under its own name, or for one item of its loop."""

    name: str
    """Its name, with the key of the item."""
    needs: list[Need]
    item: Any = None
    has_item: bool = False

    def around(self, state: State, parent: str, scope: str) -> str:
        """The scope around it, which knows the item if there is one."""
        if not self.has_item:
            return parent
        known = f"{scope}#item"
        base = state.scopes[parent].base
        state.scopes[known] = Scope(known, parent, base=base, item=self.item, has_item=True)
        return known


def items_of_scope(
    state: State, spec: ModuleSpec | TaskSpec, place: Place, scope: str, prefix: str, needs: list[Need]
) -> list[Item]:
    """A module or task for each item of its loop: the first needs what is needed, the next the one before it."""
    if spec.for_each is None:
        return [Item(spec.name, needs)]
    noun = "task" if isinstance(spec, TaskSpec) else "module"
    found: list[Item] = []
    for key, item in _items(state, spec.for_each, place.child("forEach"), scope, noun):
        mine = needs
        if found and not spec.for_each.parallel:
            mine = [Need(f"{prefix}{found[-1].name}", place.child("forEach"), False)]
        found.append(Item(f"{spec.name}[{key}]", mine, item, has_item=True))
    if len(found) + sum(len(items) for items, _ in state.looped.values()) > MOST_ITEMS:
        summary = f"the loops of modules and tasks have more than {MOST_ITEMS:,} items in all"
        state.diagnostics.error("too-many-items", summary, place.child("forEach"))
        found = []
    state.looped[f"{prefix}{spec.name}"] = ([f"{prefix}{one.name}" for one in found], needs)
    return found


class _FoundError(Exception):
    """What is wrong is among the findings already."""


def _items(state: State, spec: ForEachSpec, place: Place, scope: str, noun: str) -> Sequence[tuple[str, Any]]:
    def evaluate(value: Any, part: tuple[str, ...], names: Mapping[str, Any]) -> Any:
        bare = isinstance(value, str) and (part == ("key",) or not is_dynamic(value))
        if not bare and not is_dynamic(value):
            return value
        where = loop_place(place, part)
        _refuse_host(state, value, where, noun, bare=bare)
        result = render_static(state, value, scope, where, f"the loop of a {noun}", bare=bare, names=names)
        if result is FAILED:
            raise _FoundError
        return result

    try:
        return items_of(Loop(spec.items, spec.matrix, spec.key, spec.parallel), evaluate)
    except ItemsError as error:
        state.diagnostics.error(error.code, error.message, loop_place(place, error.part), hint=error.hint)
    except _FoundError:
        pass
    return ()


def _refuse_host(state: State, value: Any, place: Place, noun: str, *, bare: bool) -> None:
    """The items are the same for all hosts, so that they cannot depend on one."""
    for _, text in texts(value):
        try:
            compiled = state.expressions.expression(text) if bare else state.expressions.text(text)
        except ExpressionError:  # told where it is evaluated
            continue
        if any(reference.root == "host" for reference in compiled.references):
            summary = f"the loop of a {noun} is the same for all its hosts, so it cannot refer to `host`"
            hint = "loop in its steps instead: their items can differ from host to host"
            state.diagnostics.error("not-static", summary, place.find("host"), hint=hint)
            raise _FoundError


def expand_needs(state: State) -> None:
    """Whoever needs a module or task with a loop needs all its items; without items, what that would need."""
    for module in state.modules:
        module.needs = _expanded(state, module.needs)
        for task in module.tasks:
            task.needs = _expanded(state, task.needs)


def _expanded(state: State, needs: Sequence[Need]) -> list[Need]:
    if not state.looped:
        return list(needs)
    found: dict[str, Need] = {}
    for need in needs:
        for target in _targets(state, need.target, frozenset()):
            found.setdefault(target, Need(target, need.place, need.declared))
    return list(found.values())


def _targets(state: State, target: str, seen: frozenset[str]) -> list[str]:
    """The modules and tasks that are meant by an id without keys."""
    if target in seen:
        return []
    seen |= {target}
    module, slash, task = target.partition("/")
    if slash and module in state.looped:
        items, before = state.looped[module]
        inside = [one for item in items for one in _targets(state, f"{item}/{task}", seen)]
        return inside if items else [one for need in before for one in _targets(state, need.target, seen)]
    if target not in state.looped:
        return [target]
    items, before = state.looped[target]
    return items or [one for need in before for one in _targets(state, need.target, seen)]
