"""Pipeline, Module, Task and Step: what should be done where, in which order, with which policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from kubexm_spec.duration import Duration
from kubexm_spec.models.common import (
    BatchBody,
    BatchSize,
    Budget,
    Condition,
    Conditions,
    DelegateTo,
    Environment,
    ForEach,
    Identifier,
    Metadata,
    Model,
    Name,
    ParamSpec,
    ResourcesSpec,
    Retry,
    RunOn,
    StepRetry,
    Strings,
    UserName,
    VarsFile,
    batch_form,
    no_items,
)
from kubexm_spec.models.inventory import InventoryBody
from kubexm_spec.models.resource import Resources


class BaseStepSpec(Model):
    """A step type with its parameters and policies such as `retry`."""

    name: Name = Field(description="Name of the step, unique in its task.")
    type: str = Field(min_length=1, description="The step type; `kubexm steps` lists them.")
    with_: dict[str, Any] = Field(default_factory=dict, alias="with", description="Parameters of the step type.")
    description: str = Field(default="", description="Purpose.")
    when: Condition | None = Field(
        default=None, description="Condition for each host; if false, the action is skipped and dependents still run."
    )
    for_each: ForEach | None = Field(default=None, description="Creates one node per item.")
    failed_when: Conditions = Field(
        default_factory=no_items,
        description="Expression over `result` (the step's own outputs), or a list of which all must hold: the action "
        "has failed although its work was done. A command's exit code is then for this to judge, too.",
    )
    retry: StepRetry | None = Field(default=None, description="Retries after a failure.")
    timeout: Duration | None = Field(default=None, description="Time limit of one attempt, including the precheck.")
    resources: ResourcesSpec | None = Field(default=None, description="Concurrency limits.")
    ignore_errors: bool | None = Field(
        default=None, description="A failure is recorded, but dependents treat it as success."
    )
    max_failures: Budget | None = Field(
        default=None,
        description="How many hosts can fail before the node fails: a number, or a percentage of its hosts. Of items "
        "or steps that are known only during the run, those known so far count: with a percentage and `failFast` or "
        "`rollback`, it depends on the order of failures whether the run stops. Use a number there.",
    )
    become: UserName | bool | None = Field(
        default=None,
        description="User to run as: true for root, a user name, or false for the login user; the default and the "
        "method come from the host.",
    )
    delegate_to: DelegateTo | None = Field(
        default=None,
        description="Where it works for its hosts, instead of on them; `origin` is the host that it is for.",
    )
    env: Environment = Field(
        default_factory=dict,
        description="Environment variables of all commands that it runs on the host, added to those of the task; null "
        "takes one away.",
    )
    sensitive: bool | None = Field(default=None, description="Hides parameters, output and diffs.")
    repeatable: bool | None = Field(
        default=None,
        description="Whether it is simply run again when nobody knows how far it came: after a broken connection or a "
        "killed run. By default what its step type says.",
    )
    tags: Strings = Field(default_factory=no_items, description="Names for `--tags` and `--skip-tags`.")
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="Additional outputs, computed from `result` (the step's own outputs)."
    )


class HookStepSpec(BaseStepSpec):
    """A step of a hook. It can run outside its scope; for a step or a host, `origin` is the host that it serves."""

    run_on: RunOn | None = Field(
        default=None,
        description="Where it runs: a hook of a step or a host once for each such host, on each selected place; others "
        "once on each selected host. By default on the hosts of the step, task or batch, or on control-node.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.run_on is not None and self.delegate_to is not None:
            raise ValueError("`runOn` and `delegateTo` both say where it runs; keep one of them")
        return self


class HooksSpec(Model):
    """Steps that run before, after or on failure of a scope."""

    pre: list[HookStepSpec] = Field(
        default_factory=no_items, description="Before the first action; if it fails, the scope fails."
    )
    post: list[HookStepSpec] = Field(default_factory=no_items, description="After success.")
    on_failure: list[HookStepSpec] = Field(default_factory=no_items, description="After a failure in the scope.")
    always: list[HookStepSpec] = Field(default_factory=no_items, description="In every case, even after a cancel.")


class BatchSpec(BatchBody):
    """Rolls a task over its hosts: each batch goes through all steps before the next one."""

    hooks: HooksSpec | None = Field(default=None, description="Hooks of each batch.")


Batch = Annotated[
    BatchSpec, BeforeValidator(batch_form, json_schema_input_type=BatchSpec | int | str | list[BatchSize])
]


class HandlerSpec(HookStepSpec):
    """A step that runs for each host on which a step that notifies it has changed something."""

    run_on: RunOn | None = Field(
        default=None,
        description="Where it runs: once for each notified host, on each selected place; by default on the host "
        "itself.",
    )
    notify: Strings = Field(
        default_factory=no_items, description="Later handlers to run as well, if it changes something."
    )


class StepSpec(BaseStepSpec):
    """A step of a task."""

    shape: ClassVar[str] = "a step"

    needs: list[str] | None = Field(
        default=None, description="Steps of the same task to wait for, instead of the previous one."
    )
    hooks: HooksSpec | None = Field(default=None, description="Hooks of this step, for each host.")
    on_failure: list[HookStepSpec] = Field(default_factory=no_items, description="Short for hooks.onFailure.")
    notify: Strings = Field(
        default_factory=no_items,
        description="Handlers to run on each host where it changes something: those of the task, of the module or of "
        "the pipeline.",
    )


def _flush(value: Any) -> Any:
    if value is not True and not isinstance(value, list):
        raise ValueError("should be true, or a list of handlers")
    return value


class FlushSpec(Model):
    """An entry among the steps of a task, at which handlers run that are due by then."""

    shape: ClassVar[str] = "a flush"

    name: Name = Field(description="Name of the entry, unique among the steps.")
    flush: Annotated[Literal[True] | list[str], BeforeValidator(_flush)] = Field(
        description="true for all handlers of the task, its module and the pipeline, or their names."
    )
    description: str = Field(default="", description="Purpose.")
    needs: list[str] | None = Field(
        default=None, description="Steps of the same task to wait for, instead of the previous one."
    )


class StepGroupSpec(Model):
    """An entry among the steps of a task: steps with what to do on a host on which one of them fails."""

    shape: ClassVar[str] = "a group"

    name: Name = Field(description="Name of the group, unique among the steps.")
    description: str = Field(default="", description="Purpose.")
    when: Condition | None = Field(default=None, description="Condition of all its steps.")
    needs: list[str] | None = Field(
        default=None, description="Steps beside it to wait for, instead of the previous one."
    )
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    retry: Retry | None = Field(default=None, description="Default of its steps.")
    timeout: Duration | None = Field(default=None, description="Default of its steps.")
    ignore_errors: bool | None = Field(default=None, description="Default of its steps.")
    become: UserName | bool | None = Field(default=None, description="Default of its steps.")
    delegate_to: DelegateTo | None = Field(default=None, description="Default of its steps; not of `always`.")
    steps: list[GroupEntry] = Field(min_length=1, description="Steps and groups, in sequence on each host.")
    rescue: list[GroupEntry] = Field(
        default_factory=no_items,
        description="What to do on a host on which one of the steps failed. If it succeeds, the host goes on after the "
        "group, and the failure does not count; `failure` tells what failed. `--tags` that select one of the steps "
        "select all of it.",
    )
    always: list[HookStepSpec] = Field(
        default_factory=no_items,
        description="For each host on which a step of the group has begun, in every case, even after a cancel.",
    )


_OF_GROUPS = ("steps", "rescue", "always")


def _shape(entry: Any) -> str:
    """Which of its shapes an entry among the steps has: decided by its keys, so that findings are about that one."""
    if isinstance(entry, FlushSpec | StepGroupSpec):
        return entry.shape
    if not isinstance(entry, Mapping) or "type" in entry:
        return StepSpec.shape
    if "flush" in entry:
        return FlushSpec.shape
    return StepGroupSpec.shape if any(key in entry for key in _OF_GROUPS) else StepSpec.shape


def _group_or_step(entry: Any) -> str:
    return StepGroupSpec.shape if _shape(entry) == StepGroupSpec.shape else StepSpec.shape


GroupEntry = Annotated[
    Annotated[StepSpec, Tag(StepSpec.shape)] | Annotated[StepGroupSpec, Tag(StepGroupSpec.shape)],
    Discriminator(_group_or_step),
]
"""An entry among the steps of a group."""

StepEntry = Annotated[
    Annotated[StepSpec, Tag(StepSpec.shape)]
    | Annotated[FlushSpec, Tag(FlushSpec.shape)]
    | Annotated[StepGroupSpec, Tag(StepGroupSpec.shape)],
    Discriminator(_shape),
]
"""An entry among the steps of a task."""


class TaskBody(Model):
    """The content of a task, inline or in its own document."""

    description: str = Field(default="", description="Purpose.")
    run_on: RunOn | None = Field(
        default=None, description="Hosts to run on; by default those of the module, of the pipeline, or all."
    )
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of the task.")
    when: Condition | None = Field(default=None, description="Condition of all its steps.")
    strategy: Literal["free", "linear"] | None = Field(
        default=None, description="free: each host at its own pace. linear: all hosts in step."
    )
    align: Literal["barrier", "host"] = Field(
        default="barrier",
        description="Whether it waits for the needed tasks on all hosts, or for each host separately.",
    )
    batch: Batch | None = Field(default=None, description="Rolls over the hosts in batches.")
    retry: Retry | None = Field(default=None, description="Default of its steps.")
    timeout: Duration | None = Field(default=None, description="Default of its steps.")
    resources: ResourcesSpec | None = Field(default=None, description="Default of its steps.")
    ignore_errors: bool | None = Field(default=None, description="Default of its steps.")
    max_failures: Budget | None = Field(default=None, description="How many hosts can fail before the node fails.")
    become: UserName | bool | None = Field(default=None, description="Default of its steps.")
    delegate_to: DelegateTo | None = Field(default=None, description="Default of its steps; not of hooks.")
    env: Environment = Field(
        default_factory=dict,
        description="Environment variables of the commands of its steps, hooks and handlers, added to those of the "
        "module; null takes one away.",
    )
    sensitive: bool | None = Field(default=None, description="Default of its steps.")
    repeatable: bool | None = Field(default=None, description="Default of its steps.")
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    hooks: HooksSpec | None = Field(default=None, description="Hooks of the task.")
    handlers: list[HandlerSpec] = Field(
        default_factory=no_items, description="Steps that run on a host after its last step, if they are notified."
    )
    host_hooks: HooksSpec | None = Field(
        default=None,
        description="Hooks of each host, around all steps on it; `always` runs for every host on which `pre` began.",
    )
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="Outputs, available as `tasks.NAME.outputs`."
    )
    steps: list[StepEntry] = Field(default_factory=no_items, description="Steps, in sequence on each host.")


class _Use(Model):
    name: Name = Field(description="Name, unique among its siblings.")
    uses: str | None = Field(
        default=None, description="Document to include: a path relative to this file, or `kubexm:NAME`."
    )
    with_: dict[str, Any] = Field(
        default_factory=dict, alias="with", description="Parameters of the included document."
    )
    needs: list[str] | None = Field(
        default=None, description="What to wait for, instead of the previous one; an empty list waits for nothing."
    )
    for_each: ForEach | None = Field(
        default=None,
        description="Creates one for each item, one after another unless they are `parallel`; the items are known "
        "at compile time, and the same for all hosts.",
    )


class TaskSpec(_Use, TaskBody):
    """A task: steps on a set of hosts."""

    @model_validator(mode="after")
    def _body_or_uses(self) -> Self:
        if self.uses is None and not self.steps:
            raise ValueError("a task needs `steps`, or `uses` with a document that has them")
        if self.uses is not None and self.steps:
            raise ValueError("a task that uses a document has no steps of its own")
        if self.uses is None and self.with_:
            raise ValueError("`with` gives parameters to a used document; this task uses none")
        return self


class ModuleBody(Model):
    """The content of a module, inline or in its own document."""

    description: str = Field(default="", description="Purpose.")
    run_on: RunOn | None = Field(default=None, description="Default of its tasks.")
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of the module.")
    resources: Resources = Field(
        default_factory=dict, description="Files from elsewhere, such as downloads, that its steps use by name."
    )
    when: Condition | None = Field(default=None, description="Condition of all its steps.")
    strategy: Literal["free", "linear"] | None = Field(default=None, description="Default of its tasks.")
    max_failures: Budget | None = Field(default=None, description="Default of its tasks.")
    env: Environment = Field(
        default_factory=dict,
        description="Environment variables of the commands of all its steps, added to those of the pipeline; null "
        "takes one away.",
    )
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    hooks: HooksSpec | None = Field(default=None, description="Hooks of the module.")
    handlers: list[HandlerSpec] = Field(
        default_factory=no_items, description="Steps that run after the tasks of the module, if they are notified."
    )
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="Outputs, available as `modules.NAME.outputs`."
    )
    tasks: list[TaskSpec] = Field(default_factory=no_items, description="Tasks, in sequence unless they have `needs`.")


class ModuleSpec(_Use, ModuleBody):
    """A module: a group of related tasks."""

    @model_validator(mode="after")
    def _body_or_uses(self) -> Self:
        if self.uses is None and not self.tasks:
            raise ValueError("a module needs `tasks`, or `uses` with a document that has them")
        if self.uses is not None and self.tasks:
            raise ValueError("a module that uses a document has no tasks of its own")
        if self.uses is None and self.with_:
            raise ValueError("`with` gives parameters to a used document; this module uses none")
        if self.uses is not None and self.resources:
            raise ValueError("a module that uses a document has no resources of its own; put them into the pipeline")
        return self


class _Document(Model):
    api_version: Literal["kubexm.io/v1"] = Field(description="Version of the format.")
    metadata: Metadata = Field(description="Name and description of the document.")
    params: dict[Identifier, ParamSpec] = Field(default_factory=dict, description="Typed inputs.")


class PipelineDocument(_Document):
    """The document that you run: modules, an inventory and policies."""

    kind: Literal["Pipeline"] = Field(description="Kind of the document.")
    vars: dict[Identifier, Any] = Field(
        default_factory=dict, description="Variables; expressions can refer to params and other vars."
    )
    vars_files: list[VarsFile] = Field(
        default_factory=no_items,
        description="Files with more variables; they win over `vars`, later ones over earlier.",
    )
    resources: Resources = Field(
        default_factory=dict, description="Files from elsewhere, such as downloads, that steps use by name."
    )
    inventory: str | InventoryBody | None = Field(
        default=None, description="Path of an Inventory, or an inventory inline."
    )
    run_on: RunOn | None = Field(default=None, description="Default of all tasks.")
    failure_policy: Literal["continue", "failFast", "rollback"] = Field(
        default="continue", description="What a failed node means for the rest of the run."
    )
    max_failures: Budget | None = Field(
        default=None, description="How many hosts of a node can fail before the node fails."
    )
    strategy: Literal["free", "linear"] | None = Field(default=None, description="Default of all tasks.")
    env: Environment = Field(
        default_factory=dict, description="Environment variables of the commands that all steps run on hosts."
    )
    locks: dict[Name, int] = Field(
        default_factory=dict, description="Maximum number of holders of each named lock (default: 1)."
    )
    lock: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the target: runs with the same target never overlap. The default is the inventory.",
    )
    ready_first: bool = Field(
        default=False,
        description="Connect to all hosts and gather their facts before the first action. Hosts that do not answer "
        "fail then, before anything is changed; if they are more than maxFailures, so does the run.",
    )
    tags: Strings = Field(default_factory=no_items, description="Tags of all steps.")
    hooks: HooksSpec | None = Field(default=None, description="Hooks of the pipeline.")
    handlers: list[HandlerSpec] = Field(
        default_factory=no_items, description="Steps that run after all modules, if they are notified."
    )
    modules: list[ModuleSpec] = Field(min_length=1, description="Modules, in sequence unless they have `needs`.")


class ModuleDocument(_Document, ModuleBody):
    """A reusable module with typed parameters."""

    kind: Literal["Module"] = Field(description="Kind of the document.")
    tasks: list[TaskSpec] = Field(min_length=1, description="Its tasks.")


class TaskDocument(_Document, TaskBody):
    """A reusable task with typed parameters."""

    kind: Literal["Task"] = Field(description="Kind of the document.")
    steps: list[StepEntry] = Field(min_length=1, description="Its steps.")
