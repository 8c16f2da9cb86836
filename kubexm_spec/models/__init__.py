"""The documents as typed, immutable data; no behaviour beyond checking their own shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kubexm_spec.models.common import (
    API_VERSION,
    DelegateToSpec,
    ForEachSpec,
    Metadata,
    Model,
    ParamSpec,
    ParamType,
    ResourcesSpec,
    RetrySpec,
    RunOnSpec,
    StepRetrySpec,
    VarsFileSpec,
)
from kubexm_spec.models.inventory import (
    BecomeSpec,
    ConnectionSpec,
    GroupSpec,
    HostSpec,
    InventoryBody,
    InventoryDocument,
    RoleSpec,
)
from kubexm_spec.models.pipeline import (
    BaseStepSpec,
    BatchSpec,
    FlushSpec,
    GroupEntry,
    HandlerSpec,
    HooksSpec,
    HookStepSpec,
    ModuleBody,
    ModuleDocument,
    ModuleSpec,
    PipelineDocument,
    StepEntry,
    StepGroupSpec,
    StepSpec,
    TaskBody,
    TaskDocument,
    TaskSpec,
)
from kubexm_spec.models.resource import RegistryAccessSpec, ResourceSpec, S3Spec

if TYPE_CHECKING:
    from kubexm_spec.models.cluster import ClusterDocument
    from kubexm_spec.models.versions import VersionsDocument

Document: TypeAlias = (
    "PipelineDocument | ModuleDocument | TaskDocument | InventoryDocument | ClusterDocument | VersionsDocument"
)

KINDS: Final = ("Pipeline", "Module", "Task", "Inventory", "Cluster", "Versions")
"""The kinds of documents."""
_LOADED: Final[dict[str, type[Document]]] = {
    "Pipeline": PipelineDocument,
    "Module": ModuleDocument,
    "Task": TaskDocument,
    "Inventory": InventoryDocument,
}


def model_of(kind: str) -> type[Document]:
    """The model of a kind; a run of a pipeline does not load those of clusters."""
    if kind == "Cluster":
        from kubexm_spec.models.cluster import ClusterDocument

        return ClusterDocument
    if kind == "Versions":
        from kubexm_spec.models.versions import VersionsDocument

        return VersionsDocument
    return _LOADED[kind]


__all__ = [
    "API_VERSION",
    "KINDS",
    "BaseStepSpec",
    "BatchSpec",
    "BecomeSpec",
    "ConnectionSpec",
    "DelegateToSpec",
    "Document",
    "FlushSpec",
    "ForEachSpec",
    "GroupEntry",
    "GroupSpec",
    "HandlerSpec",
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
    "RegistryAccessSpec",
    "ResourceSpec",
    "ResourcesSpec",
    "RetrySpec",
    "RoleSpec",
    "RunOnSpec",
    "S3Spec",
    "StepEntry",
    "StepGroupSpec",
    "StepRetrySpec",
    "StepSpec",
    "TaskBody",
    "TaskDocument",
    "TaskSpec",
    "VarsFileSpec",
    "model_of",
]
