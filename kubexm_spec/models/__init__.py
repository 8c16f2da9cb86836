"""The documents as typed, immutable data; no behaviour beyond checking their own shape."""

from __future__ import annotations

from kubexm_spec.models.common import (
    API_VERSION,
    BatchSpec,
    ForEachSpec,
    Metadata,
    Model,
    ParamSpec,
    ParamType,
    ResourcesSpec,
    RetrySpec,
    RunOnSpec,
)
from kubexm_spec.models.inventory import (
    ConnectionSpec,
    GroupSpec,
    HostSpec,
    InventoryBody,
    InventoryDocument,
    RoleSpec,
)
from kubexm_spec.models.pipeline import (
    BaseStepSpec,
    HooksSpec,
    HookStepSpec,
    ModuleBody,
    ModuleDocument,
    ModuleSpec,
    PipelineDocument,
    StepSpec,
    TaskBody,
    TaskDocument,
    TaskSpec,
)
from kubexm_spec.models.resource import ResourceSpec, S3Spec

Document = PipelineDocument | ModuleDocument | TaskDocument | InventoryDocument

KINDS: dict[str, type[PipelineDocument] | type[ModuleDocument] | type[TaskDocument] | type[InventoryDocument]] = {
    "Pipeline": PipelineDocument,
    "Module": ModuleDocument,
    "Task": TaskDocument,
    "Inventory": InventoryDocument,
}

__all__ = [
    "API_VERSION",
    "KINDS",
    "BaseStepSpec",
    "BatchSpec",
    "ConnectionSpec",
    "Document",
    "ForEachSpec",
    "GroupSpec",
    "HookStepSpec",
    "HooksSpec",
    "HostSpec",
    "InventoryBody",
    "InventoryDocument",
    "Metadata",
    "Model",
    "ModuleBody",
    "ModuleDocument",
    "ModuleSpec",
    "ParamSpec",
    "ParamType",
    "PipelineDocument",
    "ResourceSpec",
    "ResourcesSpec",
    "RetrySpec",
    "RoleSpec",
    "RunOnSpec",
    "S3Spec",
    "StepSpec",
    "TaskBody",
    "TaskDocument",
    "TaskSpec",
]
