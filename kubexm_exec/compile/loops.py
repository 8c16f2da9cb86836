"""Pass: makes the nodes of every step, one for each item of a loop."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import FAILED, render_static, written
from kubexm_exec.model.graph import Constraints, ExecutionNode, Hook, Origin, Policy, Retry
from kubexm_exec.model.result import NO_HOSTS
from kubexm_exec.values.evaluate import CONTROL_NODE, NO_ITEMS
from kubexm_exec.values.expressions import is_dynamic
from kubexm_spec.diagnostics import did_you_mean, shortened, some
from kubexm_spec.models import ForEachSpec, ResourcesSpec, RetrySpec
from kubexm_spec.yaml.source import Place

_MOST_ITEMS = 10_000
_OUTSIDE = "--limit excludes all its hosts"
TAG_SKIPPED = "its tag is skipped"
TAGS_NOT_SELECTED = "its tags are not selected"
TAG_REASONS = frozenset({TAG_SKIPPED, TAGS_NOT_SELECTED})
"""Why a node is skipped that ``--tags`` or ``--skip-tags`` leave out."""


def make_nodes(state: State) -> None:
    """Fill the nodes of every draft; they are not linked yet."""
    for draft in state.all_drafts():
        # Hooks of the items of a loop are made with the loop, below.
        if not draft.nodes:
            draft.nodes = draft_nodes(state, draft)
        if draft.spec.for_each is not None:
            for hook in draft.hooks.get(Hook.ON_FAILURE, []):
                hook.nodes = _item_hooks(state, hook, draft.nodes)


def _item_hooks(state: State, hook: StepDraft, items: list[ExecutionNode]) -> list[ExecutionNode]:
    """When an item of a loop fails, its own copy of the hook runs, and knows the item."""
    if hook.spec.for_each is not None:
        summary = "an onFailure step of a loop runs for each item; it cannot be a loop itself"
        state.diagnostics.error("loop-in-hook", summary, hook.place.child("forEach"))
    suffix = f"hooks/{hook.hook.value}/{hook.spec.name}"
    return [
        _node(spot, node_id=f"{item.id}/{suffix}{end}", hosts=_among(item.hosts, spot), item=item.item, has_item=True)
        for item in items
        for end, spot in _spots(hook)
    ]


def _spots(draft: StepDraft) -> list[tuple[str, StepDraft]]:
    """The step at each of its places, with the suffix of its node ids there."""
    if draft.served is None:
        return [("", draft)]
    return [
        (f"@{place}", replace(draft, id=f"{draft.id}@{place}", hosts=hosts, places=dict.fromkeys(hosts, place)))
        for place, hosts in draft.served.items()
    ]


def _among(hosts: tuple[str, ...], draft: StepDraft) -> tuple[str, ...]:
    """Those of some hosts that a step works for."""
    own = set(draft.hosts)
    return hosts if own.issuperset(hosts) else tuple(host for host in hosts if host in own)


def draft_nodes(state: State, draft: StepDraft) -> list[ExecutionNode]:
    """The nodes of one step; of a hook that works elsewhere those of each place.

    What has no place or nothing to loop over has one without hosts, so that others can still refer to the step.
    """
    return [node for _, spot in _spots(draft) for node in _nodes_at(state, spot)] or [_node(draft, hosts=())]


def _nodes_at(state: State, draft: StepDraft) -> list[ExecutionNode]:
    loop = draft.spec.for_each
    if loop is None:
        return [_node(draft)]
    by_key: dict[str, tuple[Any, list[str]]] = {}
    # Hosts can have different vars, so that the items can differ; without expressions they are the same for all.
    dynamic = isinstance(loop.items, str) or is_dynamic(loop.items) or is_dynamic(loop.matrix)
    for hosts in [(host,) for host in draft.hosts] if dynamic else [draft.hosts]:
        items = _items(state, draft, loop, hosts)
        if items is None:
            return _nothing(draft)
        for key, item in items:
            known = by_key.setdefault(key, (item, []))
            if known[0] != item:
                summary = f'the item "{key}" is not the same on {known[1][0]} and {hosts[0]}'
                where, hint = draft.place.child("forEach"), "use an expression for `key` that distinguishes them"
                state.diagnostics.error("ambiguous-item", f'step "{draft.spec.name}": {summary}', where, hint=hint)
                return _nothing(draft)
            known[1].extend(hosts)
    if not by_key:
        return _nothing(draft)
    return [
        _node(draft, node_id=f"{draft.id}[{key}]", hosts=tuple(hosts), item=item, has_item=True)
        for key, (item, hosts) in by_key.items()
    ]


def _nothing(draft: StepDraft) -> list[ExecutionNode]:
    return [replace(_node(draft, hosts=()), skip=NO_ITEMS)]


def _items(state: State, draft: StepDraft, loop: ForEachSpec, hosts: tuple[str, ...]) -> list[tuple[str, Any]] | None:
    """The items on a host, each with its key; None with findings."""
    host = hosts[0] if hosts else CONTROL_NODE
    place = draft.place.child("forEach")
    found: Any
    if loop.matrix is not None:
        axes: dict[str, list[Any]] = {}
        for name, values in loop.matrix.items():
            axis = _list(state, draft, values, place.child("matrix", name), host)
            if axis is None:
                return None
            axes[name] = axis
        # Not many more than are allowed: there can be billions.
        combinations = itertools.islice(itertools.product(*axes.values()), _MOST_ITEMS + 1)
        found = [dict(zip(axes, combination, strict=True)) for combination in combinations]
    else:
        # The short form is the list itself; the long one has it under `items`.
        where = place.child("items") if isinstance(written(place), Mapping) else place
        found = _list(state, draft, loop.items, where, host)
        if found is None:
            return None
    if len(found) > _MOST_ITEMS:
        message = f"a loop has at most {_MOST_ITEMS:,} items, this one has more"
        state.diagnostics.error("too-many-items", message, place)
        return None
    return _keyed(state, draft, loop, found, host)


def _list(state: State, draft: StepDraft, value: Any, place: Place, host: str) -> list[Any] | None:
    """A list, or what an expression gives as one; a mapping is a list of its keys and values."""
    if isinstance(value, str) or is_dynamic(value):
        bare = isinstance(value, str) and not is_dynamic(value)
        value = render_static(
            state, value, draft.scope, place, "a loop", host, bare=bare, serves=draft.for_host, places=draft.places
        )
        if value is FAILED:
            return None
    if isinstance(value, Mapping):
        value = [{"key": key, "value": item} for key, item in value.items()]
    if not isinstance(value, list):
        got = "nothing" if value is None else f"{type(value).__name__} {value!r}"
        hint = "[] is a loop without items" if value is None else ""
        state.diagnostics.error("not-a-list", f"a loop needs a list, but this is {shortened(got)}", place, hint=hint)
        return None
    return value


def _keyed(
    state: State, draft: StepDraft, loop: ForEachSpec, items: list[Any], host: str
) -> list[tuple[str, Any]] | None:
    keyed: list[tuple[str, Any]] = []
    seen: dict[str, int] = {}
    for item in items:
        if loop.key is not None:
            place = draft.place.child("forEach", "key")
            found = render_static(
                state, loop.key, draft.scope, place, "the key of a loop", host, bare=True, names={"item": item},
                serves=draft.for_host, places=draft.places,
            )  # fmt: skip
            if found is FAILED:
                return None
            text = str(found)
        else:
            text = _key_of(item)
        key = _clean(text)
        seen[key] = seen.get(key, 0) + 1
        keyed.append((key if seen[key] == 1 else f"{key}~{seen[key]}", item))
    return keyed


def _key_of(item: Any) -> str:
    if isinstance(item, Mapping):
        for name in ("key", "name", "id"):
            if isinstance(item.get(name), str | int):
                return str(item[name])
        if all(isinstance(value, str | int | float | bool) for value in item.values()):
            return ",".join(_key_of(value) for value in item.values())
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str | int | float):
        return str(item)
    return hashlib.sha256(json.dumps(item, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _clean(text: str) -> str:
    """A key that can stand in an id: no separators of ids, not long."""
    key = re.sub(r"[^A-Za-z0-9_.,:@=-]+", "_", text).strip("_") or "_"
    return key if len(key) <= 64 else f"{key[:55]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _node(
    draft: StepDraft,
    *,
    node_id: str | None = None,
    hosts: tuple[str, ...] | None = None,
    item: Any = None,
    has_item: bool = False,
) -> ExecutionNode:
    spec = draft.spec
    hosts = draft.hosts if hosts is None else hosts
    span = draft.place.child("name").span()
    last = draft.id.rpartition("/")[2]
    return ExecutionNode(
        id=node_id or draft.id,
        name=last if "+" in last else spec.name,
        step_name=spec.type,
        module=draft.module,
        task=draft.task,
        hosts=hosts,
        once=draft.once,
        places={host: draft.places[host] for host in hosts} if draft.places else {},
        with_=spec.with_,
        when=spec.when,
        guards=tuple((guard.scope, guard.condition) for guard in draft.guards),
        item=item,
        has_item=has_item,
        outputs=spec.outputs,
        scope=draft.scope,
        policy=Policy(
            retry=_retry(draft.setting("retry")),
            timeout=draft.setting("timeout"),
            ignore_errors=bool(draft.setting("ignore_errors")),
            # Work that is done once has no other host to do it.
            max_failures="0" if draft.once else draft.setting("max_failures") or "0",
        ),
        constraints=_constraints(draft.setting("resources")),
        hook=draft.hook,
        become=draft.setting("become"),
        sensitive=bool(draft.setting("sensitive")),
        tags=tuple(dict.fromkeys(draft.tags)),
        origin=Origin(span.file, span.line, span.column),
    )


def _retry(spec: RetrySpec | None) -> Retry:
    if spec is None:
        return Retry()
    return Retry(spec.attempts, spec.delay, spec.backoff, spec.max_delay, tuple(spec.on))


def _constraints(spec: ResourcesSpec | None) -> Constraints:
    if spec is None:
        return Constraints()
    return Constraints(spec.global_limit, spec.per_host_limit, tuple(spec.locks))


def choose_first(state: State) -> None:
    """Pass: what runs once gets the first of its hosts; the run chooses another one if that host is lost."""
    for node in state.nodes.values():
        if node.once:
            first = state.nodes[node.once].candidates[:1]
            hosts = first if first and first[0] in node.hosts else ()
            state.nodes[node.id] = replace(node, hosts=hosts, candidates=node.hosts)


def select_nodes(state: State) -> None:
    """Mark the nodes that ``--tags``, ``--skip-tags`` and ``--limit`` leave out, or that have no host in any case.

    Hooks stay unless their own tags are left out.
    """
    known = {tag for node in state.nodes.values() for tag in node.tags}
    for wanted in sorted((state.options.tags | state.options.skip_tags) - known):
        option = "--tags" if wanted in state.options.tags else "--skip-tags"
        there = f"tags: {', '.join(sorted(known))}" if known else "no step has any tag"
        hint = did_you_mean(wanted, known) or there
        state.diagnostics.error("no-such-tag", f'no step has the tag "{wanted}" ({option})', hint=hint)
    for node in state.nodes.values():
        if node.is_gate:
            continue
        tags = set(node.tags)
        reason = ""
        if not node.hosts:
            reason = _OUTSIDE if state.options.limit else NO_HOSTS
        elif tags & state.options.skip_tags:
            reason = TAG_SKIPPED
        elif state.options.tags and node.hook is Hook.NONE and not tags & state.options.tags:
            reason = TAGS_NOT_SELECTED
        if reason and not node.skip:
            state.nodes[node.id] = replace(node, skip=reason)
    steps = [node for node in state.nodes.values() if node.hook is Hook.NONE and not node.is_gate]
    _tell_hooks_outside(state, [node for node in steps if node.hosts])
    if state.options.limit and state.all_hosts and steps and not any(node.hosts for node in steps):
        chosen = ",".join(state.options.limit)
        summary = f"--limit {chosen}: no task of the spec runs there, so nothing is done"
        state.diagnostics.warning("no-hosts", summary, hint="use a wider --limit")


def _tell_hooks_outside(state: State, steps: list[ExecutionNode]) -> None:
    """Warn of hooks that --limit excludes around steps that run; around excluded steps no hook is expected."""
    around = {scope for node in steps for scope in (("", ""), (node.module, ""), (node.module, node.task))}
    hooks = [hook.id for hook in state.all_drafts() if hook.outside and (hook.module, hook.task) in around]
    if hooks:
        chosen, noun = ",".join(state.options.limit), "hook is" if len(hooks) == 1 else "hooks are"
        summary = f"--limit {chosen}: {len(hooks)} {noun} not run because all their hosts are excluded: {some(hooks)}"
        state.diagnostics.warning("no-hosts", summary, hint="use a wider --limit if they are needed")
