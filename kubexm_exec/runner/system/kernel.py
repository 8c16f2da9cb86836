"""The running kernel of a host: its settings below /proc/sys, and its modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.errors import reason_of
from kubexm_exec.runner.files.probe import TOOLS, Held, look, refused, told
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

# A key is its path below /proc/sys. What is not there is told with its neighbours, for a suggestion.
_SETTINGS: Final = r"""
for k do
  p=/proc/sys/$k
  if [ ! -f "$p" ]; then part "no $k"; ls -- "${p%/*}" 2>/dev/null
  elif v=$(cat -- "$p" 2>/dev/null); then part "is $k"; printf %s "$v"
  else part "closed $k"; fi
done
part others
grep -H '^[^#;]*=' /run/sysctl.d/*.conf /etc/sysctl.d/*.conf /usr/local/lib/sysctl.d/*.conf /usr/lib/sysctl.d/*.conf \
  /etc/sysctl.conf 2>/dev/null
:
"""
_SET: Final = r"""
while [ $# -gt 0 ]; do
  said=$( { printf '%s\n' "$2" | cat >"/proc/sys/$1"; } 2>&1) || { part "bad $1"; printf %s "$said"; break; }
  part "is $1"
  cat -- "/proc/sys/$1"
  shift 2
done
"""
# Only what can be unloaded has an initstate; what is built in may have a folder too, or only a line in modules.builtin,
# or be a file system that the kernel knows without any module.
_MODULE: Final = r"""
release=$(uname -r)
part kernel; printf %s "$release"
if grep -q "^$1 " /proc/modules 2>/dev/null || [ -e "/sys/module/$1/initstate" ]; then part loaded
elif [ -d "/sys/module/$1" ] || grep -q "[[:space:]]$1\$" /proc/filesystems 2>/dev/null; then part builtin
else
  for d in /lib/modules /usr/lib/modules; do
    if [ -r "$d/$release/modules.builtin" ] && tr - _ <"$d/$release/modules.builtin" | grep -q "/$1\.ko"; then
      part builtin; break
    fi
  done
fi
! have modprobe || { part modprobe; ! modprobe -D "$1" >/dev/null 2>&1 || part found; }
"""
_LOAD: Final = TOOLS + 'modprobe "$1"'
_UNLOAD: Final = TOOLS + 'modprobe -r "$1"'


class Settings(Struct, frozen=True):
    """What the kernel is set to, and what the host's files say."""

    live: Mapping[str, str]
    """Values by path below /proc/sys."""
    missing: Mapping[str, tuple[str, ...]]
    """Paths that are not there, with what stands beside them."""
    closed: frozenset[str]
    """Those that can be written only."""
    others: tuple[tuple[str, str], ...]
    """File and line of all that is set at boot."""
    file: Held


class Module(Struct, frozen=True):
    """A kernel module as it is."""

    loaded: bool
    builtin: bool
    kernel: str
    modprobe: bool
    """Whether there is a modprobe."""
    found: bool
    """Whether modprobe knows it."""
    files: Mapping[str, Held]


class Kernel:
    """Settings and modules of the running kernel."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def settings(self, paths: Sequence[str], file: str) -> Settings:
        """The values of settings (paths below /proc/sys), with a file that sets some at boot."""
        seen = look(self._session, [file], _SETTINGS, *dict.fromkeys(paths), what="look at kernel settings")
        others = [tuple(line.split(":", 1)) for line in seen.lines("others") if ":" in line]
        return Settings(
            live={path: seen.text(f"is {path}") for path in paths if f"is {path}" in seen.parts},
            missing={path: tuple(seen.lines(f"no {path}")) for path in paths if f"no {path}" in seen.parts},
            closed=frozenset(path for path in paths if f"closed {path}" in seen.parts),
            others=tuple((other, line) for other, line in others),
            file=seen.files[file],
        )

    def set(self, values: Mapping[str, str], former: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Set settings (by path below /proc/sys) one after the other; returns what the kernel made of each.

        If it refuses one, those before it get their former values back.
        """
        words = [word for pair in values.items() for word in pair]
        seen = look(self._session, (), _SET, *words, what="change kernel settings")
        for path, value in values.items():
            if f"bad {path}" in seen.parts:
                begun = {other: old for other, old in (former or {}).items() if f"is {other}" in seen.parts}
                if begun:
                    self.set(begun)
                reason, _ = reason_of(seen.text(f"bad {path}"))
                raise StepFailed(
                    f"set {path.replace('/', '.')} to {'a value' if self._session.sensitive else repr(value)}: "
                    f"{(reason or 'refused').lower()}",
                    hint=_why_refused(reason.lower()),
                )
        return {path: seen.text(f"is {path}") for path in values}

    def module(self, name: str, files: Sequence[str]) -> Module:
        """What is known of a module (its name with underscores), with the files that are about it."""
        seen = look(self._session, files, _MODULE, name, what=f"look at kernel module {name}")
        parts = seen.parts
        return Module(
            "loaded" in parts,
            "builtin" in parts,
            seen.text("kernel"),
            "modprobe" in parts,
            "found" in parts,
            seen.files,
        )

    def load(self, name: str) -> None:
        """Load a module with what it needs."""
        result = execute(self._session, script(_LOAD, name), check=False, live=False)
        if result.exit_code == 0:
            return
        said = told(result)
        hint = "modprobe comes with the package kmod" if result.exit_code == 127 else ""
        if "not found" in said and not hint:
            hint = "look at its name; some modules are in a package of their own (linux-modules-extra, kernel-modules)"
        raise refused(self._session, f"load kernel module {name}", result, hint=hint)

    def unload(self, name: str) -> None:
        """Unload a module and what only it needed."""
        result = execute(self._session, script(_UNLOAD, name), check=False, live=False)
        if result.exit_code != 0:
            said = told(result)
            hint = "`lsmod` shows what uses it; stop that first, or reboot" if "in use" in said else ""
            raise refused(self._session, f"unload kernel module {name}", result, hint=hint)


def _why_refused(reason: str) -> str:
    if "invalid argument" in reason:
        return "the kernel takes no such value for it"
    if "read-only" in reason:
        return "in a container the settings are the machine's: set them there"
    if "denied" in reason or "not permitted" in reason:
        return "only root may do this: use `become`"
    return ""
