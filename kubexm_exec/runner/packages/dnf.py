"""dnf, and yum where that is dnf: Fedora, RHEL and their derivatives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kubexm_exec.runner.packages import rpm
from kubexm_exec.runner.packages.base import DIFFERENCE, Manager
from kubexm_exec.runner.packages.data import Ask, Change, Lookup, Move, Outcome, Survey, describe
from kubexm_exec.runner.packages.versions import compare_rpm
from kubexm_exec.runner.quote import script

_FIND: Final = r"""
dnf=$(command -v dnf || command -v yum) || exit 127
"""
_INDEX: Final = r"""
for f in /var/cache/dnf/*/repodata/repomd.xml /var/cache/libdnf5/*/repodata/repomd.xml; do
  [ ! -e "$f" ] || stat -c 'stamp|%Y' "$f"
done
off=
if [ "$locks" = yes ]; then
  off=--disableplugin=versionlock
  "$dnf" -C -q versionlock list | sed 's/^/lock|/'
fi
[ $# -gt 0 ] || exit 0
# dnf 4 ends each line, dnf 5 does not: there can be empty lines.
query() { "$dnf" -C -q $off repoquery --qf "$@"; }
known=$(query 'index|%{name}|%{arch}|%{epoch}:%{version}-%{release}\n' --showduplicates "$@") || exit
printf '%s\n' "$known"
for n do
  case $known in
    *"|$n|"* | *"|${n%.*}|${n##*.}|"*) ;;
    *) query "virtual|$n|%{name}\n" --latest-limit 1 --whatprovides "$n" ;;
  esac
done
"""
_REFRESH: Final = '"$dnf" -q -y --setopt=exit_on_lock=True --refresh makecache >&2'
_REFRESH_ONE: Final = r"""
"$dnf" -q -y --setopt=exit_on_lock=True "--setopt=$1.skip_if_unavailable=False" "--disablerepo=*" "--enablerepo=$1" \
  --refresh makecache >&2
"""
# The metadata has been refreshed before if that was wanted.
_TRANSACTION: Final = r"""
transaction() {
  "$dnf" -y --setopt=exit_on_lock=True --setopt='*.metadata_expire=-1' --setopt="install_weak_deps=$weak" "$@"
}
"""
_CHANGE: Final = r"""
weak=$1 unhold=$2 hold=$3 remove=$4; shift 4
before=$(all) code=0
if [ -n "$unhold$hold" ]; then "$dnf" -C -q versionlock list >/dev/null || exit; fi
if [ -n "$unhold" ]; then "$dnf" -C -q versionlock delete $unhold >&2 || exit; fi
# What is removed may conflict with what is installed.
erase=; [ -z "$remove" ] || erase=--allowerasing
if [ $# -gt 0 ]; then transaction $erase install "$@" >&2 || code=$?; fi
if [ -n "$remove" ] && [ $code -eq 0 ]; then transaction --noautoremove remove $remove >&2 || code=$?; fi
[ $code -eq 0 ] || hold=$unhold
if [ -n "$hold" ]; then "$dnf" -C -q versionlock add $hold >&2 || { [ $code -ne 0 ] || code=1; }; fi
difference "$before" "$(all)"
exit $code
"""
_SIMULATE: Final = r"""
weak=$1 remove=$2 off=$3 erase=; shift 3
[ -z "$remove" ] || erase=--allowerasing
exec 2>&1
if [ $# -gt 0 ]; then transaction -C --assumeno $off $erase install "$@"; fi
if [ -n "$remove" ]; then transaction -C --assumeno $off --noautoremove remove $remove; fi
exit 0
"""
_SECTIONS: Final = {"Installing": "+", "Upgrading": "+", "Downgrading": "+", "Reinstalling": "+", "Removing": "-"}
# A name that is too long for its column moves the rest to the next line.
_ROW: Final = re.compile(r"^ (\S+)\s+(noarch|[a-z][a-z0-9_]+)\s+(\S+)\s+(\S+)\s+[\d.]+", re.MULTILINE)
_LOCK: Final = re.compile(r"^!?(.+?)-(?:\d+:)?[^-]+-[^-]+$")


class Dnf(Manager):
    """The commands of dnf and rpm."""

    name = "dnf"
    suffix = ".rpm"
    equals = "-"
    scripts = (_FIND + "locks=$1; shift\n" + rpm.LOOK + _INDEX, _FIND + _REFRESH, _FIND + _REFRESH_ONE)
    compare = staticmethod(compare_rpm)
    locked = re.compile(
        r"already locked by \d+|Waiting for process with pid|another copy is running|holding the (?:yum|dnf) lock"
        r"|can't create transaction lock"
    )

    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What rpm and the metadata of dnf know of the packages."""
        said = self.asked(asks, "yes" if holds else "no", index)
        available: dict[str, list[str]] = {}
        for line in said.get("index", ()):
            name, arch, version = line.split("|", 2)
            available.setdefault(name, []).append(version)
            available.setdefault(f"{name}.{arch}", []).append(version)
        virtual = [line.partition("|")[0] for line in said.get("virtual", ())]
        held = [found[1] for line in said.get("lock", ()) if (found := _LOCK.match(line))]
        return rpm.survey(asks, said, available=available, virtual=virtual, held=held)

    def simulate(self, change: Change) -> tuple[Move, ...]:
        """The moves that dnf lists before its question, which is answered with no."""
        off = "--disableplugin=versionlock" if change.unhold else ""
        arguments = (str(change.recommends), " ".join(change.remove), off, *self.specs(change.install))
        result = self.ask(script(_FIND + _TRANSACTION + _SIMULATE, *arguments))
        if not re.search("Operation aborted|Nothing to do", result.out) or re.search("^Error:", result.out, re.M):
            raise self.failure(describe(change), result)
        return _table(result.out)

    def apply(self, change: Change) -> Outcome:
        """One ``dnf install`` or ``dnf remove`` for all."""
        groups = (" ".join(names) for names in (change.unhold, change.hold, change.remove))
        body = _FIND + DIFFERENCE + rpm.SNAPSHOT + _TRANSACTION + _CHANGE
        command = script(body, str(change.recommends), *groups, *self.specs(change.install))
        return self.outcome(describe(change), self.patiently(command), rpm.installed)

    def alike(self, name: str) -> list[str]:
        """Names in the index with the same first two letters."""
        body = _FIND + '"$dnf" -C -q repoquery --qf "%{name}\\n" "$1*"'
        return self.ask(script(body, name[:2]), expect=range(256)).out.split()


def _table(text: str) -> tuple[Move, ...]:
    """The packages in the table that dnf prints before its question."""
    moves: list[Move] = []
    mark = ""
    part: list[str] = []
    for line in [*text.splitlines(), "Transaction Summary"]:
        if not line.startswith(" ") or not line.strip():
            for name, _, version, _ in _ROW.findall("\n".join(part)):
                old, new = ("", rpm.plain(version)) if mark == "+" else (rpm.plain(version), "")
                moves.append(Move(name, old, new))
            part = []
            mark = _SECTIONS.get(line.split(" ")[0].rstrip(":"), "") if line.endswith(":") else ""
        elif mark:
            part.append(line)
    return tuple(moves)
