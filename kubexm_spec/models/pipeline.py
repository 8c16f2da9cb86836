"""Pipeline, Module, Task and Step: what should be done where, in which order, with which policy."""

from __future__ import annotations

from typing import Any, Literal

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


class BaseStepSpec(Model, defer_build=True):
    """A step type with its parameters and the keys of the engine that wrap it."""

    name: Name = Field(description="Name of the step, unique in its task.")
    type: str = Field(min_length=1, description="The step type; `kubexm steps` lists them.")
    with_: dict[str, Any] = Field(default_factory=dict, alias="with", description="Parameters of the step type.")
    description: str = Field(default="", description="What it is for.")
    when: Condition | None = Field(
        default=None, description="Condition for each host; not met means Skipped, which harms nobody."
    )
    for_each: ForEach | None = Field(default=None, description="One node for each item.")
    retry: Retry | None = Field(default=None, description="Try again when it fails.")
    timeout: Duration | None = Field(default=None, description="Time for one attempt, precheck included.")
    resources: ResourcesSpec | None = Field(default=None, description="Limits on how many run at once.")
    ignore_errors: bool | None = Field(
        default=None, description="A failure is recorded and counts as success for what waits."
    )
    max_failures: Budget | None = Field(default=None, description="How many hosts may fail.")
    become: UserName | bool | None = Field(
        default=None,
        description="The user it works as: true for root, a user's name, false for whoever logs in; "
        "by default, and how, as the host says.",
    )
    sensitive: bool | None = Field(default=None, description="Parameters, output and diffs are not shown.")
    tags: Strings = Field(default_factory=no_items, description="Names for `--tags` and `--skip-tags`.")
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="More outputs, made from `result` (the step's own outputs)."
    )


class HookStepSpec(BaseStepSpec, defer_build=False):
    """A step of a hook; it may run elsewhere than its scope. Around a step, `origin` is the host that it serves."""

    run_on: RunOn | None = Field(
        default=None,
        description="Where it runs: a step's hook once for each host of the step, at each place named here; others "
        "once on each. By default a step's runs on the step's hosts, a task's on the task's, others on control-node.",
    )


class HooksSpec(Model):
    """Steps around a scope."""

    pre: list[HookStepSpec] = Field(
        default_factory=no_items, description="Before the first action; a failure fails the scope."
    )
    post: list[HookStepSpec] = Field(default_factory=no_items, description="After success.")
    on_failure: list[HookStepSpec] = Field(default_factory=no_items, description="After a failure in the scope.")
    always: list[HookStepSpec] = Field(default_factory=no_items, description="In every case, also after a cancel.")


class StepSpec(BaseStepSpec, defer_build=False):
    """A step of a task."""

    needs: list[str] | None = Field(
        default=None, description="Steps of the same task to wait for, instead of the one before."
    )
    hooks: HooksSpec | None = Field(default=None, description="Steps around this step, host by host.")
    on_failure: list[HookStepSpec] = Field(default_factory=no_items, description="Short for hooks.onFailure.")


class TaskBody(Model, defer_build=True):
    """What a task holds, inline or in a document of its own."""

    description: str = Field(default="", description="What it is for.")
    run_on: RunOn | None = Field(default=None, description="Hosts; by default the module's, the pipeline's, or all.")
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of the task.")
    when: Condition | None = Field(default=None, description="Condition of all its steps.")
    strategy: Literal["free", "linear"] | None = Field(
        default=None, description="free: each host at its own pace. linear: all hosts step by step."
    )
    align: Literal["barrier", "host"] = Field(
        default="barrier", description="How it waits for the tasks it needs: for all hosts, or host by host."
    )
    batch: Batch | None = Field(default=None, description="Rolling: so many hosts at a time.")
    retry: Retry | None = Field(default=None, description="Default of its steps.")
    timeout: Duration | None = Field(default=None, description="Default of its steps.")
    resources: ResourcesSpec | None = Field(default=None, description="Default of its steps.")
    ignore_errors: bool | None = Field(default=None, description="Default of its steps.")
    max_failures: Budget | None = Field(default=None, description="How many hosts may fail.")
    become: UserName | bool | None = Field(default=None, description="Default of its steps.")
    sensitive: bool | None = Field(default=None, description="Default of its steps.")
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    hooks: HooksSpec | None = Field(default=None, description="Steps around the task.")
    outputs: dict[Identifier, Any] = Field(default_factory=dict, description="What others see as `tasks.NAME.outputs`.")
    steps: list[StepSpec] = Field(default_factory=no_items, description="Its steps, one after another on each host.")


