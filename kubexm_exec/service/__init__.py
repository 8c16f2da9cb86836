"""What can be done with specs and runs, for every front: requests as plain data in, results or typed errors out.

Nothing here knows a command line, a terminal, a working directory or a signal, and nothing is shared by two calls but
the journal: any number of runs may go on in one process.
"""

from __future__ import annotations

from kubexm_exec.service.errors import Changed, Held, Invalid, NotFound, Refused, ServiceError, Unavailable
from kubexm_exec.service.live import LiveRun, Watcher
from kubexm_exec.service.local import LocalService
from kubexm_exec.service.protocol import Service
from kubexm_exec.service.requests import (
    SHIPPED,
    AnswerRequest,
    CommandRequest,
    Difference,
    Documents,
    Drift,
    DriftRequest,
    DueHandler,
    HostInfo,
    InventoryRequest,
    NotificationsRequest,
    Outcome,
    Planned,
    PruneRequest,
    ResumeRequest,
    RollbackRequest,
    RunDetails,
    RunInfo,
    RunRequest,
    Undoable,
    Validation,
    VarsRequest,
)

__all__ = [
    "SHIPPED",
    "AnswerRequest",
    "Changed",
    "CommandRequest",
    "Difference",
    "Documents",
    "Drift",
    "DriftRequest",
    "DueHandler",
    "Held",
    "HostInfo",
    "Invalid",
    "InventoryRequest",
    "LiveRun",
    "LocalService",
    "NotFound",
    "NotificationsRequest",
    "Outcome",
    "Planned",
    "PruneRequest",
    "Refused",
    "ResumeRequest",
    "RollbackRequest",
    "RunDetails",
    "RunInfo",
    "RunRequest",
    "Service",
    "ServiceError",
    "Unavailable",
    "Undoable",
    "Validation",
    "VarsRequest",
    "Watcher",
]
