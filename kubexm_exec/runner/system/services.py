"""Services of a host: how they are, and how they are started, stopped and enabled; by systemd or by openrc."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from msgspec import Struct

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.session import Session

Active = Literal["active", "inactive", "failed", "changing"]
Verb = Literal["start", "stop", "restart", "reload", "enable", "reenable", "disable", "mask", "unmask"]
"""What can be done to a service."""

PROPERTIES: Final = (
    "Id,LoadState,LoadError,ActiveState,SubState,UnitFileState,CanReload,Result,MainPID,NeedDaemonReload,FragmentPath,"
    "NRestarts"
)
# Units made from System V scripts need a second question: systemd itself cannot tell whether they are enabled.
_SYSTEMD_LOOK: Final = r"""
said=$(systemctl show -p "$2" -- "$1") || exit
printf '%s\n' "$said"
case $said in *UnitFileState=generated*) printf 'Sysv=%s\n' "$(systemctl is-enabled -- "$1" 2>/dev/null)" ;; esac
"""
_SYSTEMD_TOLD: Final = r"""
systemctl status --no-pager --full --lines=0 -- "$1" 2>&1
if command -v journalctl >/dev/null 2>&1; then
  echo
  journalctl --no-pager -q -n 20 -o short -u "$1" 2>/dev/null
fi
:
"""
# rc-update makes the links in a runlevel; a service that is in any runlevel counts as enabled.
_OPENRC_LOOK: Final = r"""
command -v rc-service >/dev/null 2>&1 || exit 127
if rc-service -e "$1"; then echo exists=yes; else echo exists=no; exit 0; fi
printf 'path=%s\n' "$(rc-service -r "$1")"
rc-service "$1" status >/dev/null 2>&1 </dev/null
printf 'status=%s\n' "$?"
for l in /etc/runlevels/*/"$1"; do
  if [ -L "$l" ] || [ -e "$l" ]; then r=${l%/*}; printf 'runlevel=%s\n' "${r##*/}"; fi
done
case $(rc-service "$1" describe 2>&1 </dev/null) in *reload:*) echo reload=yes ;; esac
"""
_OPENRC_DO: Final = r"""
case $1 in
  enable) rc-update -q add "$2" "$3" ;;
  disable)
    for l in /etc/runlevels/*/"$2"; do
      [ -L "$l" ] || continue
      l=${l%/*}
      rc-update -q del "$2" "${l##*/}" || exit
    done ;;
  *) rc-service -q "$2" "$1" ;;
esac </dev/null
"""
_OPENRC_TOLD: Final = r"""
rc-service "$1" status 2>&1 </dev/null
for f in "/var/log/$1.log" "/var/log/$1.err" /var/log/rc.log; do
  if [ -r "$f" ]; then printf '\n%s:\n' "$f"; tail -n 20 "$f"; fi
done
:
"""
_ACTIVE: Final[dict[str, Active]] = {
    "active": "active",
    "reloading": "active",
    "inactive": "inactive",
    "failed": "failed",
    "maintenance": "inactive",
}
_FIXED: Final = {
    "static": "it has no [Install] section: other units start it",
    "indirect": "it stands for other units, which can be enabled",
    "generated": "it is generated from other configuration at each boot",
    "transient": "it was made at run time, and only until the next boot",
    "alias": "it is an alias of another unit",
}
# Exit codes of `rc-service NAME status`.
_STATUS: Final[dict[str, tuple[Active, str]]] = {
    "0": ("active", "started"),
    "3": ("inactive", "stopped"),
    "4": ("changing", "stopping"),
    "8": ("changing", "starting"),
    "16": ("inactive", "inactive"),
    "32": ("failed", "crashed"),
}


class ServiceState(Struct, frozen=True):
    """What the service manager of a host says about one service."""

    name: str
    """Its own name, which differs from the one that was asked for if that is an alias."""
    exists: bool = True
    active: Active = "inactive"
    detail: str = ""
    """The manager's own word: ``running``, ``exited``, ``auto-restart``, ``crashed``, ..."""
    enabled: bool = False
    fixed: str = ""
    """Why it can be neither enabled nor disabled; empty if it can."""
    masked: bool = False
    can_reload: bool = True
    error: str = ""
    """Why the manager cannot load it; empty if it can."""
    result: str = ""
    """How it ended, if it failed: ``exit-code``, ``timeout``, ..."""
    pid: int = 0
    """Its main process, if it has one."""
    stale: bool = False
    """Whether its files have changed since the manager read them."""
    path: str = ""
    """The file that defines it."""
    restarts: int = 0
    """How often the manager has restarted it."""
    runlevels: tuple[str, ...] = ()
    """The runlevels in which openrc starts it."""


