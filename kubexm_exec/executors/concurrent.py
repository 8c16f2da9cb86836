"""The executor for real runs: as many actions at once as the limits allow."""

from __future__ import annotations

from kubexm_exec.executors.base import Executor
from kubexm_exec.model.result import DEFAULT_EXECUTOR


class ConcurrentExecutor(Executor):
    """Makes the spec true on all hosts, in parallel."""

    name = DEFAULT_EXECUTOR
