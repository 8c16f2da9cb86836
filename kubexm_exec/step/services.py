"""Services, and the units of systemd."""

from __future__ import annotations

from kubexm_exec.runner.system.services import ServiceState, Verb, unit_name
from kubexm_exec.runner.system.units import UnitLook

__all__ = ["ServiceState", "UnitLook", "Verb", "unit_name"]
