"""Services of a host: how they are, and how they are started, stopped and enabled; by systemd or by openrc."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from kubexm_exec.model.command import CommandResult

Active = Literal["active", "inactive", "failed", "changing"]
Verb = Literal["start", "stop", "restart", "reload", "enable", "reenable", "disable", "mask", "unmask"]


class ServiceState(Struct, frozen=True):
    """What the host's manager of services says about one of them."""

    name: str
    """The name it is known by, which may be another than the one that was asked for: an alias leads to it."""
    exists: bool = True
    active: Active = "inactive"
    detail: str = ""
    """The manager's own word: ``running``, ``exited``, ``auto-restart``, ``crashed``, ..."""
    enabled: bool = False
    fixed: str = ""
    """Not empty if it can be neither enabled nor disabled: why."""
    masked: bool = False
    can_reload: bool = True
    error: str = ""
    """Why it cannot be used at all, as the manager says."""
    result: str = ""
    """How it ended, if it failed: ``exit-code``, ``timeout``, ..."""
    pid: int = 0
    """Its main process, if it has one."""
    stale: bool = False
    """Whether its files changed and the manager has not read them yet."""
    path: str = ""
    """The file that defines it."""
    restarts: int = 0
    """How often it was started again by itself."""
    runlevels: tuple[str, ...] = ()
    """Where openrc has it enabled."""


class Services(Protocol):
    """The services of one host; made by ``Runner.services``."""

    manager: str
    """``systemd`` or ``openrc``."""
    can_mask: bool

    def look(self, name: str) -> ServiceState:
        """How a service is."""

    def do(self, verb: Verb, name: str, *, runlevel: str = "default") -> CommandResult:
        """Have something done with a service, and wait until the manager says that it is; nothing is raised.

        ``runlevel`` is where openrc enables it.
        """

    def told(self, name: str) -> str:
        """What is known about a service that failed: its status and the last lines that it wrote."""

    def names(self) -> list[str]:
        """The services there are."""
