"""zypper: SUSE and openSUSE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from typing import Final

from kubexm_exec.runner.packages import rpm
from kubexm_exec.runner.packages.base import DIFFERENCE, Manager
from kubexm_exec.runner.packages.data import Ask, Change, Lookup, Move, Outcome, Survey, describe
from kubexm_exec.runner.packages.versions import compare_rpm
from kubexm_exec.runner.quote import script

_FIND: Final = r"""
command -v zypper >/dev/null 2>&1 || exit 127
"""
_INDEX: Final = r"""
for f in /var/cache/zypp/raw/*/repodata/repomd.xml; do [ ! -e "$f" ] || stat -c 'stamp|%Y' "$f"; done
[ ! -e /etc/zypp/locks ] || sed -n 's/^solvable_name: /lock|/p' /etc/zypp/locks
[ $# -gt 0 ] || exit 0
search() {
  tag=$1; shift
  out=$(zypper -n -x --no-refresh search -t package --match-exact "$@")
  case $? in
    0 | 104) printf '%s\n' "$out" | sed "s/^/$tag|/" ;;
    *) printf '%s\n' "$out" | sed 's/<[^>]*>//g' >&2; exit 1 ;;
  esac
}
search index -s "$@"
for n do
  shift
  case $out in *" name=\"$n\""*) ;; *) set -- "$@" "$n" ;; esac
done
[ $# -eq 0 ] || search virtual --provides "$@"
"""
# From 100 on exit codes are advice, such as to reboot. But 104 (not found), 106 (a repository was skipped) and 107 (a
# script failed) are failures.
_CHANGE: Final = r"""
unhold=$1 hold=$2; shift 2
before=$(all) code=0
if [ -n "$unhold" ]; then zypper -n removelock $unhold >&2 || exit; fi
if [ $# -gt 0 ]; then zypper -n --no-refresh "$@" >&2 || code=$?; fi
case $code in 100 | 101 | 102 | 103) code=0 ;; esac
[ $code -eq 0 ] || hold=$unhold
if [ -n "$hold" ]; then zypper -n addlock $hold >&2 || { [ $code -ne 0 ] || code=1; }; fi
difference "$before" "$(all)"
exit $code
"""
_SOLVABLE: Final = re.compile(r"<solvable ([^<>]*)>")
_ATTRIBUTE: Final = re.compile(r'(?<![\w-])([\w-]+)="([^"]*)"')
TAG: Final = re.compile(rb"<[^<>]*>")
_SECTION: Final = re.compile(r"<(/?)(to-[a-z-]+)>")


class Zypper(Manager):
    """The commands of zypper and rpm."""

    name = "zypper"
    suffix = ".rpm"
    scripts = (
        _FIND + rpm.LOOK + _INDEX,
        _FIND + "zypper -n refresh >&2",
        _FIND + 'zypper -n refresh --force "$1" >&2',
    )
    compare = staticmethod(compare_rpm)
    locked = re.compile(r"System management is locked by the application with pid|ZYpp is (?:already )?locked")

    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What rpm and the metadata of zypper know of the packages."""
        said = self.asked(asks, index)
        available: dict[str, list[str]] = {}
        for solvable in solvables(said.get("index", ())):
            if solvable.get("repository") != "(System Packages)":
                for name in (solvable["name"], f"{solvable['name']}.{solvable.get('arch')}"):
                    available.setdefault(name, []).append(solvable.get("edition", ""))
        # The answer does not tell which name is provided: with several, all count as such.
        virtual = [ask.name for ask in asks if not ask.file] if any(solvables(said.get("virtual", ()))) else []
        return rpm.survey(asks, said, available=available, virtual=virtual, held=said.get("lock", ()))

    def simulate(self, change: Change) -> tuple[Move, ...]:
        """The moves that ``--dry-run`` prints."""
        words = self._words(change, "--dry-run")
        # A lock cannot be removed in a simulation, so the moves that follow from it are not known.
        if not words or change.unhold:
            return ()
        result = self.ask(script(_FIND + 'zypper -n -x --no-refresh "$@"', *words), expect=range(256))
        if result.exit_code not in (0, 100, 101, 102, 103):
            raise self.failure(describe(change), replace(result, stdout=TAG.sub(b"", result.stdout)))
        moves: list[Move] = []
        for section, text in sections(result.out):
            for each in solvables([text]):
                edition = each.get("edition", "")
                if section == "to-remove":
                    moves.append(Move(each["name"], edition, ""))
                else:
                    moves.append(Move(each["name"], each.get("edition-old", ""), edition))
        return tuple(moves)

    def apply(self, change: Change) -> Outcome:
        """One ``zypper install`` or ``zypper remove`` for all."""
        groups = (" ".join(change.unhold), " ".join(change.hold))
        command = script(_FIND + DIFFERENCE + rpm.SNAPSHOT + _CHANGE, *groups, *self._words(change))
        return self.outcome(describe(change), self.patiently(command), rpm.installed)

    def alike(self, name: str) -> list[str]:
        """Names in the index with the same first two letters."""
        body = _FIND + 'zypper -n -x --no-refresh search -t package "$1*"'
        return [each["name"] for each in solvables([self.ask(script(body, name[:2]), expect=range(256)).out])]

    def _words(self, change: Change, *flags: str) -> list[str]:
        if not change.install and not change.remove:
            return []
        if not change.install:
            return ["remove", *flags, "--", *change.remove]
        words = ["install", *flags, "--auto-agree-with-licenses"]
        words.append("--recommends" if change.recommends else "--no-recommends")
        if change.downgrade:
            words.append("--oldpackage")
        if any(target.file for target in change.install):
            words.append("--allow-unsigned-rpm")
        # A name after an exclamation mark is removed.
        return [*words, "--", *self.specs(change.install), *(f"!{name}" for name in change.remove)]


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The sections of a simulation (such as ``to-install``), each with its text."""
    opened: tuple[str, int] | None = None
    for tag in _SECTION.finditer(text):
        if opened is None and not tag[1]:
            opened = tag[2], tag.end()
        elif opened is not None and tag[1] and tag[2] == opened[0]:
            yield tag[2], text[opened[1] : tag.start()]
            opened = None


def solvables(texts: Sequence[str]) -> Iterator[dict[str, str]]:
    """The attributes of each package in the output of zypper."""
    for text in texts:
        for attributes in _SOLVABLE.findall(text):
            found = {key: unescape(value) for key, value in _ATTRIBUTE.findall(attributes)}
            if "name" in found:
                yield found
