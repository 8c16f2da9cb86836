"""What the passes of the compiler share: the drafts of tasks and modules, and everything found so far."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from kubexm_exec.compile.options import CompileOptions
from kubexm_exec.model.graph import Batch, ExecutionNode, GraphHost, Hook, Membership, NodeID, Scope
from kubexm_exec.plugins import Registry, RegistryError
from kubexm_exec.step import AnyStep
from kubexm_exec.values.evaluate import Evaluator
from kubexm_exec.values.expressions import Expressions
from kubexm_exec.values.templates import TemplateFinder
from kubexm_spec.diagnostics import Diagnostics
from kubexm_spec.documents.bundle import Bundle
from kubexm_spec.models import BaseStepSpec, FlushSpec, HooksSpec, ParamSpec, RunOnSpec, StepGroupSpec
from kubexm_spec.yaml.source import Path, Place


def once_gate(scope: str, run_on: RunOnSpec | None, hosts: tuple[str, ...]) -> NodeID:
    """The gate that chooses the one host of a scope with ``runOnce``; empty if it runs on all of them."""
    return f"{scope}#once" if run_on is not None and run_on.run_once and hosts else ""


ALWAYS, NEVER = "always", "never"
"""Tags with a meaning of their own: run whatever ``--tags`` selects, and only if one of its tags is asked for."""


def with_tags(outer: tuple[str, ...], *own: Sequence[str]) -> tuple[str, ...]:
    """The tags of a scope: those around it, then its own.

    Its own ``never`` comes first among those: only what follows, its own tags and those inside of it, ask for it.
    """
    inner = [tag for tags in own for tag in tags]
    return (*outer, *((NEVER,) if NEVER in inner else ()), *(tag for tag in inner if tag != NEVER))


def with_env(
    outer: Mapping[str, Variable], env: Mapping[str, str | None], place: Place, scope: str
) -> Mapping[str, Variable]:
    """The environment variables of a scope: those around it, and its own, which win name by name."""
    if not env:
        return outer
    return {**outer, **{name: Variable(scope, value, place.child(name)) for name, value in env.items()}}


class Guard(Struct, frozen=True):
    """A condition with the scope it was written in and its place."""

    scope: str
    condition: str | bool
    place: Place


class Variable(Struct, frozen=True):
    """The value of an environment variable with the scope it was written in and its place."""

    scope: str
    value: str | None
    """None: it is not set, whatever is set further out."""
    place: Place | None
    """None for one that was checked before: that of the node which returned a fragment."""


class StepDraft(Struct):
    """A step on its way to becoming one node, or one for each loop item."""

    spec: BaseStepSpec
    place: Place
    id: NodeID
    module: str
    task: str
    scope: str
    hosts: tuple[str, ...]
    hook: Hook = Hook.NONE
    once: NodeID = ""
    """It runs on one of its hosts only: the gate that chooses it."""
    for_host: bool = True
    """It works for one host at a time, which is ``origin`` in it; a hook of a task, module or pipeline does not."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where it works for those of its hosts that it does not work on themselves."""
    choices: tuple[tuple[str, ...], ...] = ()
    """Places of which the run chooses one; see ``ExecutionNode.choices``."""
    choice: Mapping[str, int] = field(default_factory=dict)
    served: Mapping[str, tuple[str, ...]] | None = None
    """It works for its hosts at several places, or is a hook of a step or a host that says where it runs: by place the
    hosts it serves there; each place has nodes of its own."""
    batch: Batch | None = None
    """Of a hook of a batch: the batch."""
    guards: tuple[Guard, ...] = ()
    env: Mapping[str, Variable] = field(default_factory=dict)
    """Environment variables that the scopes around it set; see ``environment``."""
    tags: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Inherited policy: retry, timeout, resources, ignore_errors, max_failures, become, sensitive, repeatable."""
    nodes: list[ExecutionNode] = field(default_factory=list)
    groups: tuple[Membership, ...] = ()
    """The groups of steps that it is in, the innermost first."""
    handler: NodeID = ""
    """The handler that it runs, if it is one, by the id at the end of the scope."""
    notifies: list[StepDraft] = field(default_factory=list)
    """The handlers that it notifies."""
    hooks: dict[Hook, list[StepDraft]] = field(default_factory=dict)
    outside: bool = False
    """A hook with hosts of its own, all of which ``--limit`` leaves out."""
    step_type: type[AnyStep] | None = None
    """The step type, once it is known to exist."""
    dynamic: list[Path] = field(default_factory=list)
    """The paths of the texts in its parameters that are rendered for each host."""
    broken: bool = False
    """It refers to something that does not exist, so that its values are not checked any further."""

    @property
    def called(self) -> str:
        """What it is, with its name, for messages."""
        noun = "step" if not self.hook else "handler" if self.hook is Hook.HANDLER else "hook"
        return f'{noun} "{self.spec.name}"'

    def environment(self) -> Mapping[str, Variable]:
        """Its environment variables, with those of the scopes around it."""
        if not self.spec.env:
            return self.env
        return with_env(self.env, self.spec.env, self.place.child("env"), self.scope)

    def setting(self, name: str) -> Any:
        """The step's own value of a policy key, or the inherited one."""
        own = getattr(self.spec, name)
        return self.defaults.get(name) if own is None else own

    def child(self, spec: BaseStepSpec, place: Place, node_id: NodeID, hook: Hook) -> StepDraft:
        """A draft of a hook of this step: same hosts, same scope."""
        return StepDraft(
            spec=spec, place=place, id=node_id, module=self.module, task=self.task, scope=self.scope, hosts=self.hosts,
            hook=hook, once=self.once, guards=self.guards, env=self.env, tags=self.tags, defaults=self.defaults,
            groups=self.groups,
        )  # fmt: skip


