"""Which manager of services a host has."""

from __future__ import annotations

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system.services import Services


def services(session: Session) -> Services:
    """The services of a host, by what its facts say about its init system."""
    init = session.facts()["init"]
    if init == "systemd":
        from kubexm_exec.runner.system.services_systemd import SystemdServices

        return SystemdServices(session)
    if init == "openrc":
        from kubexm_exec.runner.system.services_openrc import OpenrcServices

        return OpenrcServices(session)
    raise StepFailed(
        f"services of this host cannot be managed: its init system is {init}",
        hint="kubexm knows systemd and openrc; use a command step for others",
    )
