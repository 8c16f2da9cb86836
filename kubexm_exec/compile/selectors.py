"""Selectors: which hosts a ``runOn`` means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from kubexm_exec.compile.hostpatterns import missing_of
from kubexm_exec.compile.state import Reach, State
from kubexm_exec.compile.static import FAILED, render_static, written
from kubexm_exec.values.evaluate import CONTROL_NODE
from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.diagnostics import did_you_mean, some
from kubexm_spec.models import RunOnSpec
from kubexm_spec.models.common import SelectorSpec
from kubexm_spec.ranges import match
from kubexm_spec.yaml.source import Place

SomeSelector = TypeVar("SomeSelector", bound=SelectorSpec)
_HINTS = {"item": "where a step runs is decided for each host, before its loop: items have no part in it"}
_LISTS = ("roles", "groups", "hosts", "exclude")


def chosen_by(state: State, pattern: str) -> list[str]:
    """The hosts that a person means by a pattern: a glob is about the inventory, and this machine goes by its name."""
    found = match(pattern, state.hosts)
    named = pattern == CONTROL_NODE or len(state.hosts) == 1
    return found if named else [name for name in found if name != CONTROL_NODE]


def match_hosts(state: State, patterns: Iterable[str], place: Place, *, only: bool = False) -> list[str]:
    """The hosts of patterns in inventory order; a pattern without a host is an error. ``only``: hosts alone count."""
    found: dict[str, None] = {}
    for index, pattern in enumerate(patterns):
        matched = chosen_by(state, pattern)
        if not matched and state.hosts_known:
            hint = ("" if only else _meant(state, pattern)) or did_you_mean(pattern, state.hosts)
            hint = hint or f"hosts: {some(state.hosts)}"
            state.diagnostics.error("unknown-host", f'there is no host "{pattern}"', _item(place, index), hint=hint)
        elif matched and (missing := missing_of(pattern, state.hosts)):
            summary = f'"{pattern}" names hosts that are not in the inventory: {some(missing)}'
            hint = f"hosts: {some(state.hosts)}"
            state.diagnostics.warning("unknown-host", summary, _item(place, index), hint=hint)
        found.update(dict.fromkeys(matched))
    return [name for name in state.hosts if name in found]


def _meant(state: State, name: str) -> str:
    """What to write where a host is named, and a role or a group is meant."""
    for key, known in (("roles", state.roles), ("groups", state.groups)):
        if name in known:
            return f'"{name}" is a {key.removesuffix("s")}: write {{{key}: [{name}]}}'
    return ""


def _item(place: Place, index: int) -> Place:
    """The item of a list; a single one may stand alone."""
    return place.child(index) if isinstance(written(place), list) else place


def hosts_of(
    state: State,
    run_on: RunOnSpec,
    place: Place,
    scope: str,
    who: str,
    *,
    reach: Reach | None = None,
    origin: str | None = None,
    candidates: bool = False,
) -> tuple[str, ...]:
    """The hosts of a task or hook; that there are none is told, unless it follows from a finding or from a limit.

    ``reach``: hosts to choose from, whatever the limit; ``origin``: the host for which a place is looked for.
    ``candidates``: with ``runOnce`` not only the first: which one it is will be decided when the run comes to it.
    """
    before = state.diagnostics.error_count
    rendered = static_run_on(state, run_on, place, scope, origin)
    if rendered is None:
        return ()
    hosts = select(state, rendered, place, reach)
    if hosts is None:
        return ()
    if (
        not hosts
        and (reach or not state.options.limit)
        and state.hosts_known
        and state.diagnostics.error_count == before
    ):
        tell = state.diagnostics.error if rendered.required else state.diagnostics.warning
        hint = "it is `required`: check the inventory" if rendered.required else "it will be skipped"
        tell("no-hosts", f"{who} runs on no host", place, hint=hint)
    return hosts[:1] if rendered.run_once and not candidates else hosts


def is_outside(state: State, run_on: RunOnSpec, place: Place, scope: str, hosts: tuple[str, ...]) -> bool:
    """Whether a selector that gave these hosts has none only because of the limit."""
    if hosts or not state.options.limit:
        return False
    rendered = static_run_on(state, run_on, place, scope)
    return rendered is not None and bool(select(state, rendered, place, state.reach))


def static_run_on(
    state: State, run_on: SomeSelector, place: Place, scope: str, origin: str | None = None
) -> SomeSelector | None:
    """The selector with its expressions evaluated (for a host, if one is served), or None with findings."""
    data = run_on.model_dump(by_alias=True)
    if not is_dynamic(data):
        return run_on
    rendered: dict[str, Any] = {}
    for key, value in data.items():
        if not is_dynamic(value):
            rendered[key] = value
            continue
        where = _key(place, key)
        host = origin or CONTROL_NODE
        found = render_static(state, value, scope, where, "a selector", host, serves=origin is not None, hints=_HINTS)
        if found is FAILED:
            return None
        if key in _LISTS:
            lists = (item if isinstance(item, list) else [item] for item in found)
            found = [str(one) for items in lists for one in items if one is not None]
        try:
            type(run_on).model_validate({key: found})
        except ValidationError:
            summary = f'"{key}" of a selector: the value of the expression is {found!r}'
            state.diagnostics.error("wrong-value", summary, where)
            return None
        rendered[key] = found
    return type(run_on).model_validate(rendered)


def select(state: State, run_on: SelectorSpec, place: Place, reach: Reach | None = None) -> tuple[str, ...] | None:
    """The hosts that a selector means, in the inventory's order; None with findings if it names what is not there."""
    ok = True
    limited = bool(state.options.limit) and reach is None
    reach = reach or Reach(state.all_hosts, state.roles, state.groups)
    chosen: Iterable[str] = reach.hosts
    if run_on.hosts:
        chosen = match_hosts(state, run_on.hosts, _key(place, "hosts"))
        ok = bool(chosen)
        if limited:
            allowed = {*reach.hosts, CONTROL_NODE}
            chosen = [name for name in chosen if name in allowed]
    for key, wanted, known in (("roles", run_on.roles, reach.roles), ("groups", run_on.groups, reach.groups)):
        if wanted:
            members = _members(state, key, wanted, known, place)
            ok = ok and members is not None
            chosen = [name for name in chosen if name in (members or ())]
    if run_on.labels:
        wanted_labels = run_on.labels.items()
        chosen = [name for name in chosen if wanted_labels <= dict(state.hosts[name].labels).items()]
    if run_on.exclude:
        left_out = set(match_hosts(state, run_on.exclude, _key(place, "exclude"), only=True))
        chosen = [name for name in chosen if name not in left_out]
    return tuple(chosen) if ok else None


def _members(
    state: State, key: str, wanted: list[str], known: Mapping[str, tuple[str, ...]], place: Place
) -> set[str] | None:
    members: set[str] = set()
    ok = True
    for index, name in enumerate(wanted):
        if name not in known:
            ok = False
            noun = key.removesuffix("s")
            hint = did_you_mean(name, known) or (f"{key}: {some(known)}" if known else f"the inventory has no {key}")
            if state.hosts_known:
                summary = f'no host has the role "{name}"' if noun == "role" else f'there is no group "{name}"'
                state.diagnostics.error(f"unknown-{noun}", summary, _item(_key(place, key), index), hint=hint)
        members.update(known.get(name, ()))
    return members if ok else None


def _key(place: Place, key: str) -> Place:
    """A key of the selector; the short form (`runOn: node1`) has none."""
    return place.child(key) if isinstance(written(place), Mapping) else place