class FlushDraft(Struct):
    """A point of a task at which handlers run that are due: it is no node itself."""

    spec: FlushSpec
    place: Place
    id: NodeID
    module: str
    task: str
    hosts: tuple[str, ...]
    groups: tuple[Membership, ...] = ()
    """None: a flush is no step of a group."""
    parts: list[StepDraft] = field(default_factory=list)
    """The handlers, in order, on those hosts of the task that can notify them."""


class GroupDraft(Struct):
    """A group of steps: it is no node itself."""

    spec: StepGroupSpec
    place: Place
    id: str
    module: str
    task: str
    hosts: tuple[str, ...]
    groups: tuple[Membership, ...] = ()
    """The groups around it, the innermost first."""
    steps: list[EntryDraft] = field(default_factory=list)
    rescue: list[EntryDraft] = field(default_factory=list)
    always: list[StepDraft] = field(default_factory=list)


EntryDraft: TypeAlias = StepDraft | FlushDraft | GroupDraft


class Need(Struct, frozen=True):
    """A scope that must be done before: by declared ``needs``, or by the order of writing."""

    target: str
    place: Place
    declared: bool


class ScopeDraft(Struct):
    """A task or a module: its hooks, what it needs, and its nodes once they are linked."""

    id: str
    place: Place
    hooks: dict[Hook, list[StepDraft]] = field(default_factory=dict)
    handlers: list[StepDraft] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)


class TaskDraft(ScopeDraft):
    """A task on a set of hosts."""

    module: str = ""
    name: str = ""
    hosts: tuple[str, ...] = ()
    once: NodeID = ""
    """It runs on one of its hosts only: the gate that chooses it."""
    strategy: str = "free"
    align: str = "barrier"
    batches: tuple[tuple[str, ...], ...] = ()
    pause: float = 0.0
    batch_budget: str = "0"
    host_hooks: dict[Hook, list[StepDraft]] = field(default_factory=dict)
    batch_hooks: list[dict[Hook, list[StepDraft]]] = field(default_factory=list)
    """The hooks of each batch; none if batches have no hooks."""
    entries: list[EntryDraft] = field(default_factory=list)
    """What is written among its steps."""
    steps: list[StepDraft | FlushDraft] = field(default_factory=list)
    """All steps and flushes in the order of writing, with those of groups."""


