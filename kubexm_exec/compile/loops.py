"""Pass: makes the nodes of every step, one for each item of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, takewhile
from typing import Any

from msgspec.structs import replace

from kubexm_exec.compile.state import ALWAYS, NEVER, State, StepDraft, with_tags
from kubexm_exec.compile.static import FAILED, render_static, written
from kubexm_exec.model.data import builtins
from kubexm_exec.model.graph import Constraints, ExecutionNode, Hook, Loop, Origin, Part, Policy, Retry
from kubexm_exec.model.result import NO_HOSTS
from kubexm_exec.values.evaluate import CONTROL_NODE, NO_ITEMS
from kubexm_exec.values.expressions import UnknownValueError, is_dynamic
from kubexm_exec.values.items import ItemsError, items_of
from kubexm_spec.diagnostics import did_you_mean, some
from kubexm_spec.models import ResourcesSpec, RetrySpec, StepRetrySpec
from kubexm_spec.yaml.source import Place

_OUTSIDE = "--limit excludes all its hosts"
TAG_SKIPPED = "its tag is skipped"
TAGS_NOT_SELECTED = "its tags are not selected"
NOT_ASKED_FOR = "it is tagged never, and --tags does not ask for it"
TAG_REASONS = frozenset({TAG_SKIPPED, TAGS_NOT_SELECTED, NOT_ASKED_FOR})
"""Why a node is skipped that its tags, with ``--tags`` or ``--skip-tags``, leave out."""


def make_nodes(state: State) -> None:
    """Fill the nodes of every draft; they are not linked yet."""
    for draft in state.all_drafts():
        # Hooks of the items of a loop are made with the loop, below.
        if not draft.nodes:
            draft.nodes = draft_nodes(state, draft)
        if draft.spec.for_each is not None and not any(node.loop for node in draft.nodes):
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
        (
            f"@{place}",
            replace(
                draft,
                id=f"{draft.id}@{place}",
                hosts=hosts,
                places=dict.fromkeys(hosts, place),
                handler=draft.handler and f"{draft.handler}@{place}",
            ),
        )
        for place, hosts in draft.served.items()
    ]


def _among(hosts: tuple[str, ...], draft: StepDraft) -> tuple[str, ...]:
    """Those of some hosts that a step works for."""
    own = set(draft.hosts)
    return hosts if own.issuperset(hosts) else tuple(host for host in hosts if host in own)


def draft_nodes(state: State, draft: StepDraft) -> list[ExecutionNode]:
    """The nodes of one step; of one that works at several places those of each place.

    What has no place or nothing to loop over has one without hosts, so that others can still refer to the step.
    """
    return [node for _, spot in _spots(draft) for node in _nodes_at(state, spot)] or [_node(draft, hosts=())]


def _nodes_at(state: State, draft: StepDraft) -> list[ExecutionNode]:
    spec = draft.spec.for_each
    if spec is None:
        return [_node(draft)]
    loop = Loop(spec.items, spec.matrix, spec.key, spec.parallel)
    by_key: dict[str, tuple[Any, list[str]]] = {}
    # Hosts can have different vars, so that the items can differ; without expressions they are the same for all.
    dynamic = isinstance(loop.items, str) or is_dynamic(loop.items) or is_dynamic(loop.matrix)
    for hosts in [(host,) for host in draft.hosts] if dynamic else [draft.hosts]:
        try:
            items = _items(state, draft, loop, hosts)
        except UnknownValueError:
            return [replace(_node(draft), loop=loop)]
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


def loop_place(place: Place, part: tuple[str, ...]) -> Place:
    """Where a part of a ``forEach`` stands: the short form is the list itself, the long one has it under `items`."""
    return place if part == ("items",) and not isinstance(written(place), Mapping) else place.child(*part)


def _items(state: State, draft: StepDraft, loop: Loop, hosts: tuple[str, ...]) -> list[tuple[str, Any]] | None:
    """The items on a host, each with its key; None with findings. UnknownValueError if only the run knows them."""
    host = hosts[0] if hosts else CONTROL_NODE
    place = draft.place.child("forEach")

    def evaluate(value: Any, part: tuple[str, ...], names: Mapping[str, Any]) -> Any:
        bare = isinstance(value, str) and (part == ("key",) or not is_dynamic(value))
        if not bare and not is_dynamic(value):
            return value
        what = "the key of a loop" if part == ("key",) else "the loop of a handler" if draft.handler else "a loop"
        found = render_static(
            state, value, draft.scope, loop_place(place, part), what, host, bare=bare,
            names={**names, **_batch_of(draft)}, serves=draft.for_host, places=draft.places,
            # A handler would count as served before its items have run.
            late=not draft.handler,
        )  # fmt: skip
        if found is FAILED:
            raise _FoundError
        return found

    try:
        return items_of(loop, evaluate)
    except ItemsError as error:
        state.diagnostics.error(error.code, error.message, loop_place(place, error.part), hint=error.hint)
    except _FoundError:
        pass
    return None


class _FoundError(Exception):
    """What is wrong is among the findings already."""


def _batch_of(draft: StepDraft) -> dict[str, Any]:
    """The name that only hooks of a batch know."""
    return {} if draft.batch is None else {"batch": builtins(draft.batch)}


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
        choices=draft.choices,
        choice={host: draft.choice[host] for host in hosts if host in draft.choice} if draft.choice else {},
        batch=draft.batch,
        with_=spec.with_,
        when=spec.when,
        guards=tuple((guard.scope, guard.condition) for guard in draft.guards),
        item=item,
        has_item=has_item,
        outputs=spec.outputs,
        failed_when=tuple(spec.failed_when),
        scope=draft.scope,
        policy=Policy(
            retry=_retry(draft.setting("retry")),
            timeout=draft.setting("timeout"),
            ignore_errors=bool(draft.setting("ignore_errors")),
            # Work that is done once has no other host to do it.
            max_failures="0" if draft.once else draft.setting("max_failures") or "0",
            repeatable=draft.setting("repeatable"),
        ),
        constraints=_constraints(draft.setting("resources")),
        hook=draft.hook,
        groups=draft.groups,
        # One for each item and place, as its own id.
        handler=draft.handler and draft.handler + (node_id or draft.id).removeprefix(draft.id),
        become=draft.setting("become"),
        env={
            name: (None if name in spec.env else one.scope, one.value)
            for name, one in draft.environment().items()
            if one.value is not None
        },
        sensitive=bool(draft.setting("sensitive")),
        tags=tuple(dict.fromkeys(draft.tags)),
        origin=Origin(span.file, span.line, span.column),
    )


def _retry(spec: RetrySpec | None) -> Retry:
    if spec is None:
        return Retry()
    until = spec.until if isinstance(spec, StepRetrySpec) else None
    return Retry(spec.attempts, spec.delay, spec.backoff, spec.max_delay, tuple(spec.on), until)


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
    """Mark the nodes that tags and ``--limit`` leave out, or that have no host in any case.

    Hooks stay unless their own tags are left out, or those of hosts and batches all steps of their task. So does the
    rescue of a group with a step that stays.
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
        elif NEVER in tags and not _is_asked_for(state, node):
            reason = NOT_ASKED_FOR
        elif state.options.tags and node.hook is Hook.NONE and ALWAYS not in tags and not tags & state.options.tags:
            reason = TAGS_NOT_SELECTED
        if reason and not node.skip:
            state.nodes[node.id] = replace(node, skip=reason)
    _keep_rescues(state)
    steps = [node for node in state.nodes.values() if node.hook is Hook.NONE and not node.is_gate]
    _leave_hooks_out(state, steps)
    _tell_hooks_outside(state, [node for node in steps if node.hosts])
    if state.options.limit and state.all_hosts and steps and not any(node.hosts for node in steps):
        chosen = ",".join(state.options.limit)
        summary = f"--limit {chosen}: no task of the spec runs there, so nothing is done"
        state.diagnostics.warning("no-hosts", summary, hint="use a wider --limit")


