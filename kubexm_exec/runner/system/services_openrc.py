"""Services by openrc: ``rc-service`` and ``rc-update``."""

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

# The links of a runlevel are what rc-update makes; any runlevel counts as enabled.
_LOOK: Final = (
    TOOLS
    + r"""
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
)
_DO: Final = (
    TOOLS
    + r"""
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
)
_TOLD: Final = (
    TOOLS
    + r"""
rc-service "$1" status 2>&1 </dev/null
for f in "/var/log/$1.log" "/var/log/$1.err" /var/log/rc.log; do
  if [ -r "$f" ]; then printf '\n%s:\n' "$f"; tail -n 20 "$f"; fi
done
:
"""
)
_NAMES: Final = TOOLS + "rc-service -l"
# What rc-service's status exits with.
_STATUS: Final[dict[str, tuple[Active, str]]] = {
    "0": ("active", "started"),
    "3": ("inactive", "stopped"),
    "4": ("changing", "stopping"),
    "8": ("changing", "starting"),
    "16": ("inactive", "inactive"),
    "32": ("failed", "crashed"),
}


class OpenrcServices:
    """The services of a host with openrc."""

    manager = "openrc"
    can_mask = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def look(self, name: str) -> ServiceState:
        """How a service is."""
        result = execute(self._session, script(_LOOK, name), check=False, live=False)
        if result.exit_code != 0 and "exists=yes" not in result.out:
            raise StepFailed(
                f"look at service {name}: {reason_of(result.err)[0] or 'rc-service did not answer'}",
                exit_code=result.exit_code,
                stderr=result.err,
                hint="the host needs openrc's rc-service and rc-update",
            )
        return parse(name, result.out)

    def do(self, verb: Verb, name: str, *, runlevel: str = "default") -> CommandResult:
        """Have something done with a service; openrc waits for it."""
        return execute(self._session, script(_DO, verb, name, runlevel), check=False, live=False)

    def told(self, name: str) -> str:
        """Its status and the last lines of what it logged, if that is where openrc's scripts mostly put it."""
        return execute(self._session, script(_TOLD, name), check=False, live=False).out.strip()

    def names(self) -> list[str]:
        """The services there are."""
        return execute(self._session, script(_NAMES), check=False, live=False).out.split()


def parse(name: str, text: str) -> ServiceState:
    """What the script said."""
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
