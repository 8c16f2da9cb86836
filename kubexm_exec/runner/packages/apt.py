"""apt: Debian, Ubuntu and their derivatives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kubexm_exec.runner.packages.base import DIFFERENCE, Manager, surveyed
from kubexm_exec.runner.packages.data import Ask, Change, Found, Lookup, Move, Outcome, Survey, describe
from kubexm_exec.runner.packages.versions import compare_deb
from kubexm_exec.runner.quote import script

# No prompts, old configuration files are kept, and needrestart restarts no service.
_QUIET: Final = r"""
export DEBIAN_FRONTEND=noninteractive DEBIAN_PRIORITY=critical APT_LISTCHANGES_FRONTEND=none
export UCF_FORCE_CONFFOLD=1 NEEDRESTART_SUSPEND=1 NEEDRESTART_MODE=l
command -v apt-get >/dev/null 2>&1 || exit 127
"""
# What is installed, held, provided by others and in the index, and the age of the index.
_SURVEY: Final = r"""
command -v apt-get >/dev/null 2>&1 || exit 127
which=$1 files=$2; shift 2
arch=$(dpkg --print-architecture)
printf 'arch|%s\n' "$arch"
date '+now|%s'
for f in /var/lib/apt/lists/*Packages*; do
  if [ -e "$f" ]; then stat -c 'stamp|%Y' /var/lib/apt/lists; break; fi
done
f=/var/lib/apt/periodic/update-success-stamp
[ ! -e "$f" ] || stat -c 'stamp|%Y' "$f"
while [ "$files" -gt 0 ]; do
  f=$1 n=; shift; files=$((files - 1))
  [ -e "$f" ] && { n=$(dpkg-deb -W --showformat='${Package}|${Architecture}|${Version}' "$f") || exit; }
  printf 'file|%s\n' "$n"
  n=${n%|*}
  [ -z "$n" ] || set -- "$@" "${n%|*}"
done
known=$(dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Architecture}|${Version}\n' "$@" 2>/dev/null)
[ -z "$known" ] || printf '%s\n' "$known" | sed 's/^/known|/'
here=$(printf '\n%s\n' "$known" | grep '^.[iWt]')
unknown=0
for n do
  shift
  case $here in
    *"|${n%%:*}|"*) [ "$which" != all ] || set -- "$@" "$n" ;;
    *) [ "$which" = none ] || { unknown=1; set -- "$@" "$n"; } ;;
  esac
done
if [ $unknown = 1 ]; then
  dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}|${Provides}\n' |
    sed -n 's/^\(.i.*|[^|]\{1,\}\)$/provides|\1/p'
fi
apt-mark showhold | sed 's/^/held|/'
[ $# -eq 0 ] || apt-cache policy "$@" | sed 's/^/policy|/'
"""
_REFRESH: Final = "apt-get -q -o APT::Update::Error-Mode=any update >&2 && touch /var/lib/apt/lists"
# The refresh of one repository does not change the age of the whole index. apt warns of a repository that is trusted
# without a signature, and goes on: only other warnings count then.
_REFRESH_ONE: Final = r"""
command -v apt-get >/dev/null 2>&1 || exit 127
lists=/var/lib/apt/lists old=
for f in $lists/*Packages*; do if [ -e "$f" ]; then old=$(stat -c %Y $lists); break; fi; done
strict=
[ "$3" = yes ] || strict='-o APT::Update::Error-Mode=any'
out=$(apt-get -q -o "Dir::Etc::sourcelist=$2" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 $strict \
  update 2>&1)
code=$?
[ -z "$old" ] || touch -d "@$old" $lists
printf '%s\n' "$out" >&2
if [ $code -eq 0 ]; then
  case $out in
    *"couldn't be verified"*) ;;
    *"Some index files failed to download"*) code=100 ;;
  esac
fi
exit $code
"""
_CHANGE: Final = r"""
unhold=$1 hold=$2 auto=$3; shift 3
all() { dpkg-query -W -f '${db:Status-Abbrev}|${Package}:${Architecture}|${Version}\n'; }
before=$(all) code=0
printf 'arch|%s\n' "$(dpkg --print-architecture)"
apt-mark showauto | sed 's/^/auto|/'
if [ -n "$unhold" ]; then apt-mark unhold $unhold >&2 || exit; fi
if [ $# -gt 0 ]; then
  # A dpkg that was killed, perhaps with the run that is resumed now: apt refuses everything until it is completed.
  for f in /var/lib/dpkg/updates/[0-9]*; do
    [ ! -e "$f" ] || dpkg --force-confdef --force-confold --configure -a >&2
    break
  done
  apt-get -q -y -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" >&2 || code=$?
fi
if [ $code -ne 0 ]; then
  if [ -n "$unhold" ]; then apt-mark hold $unhold >&2; fi
elif [ -n "$hold" ]; then
  apt-mark hold $hold >&2 || code=$?
fi
if [ -n "$auto" ] && [ $code -eq 0 ]; then apt-mark auto $auto >&2 || code=$?; fi
difference "$before" "$(all)"
exit $code
"""
# The second letter of dpkg's states: installed, perhaps with pending triggers; and half installed.
_INSTALLED: Final = frozenset("iWt")
_BROKEN: Final = frozenset("HUF")
_SIMULATED: Final = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?", re.MULTILINE)


class Apt(Manager):
    """The commands of apt and dpkg."""

    name = "apt"
    suffix = ".deb"
    locked = re.compile(
        r"Could not get lock|Unable to lock|Unable to acquire the dpkg frontend lock|frontend lock was locked"
        r"|lock.* is held by|locked by another process"
    )
    scripts = (_SURVEY, _QUIET + _REFRESH, _REFRESH_ONE)
    compare = staticmethod(compare_deb)

    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What dpkg and the index of apt know of the packages."""
        return _parse(asks, self.asked(asks, index, expect=(0, 1)))

    def simulate(self, change: Change) -> tuple[Move, ...]:
        """The moves that ``apt-get -s`` prints."""
        words = self._words(change)
        if not words:
            return ()
        held = ["--allow-change-held-packages"] if change.unhold else []
        body = _QUIET + "apt-mark showauto | sed 's/^/auto|/'\napt-get -s -y -o Debug::NoLocking=1 \"$@\""
        result = self.ask(script(body, *held, *words), expect=range(256))
        if result.exit_code != 0:
            raise self.failure(describe(change), result)
        autos = _autos(result.out)
        return tuple(
            Move(name, before or "", "" if verb != "Inst" else after or "", name in autos)
            for verb, name, before, after in (found.groups() for found in _SIMULATED.finditer(result.out))
        )

    def apply(self, change: Change) -> Outcome:
        """One ``apt-get`` for all."""
        groups = [" ".join(change.unhold), " ".join(change.hold), " ".join(change.auto)]
        result = self.patiently(script(_QUIET + DIFFERENCE + _CHANGE, *groups, *self._words(change)))
        autos = _autos(result.out)
        native = next((line[5:] for line in result.out.splitlines() if line.startswith("arch|")), "")
        outcome = self.outcome(describe(change), result, lambda line: _installed(line, native))
        moves = (replace(move, auto=move.name in autos) for move in outcome.moves)
        return Outcome(tuple(moves), outcome.failure)

    def alike(self, name: str) -> list[str]:
        """Names in the index with the same first two letters."""
        return self.ask(script('apt-cache pkgnames "$1"', name[:2]), expect=range(256)).out.split()

    def _words(self, change: Change) -> list[str]:
        if not change.install and not change.remove:
            return []
        flags = ["--allow-downgrades"] if change.downgrade else []
        if change.purge:
            flags.append("--purge")
        if not change.install:
            return [*flags, "remove", "--", *change.remove]
        flags.append("--install-recommends" if change.recommends else "--no-install-recommends")
        # A name that ends with a minus is removed.
        return [*flags, "install", "--", *self.specs(change.install), *(f"{name}-" for name in change.remove)]


def _autos(text: str) -> set[str]:
    """The packages that were installed automatically before."""
    return {line.removeprefix("auto|") for line in text.splitlines() if line.startswith("auto|")}


def _installed(line: str, native: str) -> tuple[str, str] | None:
    """Name and version of an installed package; the name of a foreign one has its architecture."""
    status, name, version = line.split("|", 2)
    name = name.removesuffix(":all").removesuffix(f":{native}")
    return (name, version) if status[1:2] in _INSTALLED | _BROKEN else None


def _parse(asks: Sequence[Ask], said: Mapping[str, Sequence[str]]) -> Survey:
    native = next(iter(said.get("arch", ())), "")
    held = {name.removesuffix(f":{native}") for name in said.get("held", ())}
    files = iter(said.get("file", ()))
    policies = _policies(said.get("policy", ()))
    found: list[Found] = []
    for ask in asks:
        name, version = ask.name, ""
        if ask.file:
            name, _, rest = next(files, "").partition("|")
            version = rest.partition("|")[2]
            if not name:
                found.append(Found(name=""))
                continue
        state, installed = _known(name, native, said.get("known", ()))
        here = state[1:2] in _INSTALLED
        provider, provided = ("", "") if here or ask.file else _provider(name, said.get("provides", ()))
        candidate, versions = policies.get(name, ("", ()))
        found.append(
            Found(
                name=name,
                installed=installed if here else provided,
                provider=provider,
                leftover=state[1:2] == "c",
                broken=state[1:2] in _BROKEN,
                held=(provider or name) in held,
                candidate=candidate,
                versions=versions,
                virtual=name in policies and not versions,
                file_version=version,
            )
        )
    return surveyed(found, said)


def _known(name: str, native: str, lines: Sequence[str]) -> tuple[str, str]:
    """The state and version of a package, for the architecture that its name implies."""
    base, _, arch = name.partition(":")
    for line in lines:
        state, package, architecture, version = line.split("|", 3)
        if package == base and architecture in ((arch,) if arch else (native, "all")):
            return state, version
    return "", ""


def _provider(name: str, lines: Sequence[str]) -> tuple[str, str]:
    """The installed package that provides a name, and its version."""
    for line in lines:
        _, package, version, provides = line.split("|", 3)
        if name in (each.split()[0].partition(":")[0] for each in provides.split(",") if each.strip()):
            return package, version
    return "", ""


def _policies(lines: Sequence[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Candidate and versions of each package in the output of ``apt-cache policy``."""
    policies: dict[str, tuple[str, tuple[str, ...]]] = {}
    name, candidate, version = "", "", ""
    versions: list[str] = []
    for line in [*lines, "end:"]:
        if line[:1] not in ("", " "):
            if name:
                policies[name] = (candidate if candidate in versions else "", tuple(versions))
            name, candidate, versions = line.removesuffix(":"), "", []
        elif line.startswith("  Candidate: "):
            candidate = line.removeprefix("  Candidate: ").strip()
        elif found := re.fullmatch(r" (?:\*\*\*|   ) (\S+) -?\d+", line):
            version = found[1]
        elif re.match(r" {8} *-?\d+ ", line) and not line.endswith(" /var/lib/dpkg/status") and version not in versions:
            versions.append(version)
    return policies