def _is_asked_for(state: State, node: ExecutionNode) -> bool:
    """Whether ``--tags`` names a tag that stands with each ``never`` of a node, or inside of where that stands.

    What stands around a hook is judged with the steps that the hook is for.
    """
    draft = state.drafts[node.id]
    # The tags of a node are without repetitions; those of its draft tell each ``never`` around it.
    tags = draft.tags if node.hook is Hook.NONE else with_tags((), draft.spec.tags)
    return all(state.options.tags.intersection(tags[at:]) for at, tag in enumerate(tags) if tag == NEVER)


def _keep_rescues(state: State) -> None:
    """Without some of its steps a rescue would count as one that has succeeded."""
    grouped = [node for node in state.nodes.values() if node.groups and node.hook is Hook.NONE and not node.is_gate]
    kept: set[str] = set()
    for node in grouped:
        if node.skip not in TAG_REASONS:
            kept.update(each.group for each in takewhile(lambda each: each.part is Part.BODY, node.groups))
    for node in grouped:
        if any(each.part is Part.RESCUE and each.group in kept for each in node.groups):
            never = node.skip == NOT_ASKED_FOR and NEVER not in state.drafts[node.id].spec.tags
            if never or node.skip == TAGS_NOT_SELECTED:
                state.nodes[node.id] = replace(node, skip="")