class ModuleBody(Model, defer_build=True):
    """What a module holds, inline or in a document of its own."""

    description: str = Field(default="", description="What it is for.")
    run_on: RunOn | None = Field(default=None, description="Default of its tasks.")
    vars: dict[Identifier, Any] = Field(default_factory=dict, description="Variables of the module.")
    resources: Resources = Field(
        default_factory=dict, description="Files from elsewhere that its steps use by name, such as downloads."
    )
    when: Condition | None = Field(default=None, description="Condition of all its steps.")
    strategy: Literal["free", "linear"] | None = Field(default=None, description="Default of its tasks.")
    max_failures: Budget | None = Field(default=None, description="Default of its tasks.")
    tags: Strings = Field(default_factory=no_items, description="Tags of all its steps.")
    hooks: HooksSpec | None = Field(default=None, description="Steps around the module.")
    outputs: dict[Identifier, Any] = Field(
        default_factory=dict, description="What others see as `modules.NAME.outputs`."
    )
    tasks: list[TaskSpec] = Field(
        default_factory=no_items, description="Its tasks, one after another unless they say `needs`."
    )


class _Use(Model, defer_build=True):
    name: Name = Field(description="Name, unique among its siblings.")
    uses: str | None = Field(
        default=None, description="A document to take it from: a path relative to this file, or `kubexm:NAME`."
    )
    with_: dict[str, Any] = Field(
        default_factory=dict, alias="with", description="Values for the parameters of the used document."
    )
    needs: list[str] | None = Field(
        default=None, description="What to wait for, instead of the one before; an empty list waits for nothing."
    )


class TaskSpec(_Use, TaskBody, defer_build=False):
    """A task: steps on a set of hosts."""

    @model_validator(mode="after")
    def _body_or_uses(self) -> TaskSpec:
        if self.uses is None and not self.steps:
            raise ValueError("a task has steps, or uses a document that has them")
        if self.uses is not None and self.steps:
            raise ValueError("a task that uses a document has no steps of its own")
        if self.uses is None and self.with_:
            raise ValueError("`with` gives parameters to a used document; this task uses none")
        return self


class ModuleSpec(_Use, ModuleBody, defer_build=False):
    """A module: tasks that belong together."""

    @model_validator(mode="after")
    def _body_or_uses(self) -> ModuleSpec:
        if self.uses is None and not self.tasks:
            raise ValueError("a module has tasks, or uses a document that has them")
        if self.uses is not None and self.tasks:
            raise ValueError("a module that uses a document has no tasks of its own")
        if self.uses is None and self.with_:
            raise ValueError("`with` gives parameters to a used document; this module uses none")
        if self.uses is not None and self.resources:
            raise ValueError("a module that uses a document has no resources of its own; put them into the pipeline")
        return self


class _Document(Model, defer_build=True):
    api_version: Literal["kubexm.io/v1"] = Field(description="Version of the format.")
    metadata: Metadata = Field(description="Who the document is.")
    params: dict[Identifier, ParamSpec] = Field(default_factory=dict, description="Typed inputs.")


class PipelineDocument(_Document):
    """A whole flow: modules in order, an inventory, a policy."""

    kind: Literal["Pipeline"] = Field(description="The kind of document.")
    vars: dict[Identifier, Any] = Field(
        default_factory=dict, description="Variables; expressions may refer to params and other vars."
    )
    resources: Resources = Field(
        default_factory=dict, description="Files from elsewhere that steps use by name, such as downloads."
    )
    inventory: str | InventoryBody | None = Field(
        default=None, description="Path of an Inventory, or an inventory inline."
    )
    run_on: RunOn | None = Field(default=None, description="Default of all tasks.")
    failure_policy: Literal["continue", "failFast", "rollback"] = Field(
        default="continue", description="What a failed node does to the rest."
    )
    max_failures: Budget | None = Field(default=None, description="How many hosts of a node may fail.")
    strategy: Literal["free", "linear"] | None = Field(default=None, description="Default of all tasks.")
    locks: dict[Name, int] = Field(
        default_factory=dict, description="How many holders each named lock has (1 if not named)."
    )
    lock: str | None = Field(
        default=None,
        min_length=1,
        description="Name of what this works on: runs with the same one never overlap. Without it, the inventory.",
    )
    tags: Strings = Field(default_factory=no_items, description="Tags of all steps.")
    hooks: HooksSpec | None = Field(default=None, description="Steps around the whole.")
    modules: list[ModuleSpec] = Field(
        min_length=1, description="Its modules, one after another unless they say `needs`."
    )


class ModuleDocument(_Document, ModuleBody):
    """A reusable module with typed parameters."""

    kind: Literal["Module"] = Field(description="The kind of document.")
    tasks: list[TaskSpec] = Field(min_length=1, description="Its tasks.")


class TaskDocument(_Document, TaskBody):
    """A reusable task with typed parameters."""

    kind: Literal["Task"] = Field(description="The kind of document.")
    steps: list[StepSpec] = Field(min_length=1, description="Its steps.")
