"""Services by systemd: one ``systemctl show`` tells all about one of them."""

from __future__ import annotations

from typing import Final

from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.errors import reason_of
from kubexm_exec.runner.files.probe import TOOLS
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session
from kubexm_exec.runner.system.services import Active, ServiceState, Verb

PROPERTIES: Final = (
    "Id,LoadState,LoadError,ActiveState,SubState,UnitFileState,CanReload,Result,MainPID,NeedDaemonReload,FragmentPath,"
    "NRestarts"
)
# What comes from a script of System V is asked once more: systemd itself cannot say whether that is enabled.
_LOOK: Final = (
    TOOLS
    + r"""
said=$(systemctl show -p "$2" -- "$1") || exit
printf '%s\n' "$said"
case $said in *UnitFileState=generated*) printf 'Sysv=%s\n' "$(systemctl is-enabled -- "$1" 2>/dev/null)" ;; esac
"""
)
_DO: Final = TOOLS + 'systemctl --no-ask-password --quiet "$1" -- "$2"'
_TOLD: Final = (
    TOOLS
    + r"""
systemctl status --no-pager --full --lines=0 -- "$1" 2>&1
if command -v journalctl >/dev/null 2>&1; then
  echo
  journalctl --no-pager -q -n 20 -o short -u "$1" 2>/dev/null
fi
:
"""
)
_NAMES: Final = TOOLS + "systemctl list-unit-files --no-legend --no-pager --type=service"
_ACTIVE: Final[dict[str, Active]] = {
    "active": "active",
    "reloading": "active",
    "inactive": "inactive",
    "failed": "failed",
    "maintenance": "inactive",
}
_FIXED: Final = {
    "static": "it has no [Install] section: it is started by what needs it",
    "indirect": "it stands for other units that can be enabled",
    "generated": "it is made from another configuration at each boot",
    "transient": "it was made for this moment only",
    "alias": "it is only another name",
}


class SystemdServices:
    """The services of a host with systemd."""

    manager = "systemd"
    can_mask = True

    def __init__(self, session: Session) -> None:
        self._session = session

    def look(self, name: str) -> ServiceState:
        """How a unit is."""
        result = execute(self._session, script(_LOOK, unit_name(name), PROPERTIES), check=False, live=False)
        if result.exit_code != 0:
            raise StepFailed(
                f"look at {unit_name(name)}: {reason_of(result.err)[0] or 'systemctl did not answer'}",
                exit_code=result.exit_code,
                stderr=result.err,
                hint="does `systemctl show` work there? Its D-Bus or /run/systemd/private may be closed to this user",
            )
        return parse(unit_name(name), result.out)

    def do(self, verb: Verb, name: str, *, runlevel: str = "default") -> CommandResult:
        """Have something done with a unit; start and stop wait for their job."""
        return execute(self._session, script(_DO, verb, unit_name(name)), check=False, live=False)

    def told(self, name: str) -> str:
        """Its status and the last lines of its journal."""
        return execute(self._session, script(_TOLD, unit_name(name)), check=False, live=False).out.strip()

    def names(self) -> list[str]:
        """The services there are."""
        result = execute(self._session, script(_NAMES), check=False, live=False)
        return [line.split()[0].removesuffix(".service") for line in result.out.splitlines() if line.split()]


def unit_name(name: str) -> str:
    """The name with its kind: ``nginx`` is ``nginx.service``."""
    kinds = ("service", "socket", "timer", "path", "mount", "automount", "swap", "target", "slice", "scope", "device")
    return name if name.rpartition(".")[2] in kinds else f"{name}.service"


def parse(name: str, text: str) -> ServiceState:
    """What ``systemctl show`` said."""
    said = dict(line.partition("=")[::2] for line in text.split("\n"))
    load, file_state = said.get("LoadState", ""), said.get("UnitFileState", "")
    state = said.get("Sysv") or file_state
    fixed = "" if said.get("Sysv") else _FIXED.get(file_state, "")
    # The name of the error and its text: org.freedesktop.systemd1.BadUnitSetting "Unit x has a bad unit file setting."
    error = said.get("LoadError", "").partition('"')[2].rstrip('"')
    return ServiceState(
        name=said.get("Id") or name,
        exists=load not in ("not-found", ""),
        active=_ACTIVE.get(said.get("ActiveState", ""), "changing"),
        detail=said.get("SubState", ""),
        enabled=state in ("enabled", "enabled-runtime", "static", "indirect", "generated", "alias"),
        fixed=fixed,
        masked=load == "masked" or file_state.startswith("masked"),
        can_reload=said.get("CanReload") == "yes",
        error=(error or load) if load in ("error", "bad-setting") else "",
        result=said.get("Result", ""),
        pid=_number(said.get("MainPID", "")),
        stale=said.get("NeedDaemonReload") == "yes",
        path=said.get("FragmentPath", ""),
        restarts=_number(said.get("NRestarts", "")),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
