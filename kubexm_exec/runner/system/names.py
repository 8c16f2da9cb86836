"""The name of a host, and the names in its hosts file."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.files.probe import TOOLS, Held, look, refused, told
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

HOSTNAME: Final = "/etc/hostname"
HOSTS: Final = "/etc/hosts"
# hostnamectl tells the services that want to know; where it cannot, the kernel is told directly.
_SET: Final = (
    TOOLS
    + r"""
if [ -d /run/systemd/system ] && command -v hostnamectl >/dev/null 2>&1 &&
  hostnamectl --no-ask-password set-hostname --transient "$1" 2>/dev/null && [ "$(uname -n)" = "$1" ]; then exit 0; fi
if command -v hostname >/dev/null 2>&1; then hostname "$1" || exit
else printf '%s\n' "$1" >/proc/sys/kernel/hostname || exit; fi
[ "$(uname -n)" = "$1" ]
"""
)


class Names(Struct, frozen=True):
    """How a host is called."""

    live: str
    """By its kernel."""
    hostname: Held
    hosts: Held


class System:
    """A host's own name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def names(self) -> Names:
        """How the host is called now, and in its files."""
        seen = look(self._session, [HOSTNAME, HOSTS], "part live; uname -n", what="look at the host's name")
        return Names(seen.text("live").removesuffix("\n"), seen.files[HOSTNAME], seen.files[HOSTS])

    def hosts(self) -> Held:
        """The hosts file."""
        return look(self._session, [HOSTS]).files[HOSTS]

    def rename(self, name: str) -> None:
        """Give the running system another name; the file that names it at boot is another matter."""
        result = execute(self._session, script(_SET, name), check=False, live=False)
        if result.exit_code != 0:
            said = told(result)
            hint = "only root may do this: use `become`" if "ermi" in said else ""
            raise refused(self._session, f"name the host {name}", result, hint=hint)
