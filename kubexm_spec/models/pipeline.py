"""Pipeline, Module, Task and Step: what should be done where, in which order, with which policy."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from kubexm_spec.duration import Duration
from kubexm_spec.models.common import (
    Batch,
    Budget,
    Condition,
    ForEach,
    Identifier,
    Metadata,
    Model,
    Name,
    ParamSpec,
    ResourcesSpec,
    Retry,
    RunOn,
    Strings,
    UserName,
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
    retry: Retry | None = Field(default=None, description="Retries after a failure.")
    timeout: Duration | None = Field(default=None, description="Time limit of one attempt, including the precheck.")
    resources: ResourcesSpec | None = Field(default=None, description="Concurrency limits.")
    ignore_errors: bool | None = Field(
        default=None, description="A failure is recorded, but dependents treat it as success."
    )
    max_failures: Budget | None = Field(default=None, description="How many hosts can fail before the node fails.")
    become: UserName | bool | None = Field(
        default=None,
        description="User to run as: true for root, a user name, or false for the login user; the default and the "
        "method come from the host.",
    )
    sensitive: bool | None = Field(default=None, description="Hides parameters, output and diffs.")
    tags: Strings = Field(default_factory=no_items, description="Names for `--tags` and `--skip-tags`.")
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="Additional outputs, computed from `result` (the step's own outputs)."
    )


class HookStepSpec(BaseStepSpec):
    """A step of a hook. It can run outside its scope; in a hook of a step, `origin` is the host that it serves."""

    run_on: RunOn | None = Field(
        default=None,
        description="Where it runs: a hook of a step once for each host of the step, on each selected place; others "
        "once on each selected host. By default on the hosts of the step or task, or on control-node.",
    )


class HooksSpec(Model):
    """Steps that run before, after or on failure of a scope."""

    pre: list[HookStepSpec] = Field(
        default_factory=no_items, description="Before the first action; if it fails, the scope fails."
    )
    post: list[HookStepSpec] = Field(default_factory=no_items, description="After success.")
    on_failure: list[HookStepSpec] = Field(default_factory=no_items, description="After a failure in the scope.")
    always: list[HookStepSpec] = Field(default_factory=no_items, description="In every case, even after a cancel.")


class StepSpec(BaseStepSpec):
    """A step of a task."""

    needs: list[str] | None = Field(
        default=None, description="Steps of the same task to wait for, instead of the previous one."
    )
    hooks: HooksSpec | None = Field(default=None, description="Hooks of this step, for each host.")
    on_failure: list[HookStepSpec] = Field(default_factory=no_items, description="Short for hooks.onFailure.")


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
    sensitive: bool | None = Field(default=None, description="Default of its steps.")
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    hooks: HooksSpec | None = Field(default=None, description="Hooks of the task.")
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="Outputs, available as `tasks.NAME.outputs`."
    )
    steps: list[StepSpec] = Field(default_factory=no_items, description="Steps, in sequence on each host.")


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
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    hooks: HooksSpec | None = Field(default=None, description="Hooks of the module.")
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
    locks: dict[Name, int] = Field(
        default_factory=dict, description="Maximum number of holders of each named lock (default: 1)."
    )
    lock: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the target: runs with the same target never overlap. The default is the inventory.",
    )
    tags: Strings = Field(default_factory=no_items, description="Tags of all steps.")
    hooks: HooksSpec | None = Field(default=None, description="Hooks of the pipeline.")
    modules: list[ModuleSpec] = Field(min_length=1, description="Modules, in sequence unless they have `needs`.")


class ModuleDocument(_Document, ModuleBody):
    """A reusable module with typed parameters."""

    kind: Literal["Module"] = Field(description="Kind of the document.")
    tasks: list[TaskSpec] = Field(min_length=1, description="Its tasks.")


class TaskDocument(_Document, TaskBody):
    """A reusable task with typed parameters."""

    kind: Literal["Task"] = Field(description="Kind of the document.")
    steps: list[StepSpec] = Field(min_length=1, description="Its steps.")
