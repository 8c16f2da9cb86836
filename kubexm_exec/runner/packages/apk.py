"""apk: Alpine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kubexm_exec.runner.packages.base import DIFFERENCE, Manager, surveyed
from kubexm_exec.runner.packages.data import Ask, Change, Found, Lookup, Move, Outcome, Survey, describe
from kubexm_exec.runner.packages.versions import compare_apk, newest
from kubexm_exec.runner.quote import script

_FIND: Final = r"""
command -v apk >/dev/null 2>&1 || exit 127
"""
_SURVEY: Final = r"""
which=$1 files=$2; shift 2
date '+now|%s'
for f in /var/cache/apk/APKINDEX* /etc/apk/cache/APKINDEX*; do [ ! -e "$f" ] || stat -c 'stamp|%Y' "$f"; done
while [ "$files" -gt 0 ]; do
  f=$1 n=; shift; files=$((files - 1))
  if [ -e "$f" ]; then
    n=$(tar -xzOf "$f" .PKGINFO | sed -n 's/^pkgname = //p; s/^pkgver = //p' | tr '\n' '|')
    [ -n "$n" ] || { echo "ERROR: $f cannot be read as a package" >&2; exit 1; }
  fi
  printf 'file|%s\n' "$n"
  [ -z "$n" ] || set -- "$@" "${n%%|*}"
done
apk info -v 2>/dev/null | sed 's/^/known|/'
sed 's/^/world|/' /etc/apk/world
[ $# -eq 0 ] || [ "$which" = none ] || apk policy "$@" 2>/dev/null | sed 's/^/policy|/'
"""
# A version stays in the world file and holds the package there: a package that is not to be held is added once more
# without it.
_CHANGE: Final = r"""
free=$1 unhold=$2 hold=$3 remove=$4; shift 4
all() { apk info -v 2>/dev/null; }
before=$(all) code=0
if [ $# -gt 0 ]; then apk add "$@" >&2 || code=$?; fi
if [ $code -eq 0 ] && [ -n "$remove" ]; then apk del $remove >&2 || code=$?; fi
if [ $code -eq 0 ]; then
  for n in $hold; do v=$(apk info -ev "$n") && apk add "$n=${v#"$n"-}" >&2 || code=$?; done
  for n in $unhold $free; do
    case " $hold $remove " in *" $n "*) ;; *) apk add "$n" >&2 || code=$? ;; esac
  done
fi
difference "$before" "$(all)"
exit $code
"""
_NAME: Final = re.compile(r"(.+)-(\d[^-]*(?:-r\d+)?)")
_STEP: Final = re.compile(
    r"^\(\d+/\d+\) (?P<verb>\w+) (?P<name>\S+) \((?P<old>[^ )]+)(?: -> (?P<new>[^ )]+))?\)", re.MULTILINE
)


class Apk(Manager):
    """The commands of apk."""

    name = "apk"
    suffix = ".apk"
    scripts = (_FIND + _SURVEY, _FIND + "apk update >&2", _FIND + "apk update >&2")
    compare = staticmethod(compare_apk)
    locked = re.compile(r"Unable to lock database: (?:Resource temporarily|temporary)")

    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What the database and the index of apk know of the packages."""
        said = self.asked(asks, index)
        here = dict(each for line in said.get("known", ()) if (each := _installed(line)))
        world = said.get("world", ())
        policies = _policies(said.get("policy", ()))
        paths = iter(said.get("file", ()))
        found: list[Found] = []
        for ask in asks:
            name, version = ask.name, ""
            if ask.file:
                name, version = [*next(paths, "").split("|"), "", ""][:2]
            versions = policies.get(name, ())
            found.append(
                Found(
                    name=name,
                    installed=here.get(name, "") if name else "",
                    held=any(re.match(rf"{re.escape(name)}[=~<>]", line) for line in world if name),
                    candidate=newest(versions, compare_apk),
                    versions=versions,
                    file_version=version,
                )
            )
        return surveyed(found, said)

    def simulate(self, change: Change) -> tuple[Move, ...]:
        """The moves that ``--simulate`` prints."""
        moves: list[Move] = []
        for words in (self._add(change), ["del", *change.remove] if change.remove else []):
            if words:
                result = self.ask(script(_FIND + 'apk --simulate "$@"', *words), expect=range(256))
                if result.exit_code != 0:
                    raise self.failure(describe(change), result)
                moves.extend(_moves(result.out))
        return tuple(moves)

    def apply(self, change: Change) -> Outcome:
        """``apk add`` or ``apk del`` for all, then the holds."""
        free = [target.name for target in change.install if target.version]
        groups = (" ".join(names) for names in (free, change.unhold, change.hold, change.remove))
        command = script(_FIND + DIFFERENCE + _CHANGE, *groups, *self._add(change)[1:])
        return self.outcome(describe(change), self.patiently(command), _installed)

    def alike(self, name: str) -> list[str]:
        """Names in the index with the same first two letters."""
        return self.ask(script('apk search -q "$1*"', name[:2]), expect=range(256)).out.split()

    def _add(self, change: Change) -> list[str]:
        if not change.install:
            return []
        trust = ["--allow-untrusted"] if any(target.file for target in change.install) else []
        return ["add", *trust, *self.specs(change.install)]


def _installed(line: str) -> tuple[str, str] | None:
    found = _NAME.fullmatch(line.strip())
    return (found[1], found[2]) if found else None


def _policies(lines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The versions of each package in repositories, in the output of ``apk policy``."""
    policies: dict[str, tuple[str, ...]] = {}
    name = version = ""
    for line in lines:
        if found := re.fullmatch(r"(\S+) policy:", line):
            name = found[1]
        elif found := re.fullmatch(r"  (\S+):", line):
            version = found[1]
        elif name and line.startswith("    ") and line.strip() != "lib/apk/db/installed":
            policies[name] = tuple(dict.fromkeys((*policies.get(name, ()), version)))
    return policies


def _moves(text: str) -> list[Move]:
    moves = []
    for found in _STEP.finditer(text):
        verb, name, old, new = found["verb"], found["name"], found["old"], found["new"]
        if new:
            moves.append(Move(name, old, new))
        else:
            moves.append(Move(name, old, "") if verb == "Purging" else Move(name, "", old))
    return moves
