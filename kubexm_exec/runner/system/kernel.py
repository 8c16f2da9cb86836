"""The running kernel of a host: its settings below /proc/sys, and its modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.files.probe import Held, look

# A key is its path below /proc/sys. A missing one is answered with its neighbours, for a suggestion.
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
# Only a module that can be unloaded has an initstate; a built-in one may have a folder too, or only a line in
# modules.builtin, or be a file system that the kernel lists.
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
_PACKAGES: Final = "check its name; some modules have a package of their own (linux-modules-extra, kernel-modules)"


class Settings(Struct, frozen=True):
    """Kernel settings, as they are now and as the files of the host set them."""

    live: Mapping[str, str]
    """Values by path below /proc/sys."""
    missing: Mapping[str, tuple[str, ...]]
    """Paths that do not exist, with their neighbours."""
    closed: frozenset[str]
    """Paths that cannot be read."""
    others: tuple[tuple[str, str], ...]
    """File and line of every setting that is made at boot."""
    file: Held


class Module(Struct, frozen=True):
    """The state of a kernel module."""

    loaded: bool
    builtin: bool
    kernel: str
    modprobe: bool
    """Whether the host has modprobe."""
    found: bool
    """Whether modprobe knows it."""
    files: Mapping[str, Held]


class Kernel(Operations):
    """Settings and modules of the running kernel."""

    def settings(self, paths: Sequence[str], file: str) -> Settings:
        """The values of settings (paths below /proc/sys), and a file that sets some at boot."""
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
        """Change settings (paths below /proc/sys), or none if one is refused; returns the values of the kernel."""
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
        """The state of a module (its name with underscores), with the files that configure it."""
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
        """Load a module with its dependencies."""
        hints = (("exit code 127", "modprobe comes with the package kmod"), ("not found", _PACKAGES))
        self._do(f"load kernel module {name}", 'modprobe "$1"', name, hints=hints)

    def unload(self, name: str) -> None:
        """Unload a module, and dependencies that nothing else uses."""
        hints = (("in use", "`lsmod` shows what uses it; stop that first, or reboot"),)
        self._do(f"unload kernel module {name}", 'modprobe -r "$1"', name, hints=hints)


def _why_refused(reason: str) -> str:
    if "invalid argument" in reason:
        return "the kernel does not accept this value"
    if "read-only" in reason:
        return "a container has the settings of its machine: change them there"
    if "denied" in reason or "not permitted" in reason:
        return "only root may do this: use `become`"
    return ""
