"""Compiles a fragment: steps that a step returned during the run, as spec data, under that node's id."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from msgspec.structs import replace

from kubexm_exec.compile.chains import barrier, gate, last_of, link_items, members_of, needs_of, same_host
from kubexm_exec.compile.delegation import Delegation, delegate
from kubexm_exec.compile.files import check_files
from kubexm_exec.compile.fragmentsteps import FragmentStepSpec, check_notify, parse_steps
from kubexm_exec.compile.loops import draft_nodes
from kubexm_exec.compile.namedhosts import check_named_hosts
from kubexm_exec.compile.options import CompileOptions
from kubexm_exec.compile.references import check_references
from kubexm_exec.compile.rendered import check_rendered
from kubexm_exec.compile.resources import check_resources
from kubexm_exec.compile.selectors import hosts_of
from kubexm_exec.compile.state import Reach, State, StepDraft, Variable
from kubexm_exec.compile.types import check_types
from kubexm_exec.model.graph import ExecutionFragment, ExecutionGraph, ExecutionNode, NodeID
from kubexm_exec.plugins import Registry
from kubexm_exec.values.expressions import Expressions
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.models import BaseStepSpec
from kubexm_spec.yaml.source import Place, SourceFile

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def compile_fragment(
    graph: ExecutionGraph,
    node: ExecutionNode,
    host: str,
    steps: Sequence[Mapping[str, Any]],
    *,
    registry: Registry[Any],
    expressions: Expressions,
    templates: tuple[str, ...] = (),
) -> ExecutionFragment:
    """The fragment that (node, host) returned, linked after that node; raises SpecError."""
    diagnostics = Diagnostics()
    text = json.dumps(list(steps), indent=2, ensure_ascii=False, default=str)
    # What YAML does not take as it is, it takes as an escape.
    text = _ESCAPED.sub(lambda char: f"\\u{ord(char[0]):04x}", text)
    place = SourceFile.from_text(text, f"<fragment of {node.id}>").place()
    state = _state(graph, registry, expressions, templates, diagnostics)
    specs = parse_steps(steps, place, diagnostics)
    diagnostics.raise_if_errors()
    drafts = [_draft(state, node, host, spec, where) for where, spec in specs]
    diagnostics.raise_if_errors()
    for draft in drafts:
        draft.nodes = [
            replace(one, notifies=_notified(graph, node, draft, diagnostics)) for one in draft_nodes(state, draft)
        ]
        if node.has_item:
            # What an item of a loop returns knows the item, unless it loops itself.
            draft.nodes = [one if one.has_item else replace(one, item=node.item, has_item=True) for one in draft.nodes]
        if _runs_once(draft.spec):
            draft.nodes = [replace(one, candidates=one.hosts) for one in draft.nodes]
    state.loose = drafts
    check_types(state)
    diagnostics.raise_if_errors()
    order = _order(drafts, diagnostics)
    diagnostics.raise_if_errors()
    made = ExecutionFragment.of(_link(node, host, drafts, order))
    state.nodes = {**graph.nodes, **{one.id: one for one in made.nodes}}
    check_references(state)
    diagnostics.raise_if_errors()
    check_rendered(state)
    check_files(state)
    check_named_hosts(state)
    check_resources(state)
    diagnostics.raise_if_errors()
    return made


def _state(
    graph: ExecutionGraph,
    registry: Registry[Any],
    expressions: Expressions,
    templates: tuple[str, ...],
    diagnostics: Diagnostics,
) -> State:
    state = State(
        name=graph.name, diagnostics=diagnostics, expressions=expressions, steps=registry,
        options=CompileOptions(templates=templates),
        hosts=dict(graph.hosts), scopes=dict(graph.scopes), all_hosts=tuple(graph.hosts),
    )  # fmt: skip
    for name, host in graph.hosts.items():
        for role in host.roles:
            state.roles[role] = (*state.roles.get(role, ()), name)
        for group in host.groups:
            state.groups[group] = (*state.groups.get(group, ()), name)
    state.reach = Reach(state.all_hosts, state.roles, state.groups)
    return state


def _draft(state: State, node: ExecutionNode, host: str, spec: FragmentStepSpec, place: Place) -> StepDraft:
    hosts: tuple[str, ...] = (host,)
    places = {host: node.place(host)} if node.elsewhere(host) else {}
    if spec.run_on is not None:
        hosts, places = hosts_of(state, spec.run_on, place.child("runOn"), node.scope, f'step "{spec.name}"'), {}
    draft = StepDraft(
        spec=spec, place=place, id=f"{node.id}+{spec.name}", module=node.module, task=node.task, scope=node.scope,
        hosts=hosts, places=places, hook=node.hook, batch=node.batch, tags=(*node.tags, *spec.tags),
        env={name: Variable(node.scope if of is None else of, value, None) for name, (of, value) in node.env.items()},
        groups=node.groups,
        defaults={"max_failures": "0" if _runs_once(spec) else node.policy.max_failures, "become": node.become},
    )  # fmt: skip
    if spec.delegate_to is not None:
        draft.places = {}
        delegate(state, draft, Delegation(spec.delegate_to, place.child("delegateTo"), node.scope))
    return draft


def _notified(
    graph: ExecutionGraph, node: ExecutionNode, draft: StepDraft, diagnostics: Diagnostics
) -> tuple[NodeID, ...]:
    """The handlers that a step notifies: among those of the node that returned it."""
    spec = draft.spec
    if not isinstance(spec, FragmentStepSpec) or not spec.notify:
        return ()
    known = {handler: graph.nodes[handler] for handler in node.notifies if handler in graph.nodes}
    check_notify(diagnostics, spec, draft.place, sorted({handler.name for handler in known.values()}))
    return tuple(handler for handler, of in known.items() if of.name in spec.notify)


def _runs_once(spec: BaseStepSpec) -> bool:
    return isinstance(spec, FragmentStepSpec) and spec.run_on is not None and spec.run_on.run_once


def _link(node: ExecutionNode, host: str, drafts: Sequence[StepDraft], order: Sequence[str]) -> list[ExecutionNode]:
    """One after another, as in a task; a step that runs elsewhere is waited for as a whole, through a gate."""
    by_name = {draft.spec.name: draft for draft in drafts}
    needs = needs_of(drafts)
    # By what is written, not by who returned it: the same fragment must look the same from every host.
    elsewhere = {
        name for name, draft in by_name.items() if isinstance(draft.spec, FragmentStepSpec) and draft.spec.run_on
    }
    ends: dict[str, list[ExecutionNode]] = {}
    made: dict[str, list[ExecutionNode]] = {}
    for name in order:
        draft = by_name[name]
        before = list({one.id: one for need in needs[name] for one in ends[need]}.values())
        made[name] = []
        if name in elsewhere or elsewhere.intersection(needs[name]):
            waits = [barrier(one.id) for one in before] or [barrier(node.id)]
            between = gate(f"{draft.id}#begin", waits, module=node.module, task=node.task, groups=node.groups)
            made[name].append(between)
            deps = [barrier(between.id)]
        else:
            deps = same_host(before) or same_host([node])
        linked = link_items(draft, deps)
        made[name].extend(linked)
        ends[name] = last_of(draft, linked) or before
    result = [one for name in by_name for one in made[name]]
    if elsewhere:
        end = gate(f"{node.id}+#end", members_of(result), module=node.module, task=node.task, groups=node.groups)
        result.append(end)
    return result


def _order(drafts: Sequence[StepDraft], diagnostics: Diagnostics) -> list[str]:
    """The names of the steps, each behind those it needs; a cycle is a finding."""
    try:
        return list(TopologicalSorter(needs_of(drafts)).static_order())
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        place = next(draft.place for draft in drafts if draft.spec.name == cycle[0])
        diagnostics.error("cycle", f"steps wait for each other: {' -> '.join(cycle)}", place.child("needs"))
        return []
