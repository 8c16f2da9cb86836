"""Services, and the units of systemd."""

from __future__ import annotations

from kubexm_exec.runner.system.services import ServiceState, Verb
from kubexm_exec.runner.system.services_systemd import unit_name
from kubexm_exec.runner.system.units import UnitLook

__all__ = ["ServiceState", "UnitLook", "Verb", "unit_name"]