def _leave_hooks_out(state: State, steps: list[ExecutionNode]) -> None:
    """Without any of its steps a task takes no host and no batch out: that would be all it does.

    And no hook runs for what never runs unless it is asked for.
    """
    if not any(node.skip in TAG_REASONS for node in steps):
        return
    left = {(node.module, node.task) for node in steps if node.skip not in TAG_REASONS}
    modules = {module for module, _ in left}
    for module in state.modules:
        if module.name not in modules:
            _leave_out(state, chain(module.handlers, *module.hooks.values()))
        for task in module.tasks:
            if (task.module, task.name) not in left:
                for draft in (one for hooks in (*task.batch_hooks, task.host_hooks) for one in chain(*hooks.values())):
                    _leave_out(state, [draft], TAGS_NOT_SELECTED)
                _leave_out(state, chain(task.handlers, *task.hooks.values()))
            for step in task.steps:
                if isinstance(step, StepDraft) and all(state.nodes[one.id].skip in TAG_REASONS for one in step.nodes):
                    _leave_out(state, chain(*step.hooks.values()))
    if not left:
        _leave_out(state, chain(state.handlers, *state.hooks.values()))


def _leave_out(state: State, hooks: Iterable[StepDraft], reason: str = "") -> None:
    """Mark the nodes of hooks; without a reason those that are tagged never."""
    for draft in hooks:
        for node in (state.nodes[one.id] for one in draft.nodes):
            if not node.skip and (reason or NEVER in node.tags):
                state.nodes[node.id] = replace(node, skip=reason or NOT_ASKED_FOR)


def _tell_hooks_outside(state: State, steps: list[ExecutionNode]) -> None:
    """Warn of hooks that --limit excludes around steps that run; around excluded steps no hook is expected."""
    around = {scope for node in steps for scope in (("", ""), (node.module, ""), (node.module, node.task))}
    hooks = [hook.id for hook in state.all_drafts() if hook.outside and (hook.module, hook.task) in around]
    if hooks:
        chosen, noun = ",".join(state.options.limit), "hook is" if len(hooks) == 1 else "hooks are"
        summary = f"--limit {chosen}: {len(hooks)} {noun} not run because all their hosts are excluded: {some(hooks)}"
        state.diagnostics.warning("no-hosts", summary, hint="use a wider --limit if they are needed")
