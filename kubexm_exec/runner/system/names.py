"""The name of a host, and the names in its hosts file."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.probe import Held, look

HOSTNAME: Final = "/etc/hostname"
HOSTS: Final = "/etc/hosts"
# hostnamectl informs other services; where it does not work, the name is set in the kernel.
_SET: Final = r"""
if [ -d /run/systemd/system ] && command -v hostnamectl >/dev/null 2>&1 &&
  hostnamectl --no-ask-password set-hostname --transient "$1" 2>/dev/null && [ "$(uname -n)" = "$1" ]; then exit 0; fi
if command -v hostname >/dev/null 2>&1; then hostname "$1" || exit
else printf '%s\n' "$1" >/proc/sys/kernel/hostname || exit; fi
[ "$(uname -n)" = "$1" ]
"""


class Names(Struct, frozen=True):
    """The names of a host."""

    live: str
    """In its kernel."""
    hostname: Held
    hosts: Held


class System(Operations):
    """A host's own name."""

    def names(self) -> Names:
        """The name of the host now, and in its files."""
        seen = look(self._session, [HOSTNAME, HOSTS], "part live; uname -n", what="look at the host's name")
        return Names(seen.text("live").removesuffix("\n"), seen.files[HOSTNAME], seen.files[HOSTS])

    def hosts(self) -> Held:
        """The hosts file."""
        return look(self._session, [HOSTS]).files[HOSTS]

    def rename(self, name: str) -> None:
        """Rename the running system; the file that names it at boot is not changed."""
        self._do(f"name the host {name}", _SET, name, hints=(("ermi", "only root may do this: use `become`"),))
