"""Compiles a fragment: steps that a step returned during the run, as spec data, under that node's id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from kubexm_exec.compile.hosts import select
from kubexm_exec.compile.link import barrier, gate
from kubexm_exec.compile.loops import draft_nodes
from kubexm_exec.compile.references import check_references
from kubexm_exec.compile.state import State, StepDraft
from kubexm_exec.compile.types import check_files, check_rendered, check_types
from kubexm_exec.expr import Expressions
from kubexm_exec.graph import Dependency, ExecutionGraph, ExecutionNode, Mode
from kubexm_exec.registry import Registry
from kubexm_spec.checking import check
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.models import StepSpec
from kubexm_spec.models.common import RunOn
from kubexm_spec.source import Place, SourceFile


class FragmentStepSpec(StepSpec):
    """A step of a fragment; it runs on the host that returned it unless it says otherwise."""

    run_on: RunOn | None = Field(default=None, description="Other hosts to run on.")


def parse_steps(steps: Sequence[Mapping[str, Any]], place: Place, diagnostics: Diagnostics) -> list[FragmentStepSpec]:
    """The steps as their model; findings for what is wrong with them."""
    found: list[FragmentStepSpec] = []
    names: set[str] = set()
    for number, data in enumerate(steps):
        where = place.child(number)
        spec = check(FragmentStepSpec, data, where, diagnostics, what=f"step {number + 1} of the fragment")
        if spec is None:
            continue
        if spec.name in names:
            diagnostics.error("duplicate-name", f'there are two steps named "{spec.name}"', where.child("name"))
        if spec.hooks is not None or spec.on_failure:
            diagnostics.error("no-hooks", "a step of a fragment has no hooks of its own", where.child("name"))
        names.add(spec.name)
        found.append(spec)
    return found


def compile_fragment(
    graph: ExecutionGraph,
    node: ExecutionNode,
    host: str,
    steps: Sequence[Mapping[str, Any]],
    *,
    registry: Registry[Any],
    expressions: Expressions,
    templates: tuple[str, ...] = (),
) -> list[ExecutionNode]:
    """The nodes of the fragment that (node, host) returned, linked after that node; raises SpecError."""
    diagnostics = Diagnostics()
    text = json.dumps(list(steps), indent=2, ensure_ascii=False, default=str)
    place = SourceFile.from_text(text, f"<fragment of {node.id}>").place()
    state = _state(graph, registry, expressions, templates, diagnostics)
    specs = parse_steps(steps, place, diagnostics)
    diagnostics.raise_if_errors()
    drafts = [_draft(state, node, host, spec, place.child(number)) for number, spec in enumerate(specs)]
    for draft in drafts:
        draft.nodes = draft_nodes(state, draft)
    state.loose = drafts
    check_types(state)
    diagnostics.raise_if_errors()
    made = _link(node, host, drafts)
    state.nodes = {**graph.nodes, **{one.id: one for one in made}}
    check_references(state)
    diagnostics.raise_if_errors()
    check_rendered(state)
    check_files(state)
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
        name=graph.name, diagnostics=diagnostics, expressions=expressions, steps=registry, templates=templates,
        hosts=dict(graph.hosts), scopes=dict(graph.scopes), all_hosts=tuple(graph.hosts),
    )  # fmt: skip
    for name, host in graph.hosts.items():
        for role in host.roles:
            state.roles[role] = (*state.roles.get(role, ()), name)
        for group in host.groups:
            state.groups[group] = (*state.groups.get(group, ()), name)
    return state


def _draft(state: State, node: ExecutionNode, host: str, spec: FragmentStepSpec, place: Place) -> StepDraft:
    hosts = (host,) if spec.run_on is None else select(state, spec.run_on, place.child("runOn"))
    return StepDraft(
        spec=spec, place=place, id=f"{node.id}+{spec.name}", module=node.module, task=node.task, scope=node.scope,
        hosts=hosts, hook=node.hook, tags=(*node.tags, *spec.tags), defaults={"max_failures": node.policy.max_failures},
    )  # fmt: skip


def _link(node: ExecutionNode, host: str, drafts: Sequence[StepDraft]) -> list[ExecutionNode]:
    """One after another, as in a task; a step that runs elsewhere is waited for as a whole, through a gate."""
    result: list[ExecutionNode] = []
    by_name: dict[str, list[ExecutionNode]] = {}
    previous: list[ExecutionNode] = []
    for draft in drafts:
        spec = draft.spec
        needs = spec.needs if isinstance(spec, StepSpec) else None
        before = previous if needs is None else [one for name in needs for one in by_name[name]]
        elsewhere = draft.hosts != (host,) or any(one.hosts != (host,) for one in before)
        if elsewhere:
            waits = [barrier(one.id) for one in before] or [barrier(node.id)]
            between = gate(f"{draft.id}#begin", waits, module=node.module, task=node.task)
            result.append(between)
            deps = [barrier(between.id)]
        else:
            deps = [Dependency(one.id, Mode.HOST) for one in before] or [Dependency(node.id, Mode.HOST)]
        linked: list[ExecutionNode] = []
        for one in draft.nodes:
            own = [Dependency(linked[-1].id, Mode.HOST)] if linked and not _parallel(draft) else deps
            linked.append(replace(one, dependencies=tuple(own)))
        result.extend(linked)
        previous = linked if _parallel(draft) else linked[-1:]
        by_name[spec.name] = previous
    if any(one.hosts not in ((host,), ()) for one in result):
        members = [barrier(one.id) for one in result if not one.is_gate]
        result.append(gate(f"{node.id}+#end", members, module=node.module, task=node.task))
    return result


def _parallel(draft: StepDraft) -> bool:
    return draft.spec.for_each is not None and draft.spec.for_each.parallel