class Services(Operations):
    """The services of one host; made by ``Runner.services``."""

    manager: ClassVar[str]
    """``systemd`` or ``openrc``."""
    can_mask: ClassVar[bool]
    hint: ClassVar[str]
    """What to check if the manager does not answer."""
    scripts: ClassVar[tuple[str, str, str, str]]
    """How to look at a service, to do something with it, to tell about it, and to list all."""

    @staticmethod
    def full_name(name: str) -> str:
        """The name as the manager knows it."""
        return name

    @staticmethod
    def parse(name: str, text: str) -> ServiceState:
        """The state of a service in the answer of the script that looks at it."""
        raise NotImplementedError

    def look(self, name: str) -> ServiceState:
        """How a service is."""
        name = self.full_name(name)
        result = self._ask(self.scripts[0], name, PROPERTIES)
        if result.exit_code != 0 and "exists=yes" not in result.out:
            raise StepFailed(
                f"look at service {name}: {reason_of(result.err)[0] or f'{self.manager} did not answer'}",
                exit_code=result.exit_code,
                stderr=result.err,
                hint=self.hint,
            )
        return self.parse(name, result.out)

    def do(self, verb: Verb, name: str, *, runlevel: str = "default") -> CommandResult:
        """Have the manager do something with a service, and wait for it; ``runlevel`` is for openrc. Raises nothing."""
        return self._ask(self.scripts[1], verb, self.full_name(name), runlevel)

    def told(self, name: str) -> str:
        """What is known about a service that failed: its status and the last lines that it logged."""
        return self._ask(self.scripts[2], self.full_name(name)).out.strip()

    def names(self) -> list[str]:
        """The services that exist."""
        lines = self._ask(self.scripts[3]).out.splitlines()
        return [line.split()[0].removesuffix(".service") for line in lines if line.strip()]


class SystemdServices(Services):
    """The services of a host with systemd: one ``systemctl show`` tells all about one of them."""

    manager = "systemd"
    can_mask = True
    hint = "does `systemctl show` work there? Its D-Bus or /run/systemd/private may be closed to this user"
    scripts = (
        _SYSTEMD_LOOK,
        'systemctl --no-ask-password --quiet "$1" -- "$2"',
        _SYSTEMD_TOLD,
        "systemctl list-unit-files --no-legend --no-pager --type=service",
    )

    @staticmethod
    def full_name(name: str) -> str:
        """The name with its type: ``nginx`` is ``nginx.service``."""
        return unit_name(name)

    @staticmethod
    def parse(name: str, text: str) -> ServiceState:
        """The state of a unit in the answer of ``systemctl show``."""
        said = dict(line.partition("=")[::2] for line in text.split("\n"))
        load, file_state = said.get("LoadState", ""), said.get("UnitFileState", "")
        state = said.get("Sysv") or file_state
        fixed = "" if said.get("Sysv") else _FIXED.get(file_state, "")
        # Its name, then its text: org.freedesktop.systemd1.BadUnitSetting "Unit x has a bad unit file setting."
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


class OpenrcServices(Services):
    """The services of a host with openrc, by ``rc-service`` and ``rc-update``."""

    manager = "openrc"
    can_mask = False
    hint = "the host needs openrc's rc-service and rc-update"
    scripts = (_OPENRC_LOOK, _OPENRC_DO, _OPENRC_TOLD, "rc-service -l")

    @staticmethod
    def parse(name: str, text: str) -> ServiceState:
        """The state of a service in the answer of the script."""
        said = dict(line.partition("=")[::2] for line in text.split("\n"))
        if said.get("exists") != "yes":
            return ServiceState(name, exists=False)
        runlevels = [line.removeprefix("runlevel=") for line in text.split("\n") if line.startswith("runlevel=")]
        active, detail = _STATUS.get(said.get("status", ""), ("inactive", f"status {said.get('status', '?')}"))
        return ServiceState(
            name=name,
            active=active,
            detail=detail,
            enabled=bool(runlevels),
            can_reload=said.get("reload") == "yes",
            path=said.get("path", ""),
            runlevels=tuple(runlevels),
        )


def services(session: Session) -> Services:
    """The services of a host, by the init system in its facts."""
    init = session.facts()["init"]
    if init == "systemd":
        return SystemdServices(session)
    if init == "openrc":
        return OpenrcServices(session)
    raise StepFailed(
        f"services of this host cannot be managed: its init system is {init}",
        hint="kubexm supports systemd and openrc; use a command step for others",
    )


def unit_name(name: str) -> str:
    """The name of a unit with its type: ``nginx`` is ``nginx.service``."""
    kinds = ("service", "socket", "timer", "path", "mount", "automount", "swap", "target", "slice", "scope", "device")
    return name if name.rpartition(".")[2] in kinds else f"{name}.service"


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
