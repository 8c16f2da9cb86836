"""Pass: makes the nodes of every step, one for each item of a loop."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.static import render_static
from kubexm_exec.expr import is_dynamic
from kubexm_exec.graph import Constraints, ExecutionNode, Hook, Origin, Policy, Retry
from kubexm_spec.models import ForEachSpec, ResourcesSpec, RetrySpec
from kubexm_spec.source import Place

_MOST_ITEMS = 10_000


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
        state.diagnostics.error(
            "loop-in-hook",
            "an onFailure step of a loop is there for each item; it cannot loop itself",
            hook.place.child("forEach"),
        )
    suffix = f"hooks/{hook.hook.value}/{hook.spec.name}"
    return [
        _node(hook, node_id=f"{item.id}/{suffix}", hosts=item.hosts, item=item.item, has_item=True) for item in items
    ]


def draft_nodes(state: State, draft: StepDraft) -> list[ExecutionNode]:
    """The nodes of one step."""
    loop = draft.spec.for_each
    base = _node(draft)
    if loop is None:
        return [base]
    place = draft.place.child("forEach")
    by_key: dict[str, tuple[Any, list[str]]] = {}
    # Hosts can have different vars, so that the items can differ; without expressions they are the same for all.
    dynamic = is_dynamic(loop.items) or is_dynamic(loop.matrix)
    for hosts in [(host,) for host in draft.hosts] if dynamic else [draft.hosts]:
        items = _items(state, draft, loop, place, hosts)
        if items is None:
            return []
        for key, item in items:
            known = by_key.setdefault(key, (item, []))
            if known[0] != item:
                state.diagnostics.error(
                    "ambiguous-item",
                    f'step "{draft.spec.name}": the item "{key}" is not the same on {known[1][0]} and {hosts[0]}',
                    place,
                    hint="give `key` an expression that tells them apart",
                )
                return []
            known[1].extend(hosts)
    return [
        _node(draft, node_id=f"{draft.id}[{key}]", hosts=tuple(hosts), item=item, has_item=True)
        for key, (item, hosts) in by_key.items()
    ]


def _items(
    state: State, draft: StepDraft, loop: ForEachSpec, place: Place, hosts: tuple[str, ...]
) -> list[tuple[str, Any]] | None:
    host = hosts[0] if hosts else "control-node"
    if loop.matrix is not None:
        axes: dict[str, list[Any]] = {}
        for name, values in loop.matrix.items():
            where = place.child("matrix", name)
            rendered = (
                render_static(state, values, draft.scope, where, "a loop", host) if is_dynamic(values) else values
            )
            if not isinstance(rendered, list):
                _not_a_list(state, rendered, where)
                return None
            axes[name] = rendered
        items: list[Any] = [
            dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())
        ]
    else:
        # The short form is the list itself; the long one has it under `items`.
        raw = place.source.documents[place.document]
        for part in place.path:
            raw = raw[part]
        where = place.child("items") if isinstance(raw, Mapping) else place
        found = loop.items
        if isinstance(found, str):
            found = render_static(state, found, draft.scope, where, "a loop", host, bare=not is_dynamic(found))
        elif is_dynamic(found):
            found = render_static(state, found, draft.scope, where, "a loop", host)
        if isinstance(found, Mapping):
            found = [{"key": key, "value": value} for key, value in found.items()]
        if not isinstance(found, list):
            _not_a_list(state, found, where)
            return None
        items = found
    if len(items) > _MOST_ITEMS:
        state.diagnostics.error(
            "too-many-items", f"a loop of {len(items)} items; at most {_MOST_ITEMS} are allowed", place
        )
        return None
    return _keyed(state, draft, loop, place, items, host)


def _not_a_list(state: State, value: Any, place: Place) -> None:
    if value is not None:
        state.diagnostics.error("not-a-list", f"a loop needs a list, this is {type(value).__name__}", place)


def _keyed(
    state: State, draft: StepDraft, loop: ForEachSpec, place: Place, items: list[Any], host: str
) -> list[tuple[str, Any]]:
    keyed: list[tuple[str, Any]] = []
    seen: dict[str, int] = {}
    for item in items:
        if loop.key is not None:
            from kubexm_exec.expr import ExpressionError

            try:
                text = str(state.expressions.expression(loop.key)({"item": item}))
            except ExpressionError as error:
                state.diagnostics.error("bad-expression", error.message, place.child("key"))
                return []
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
    span = draft.place.child("name").span()
    sensitive = draft.setting("sensitive")
    return ExecutionNode(
        id=node_id or draft.id,
        name=spec.name if "+" not in draft.id.rpartition("/")[2] else draft.id.rpartition("/")[2],
        step_name=spec.type,
        module=draft.module,
        task=draft.task,
        hosts=draft.hosts if hosts is None else hosts,
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
            max_failures=draft.setting("max_failures") or "0",
        ),
        constraints=_constraints(draft.setting("resources")),
        hook=draft.hook,
        sensitive=bool(sensitive),
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


def select_tags(state: State) -> None:
    """Mark the nodes that ``--tags`` and ``--skip-tags`` leave out; hooks stay unless their own tags are left out."""
    from dataclasses import replace

    known = {tag for node in state.nodes.values() for tag in node.tags}
    for wanted in sorted((state.tags | state.skip_tags) - known):
        from kubexm_spec.diagnostics import did_you_mean

        state.diagnostics.error("unknown-tag", f'no step has the tag "{wanted}"', hint=did_you_mean(wanted, known))
    for node in state.nodes.values():
        if node.is_gate:
            continue
        tags = set(node.tags)
        reason = ""
        if tags & state.skip_tags:
            reason = "its tag is skipped"
        elif state.tags and node.hook is Hook.NONE and not tags & state.tags:
            reason = "its tags are not selected"
        if reason:
            state.nodes[node.id] = replace(node, skip=reason)