class ModuleDraft(ScopeDraft):
    """A module: tasks that belong together."""

    name: str = ""
    tasks: list[TaskDraft] = field(default_factory=list)


class VarLayer(Struct, frozen=True):
    """Variables that are written together, in an inventory or in a file of their own."""

    level: int
    """How close to a host they are: 0 for all hosts, 1 a role, 2 a group, 3 the host itself; -1 for the pipeline."""
    label: str
    values: Mapping[str, Any]
    place: Place
    """Where the values stand."""


class Reach(Struct, frozen=True):
    """The hosts of an inventory, all of them or those that a limit leaves, and who has which role and group."""

    hosts: tuple[str, ...] = ()
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class State(Struct):
    """Everything the passes share; each pass reads what earlier ones made and adds its own."""

    name: str
    diagnostics: Diagnostics
    expressions: Expressions
    steps: Registry[Any]
    connectors: Registry[Any] | None = None
    documents: Bundle | None = None
    """The documents; None when a fragment is compiled during a run."""
    options: CompileOptions = CompileOptions()
    hosts: dict[str, GraphHost] = field(default_factory=dict)
    host_entries: dict[str, int] = field(default_factory=dict)
    """The number of the inventory's entry that each host came from."""
    beyond_reach: dict[str, tuple[RegistryError, Place]] = field(default_factory=dict)
    """Hosts whose connector is not installed (an error only if a node uses them), with the place of the connector."""
    all_hosts: tuple[str, ...] = ()
    """The inventory's hosts in order (those that ``limit`` leaves), without the control node unless it is alone."""
    hosts_known: bool = True
    """False if the inventory cannot be used: then the names in selectors are not checked."""
    vars_known: bool = True
    """False if a file with variables cannot be used: then their names are not checked."""
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reach: Reach = Reach()
    """``all_hosts``, ``roles`` and ``groups`` without the limit, which applies to the hosts that work is done for."""
    scopes: dict[str, Scope] = field(default_factory=dict)
    var_places: dict[tuple[str, str], Place] = field(default_factory=dict)
    """Where (scope, variable) was written."""
    var_layers: list[VarLayer] = field(default_factory=list)
    """The variables of the pipeline, the weakest first: its own, and those of files."""
    host_var_files: dict[str, list[VarLayer]] = field(default_factory=dict)
    """Files with variables by host, role or group, of each host in their order."""
    param_places: dict[tuple[str, str], Place] = field(default_factory=dict)
    param_specs: dict[str, Mapping[str, ParamSpec]] = field(default_factory=dict)
    """The declarations of the document that a scope uses."""
    params_declared: dict[str, Place] = field(default_factory=dict)
    """Where those declarations stand."""
    secrets: dict[str, frozenset[str]] = field(default_factory=dict)
    """The secret parameters of each scope that has params of its own."""
    unusable: set[str] = field(default_factory=set)
    """Modules and tasks whose document cannot be used, so that their content is unknown."""
    output_places: dict[tuple[str, str], Place] = field(default_factory=dict)
    resource_places: dict[tuple[str, str], Place] = field(default_factory=dict)
    broken_resources: set[tuple[str, str]] = field(default_factory=set)
    """Resources that refer to something that is not there."""
    resource_users: dict[NodeID, dict[str, str]] = field(default_factory=dict)
    """The resources that each draft uses, with the scopes that they are written in."""
    modules: list[ModuleDraft] = field(default_factory=list)
    looped: dict[str, tuple[list[str], list[Need]]] = field(default_factory=dict)
    """Modules and tasks with a loop, by their ids without keys: the ids of their items, and what they need."""
    hooks: dict[Hook, list[StepDraft]] = field(default_factory=dict)
    handlers: list[StepDraft] = field(default_factory=list)
    nodes: dict[NodeID, ExecutionNode] = field(default_factory=dict)
    drafts: dict[NodeID, StepDraft] = field(default_factory=dict)
    """The draft each node came from."""
    named_hosts: set[str] = field(default_factory=set)
    """Hosts that parameters of steps name."""
    files: dict[pathlib.Path, str] = field(default_factory=dict)
    """sha256 of files other than specs (templates, scripts) that nodes depend on."""
    file_users: dict[NodeID, dict[pathlib.Path, str]] = field(default_factory=dict)
    """The files of each draft, with what they are called in it."""
    templates_read: dict[pathlib.Path, Any] = field(default_factory=dict)
    """Template files that were parsed; None if one cannot be."""
    finders: dict[str, TemplateFinder] = field(default_factory=dict)
    static: Evaluator | None = None
    """Evaluates selectors and loops; made once, since it looks at all hosts."""
    linked: Evaluator | None = None
    """Evaluates what nodes hold, from when they are linked to the last pass that only looks at them."""
    loose: list[StepDraft] = field(default_factory=list)
    """Steps outside any task: those of a fragment."""

    @property
    def inventory_wanted(self) -> bool:
        """Whether the hosts should come from an inventory."""
        return self.options.inventory is not None or self.bundle.pipeline.document.inventory is not None

    @property
    def bundle(self) -> Bundle:
        """The documents that are compiled."""
        if self.documents is None:
            raise LookupError("a fragment has no documents")
        return self.documents

    def finder(self, base: str) -> TemplateFinder:
        """Where a scope's templates are searched."""
        if base not in self.finders:
            self.finders[base] = TemplateFinder.for_spec(base, self.options.templates)
        return self.finders[base]

    def shown(self, path: pathlib.Path) -> str:
        """A file's path as a person would write it."""
        try:
            return str(path.relative_to(self.options.folder or pathlib.Path.cwd()))
        except ValueError:
            return str(path)

    def all_drafts(self) -> list[StepDraft]:
        """Every step and hook in the order of writing."""

        def after(hooks: dict[Hook, list[StepDraft]]) -> list[StepDraft]:
            return [draft for kind in (Hook.POST, Hook.ON_FAILURE, Hook.ALWAYS) for draft in hooks.get(kind, ())]

        steps = [*self.loose, *self.hooks.get(Hook.PRE, ())]
        for module in self.modules:
            steps += module.hooks.get(Hook.PRE, ())
            for task in module.tasks:
                around = [hooks for hooks in (task.hooks, *task.batch_hooks, task.host_hooks) if hooks]
                steps += [draft for hooks in around for draft in hooks.get(Hook.PRE, ())]
                for step in task.steps:
                    if isinstance(step, FlushDraft):
                        steps += step.parts
                    else:
                        steps.append(step)
                steps += task.handlers
                steps += [draft for hooks in reversed(around) for draft in after(hooks)]
            steps += [*module.handlers, *after(module.hooks)]
        steps += [*self.handlers, *after(self.hooks)]
        if not any(step.hooks for step in steps):
            return steps
        return [one for step in steps for one in (step, *itertools.chain(*step.hooks.values()))]


HOOK_FIELDS: tuple[tuple[Hook, str, str], ...] = (
    (Hook.PRE, "pre", "pre"),
    (Hook.POST, "post", "post"),
    (Hook.ON_FAILURE, "on_failure", "onFailure"),
    (Hook.ALWAYS, "always", "always"),
)
"""Each hook with its attribute and its key in the document."""


def hook_specs(hooks: HooksSpec | None) -> list[tuple[Hook, str, list[Any]]]:
    """(hook, key in the document, its steps) of a hooks mapping."""
    if hooks is None:
        return []
    return [(hook, key, getattr(hooks, attribute)) for hook, attribute, key in HOOK_FIELDS]
