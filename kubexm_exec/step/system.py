"""What a look at other parts of a system gives: boots, certificates, cron, the kernel, names."""

from __future__ import annotations

from kubexm_exec.runner.system.boot import BootState
from kubexm_exec.runner.system.certificates import Anchor
from kubexm_exec.runner.system.cron import CronLook
from kubexm_exec.runner.system.kernel import Module, Settings
from kubexm_exec.runner.system.names import Names

__all__ = ["Anchor", "BootState", "CronLook", "Module", "Names", "Settings"]
