"""zypper: SUSE and openSUSE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from typing import Final

from kubexm_exec.runner.packages import rpm
from kubexm_exec.runner.packages.base import DIFFERENCE, Manager
from kubexm_exec.runner.packages.data import Ask, Change, Lookup, Move, Outcome, Survey, Target, describe
from kubexm_exec.runner.packages.versions import compare_rpm
from kubexm_exec.runner.quote import script

_FIND: Final = r"""
command -v zypper >/dev/null 2>&1 || exit 127
"""
_SURVEY: Final = (
    _FIND
    + rpm.LOOK
    + r"""
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
)
_REFRESH: Final = _FIND + "zypper -n refresh >&2"
# 100 and above are no failures but advice: a restart is needed, say. 104 (not found), 106 (a repository was left out)
# and 107 (a script failed) are failures all the same.
_CHANGE: Final = (
    _FIND
    + DIFFERENCE
    + rpm.SNAPSHOT
    + r"""
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
)
_SOLVABLE: Final = re.compile(r"<solvable ([^<>]*)>")
_ATTRIBUTE: Final = re.compile(r'(?<![\w-])([\w-]+)="([^"]*)"')
TAG: Final = re.compile(rb"<[^<>]*>")
_SECTION: Final = re.compile(r"<(/?)(to-[a-z-]+)>")


class Zypper(Manager):
    """The commands of zypper and rpm."""

    name = "zypper"
    suffix = ".rpm"
    locked = re.compile(r"System management is locked by the application with pid|ZYpp is (?:already )?locked")

    def compare(self, one: str, two: str) -> int:
        """As rpm sees it."""
        return compare_rpm(one, two)

    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What rpm and zypper's metadata know of the packages."""
        files = [ask.file for ask in asks if ask.file]
        names = [ask.name for ask in asks if not ask.file]
        command = script(_SURVEY, index, str(len(files)), *files, *names)
        said = rpm.read(self.ask(command).out)
        available: dict[str, list[str]] = {}
        for solvable in solvables(said.get("index", ())):
            if solvable.get("repository") != "(System Packages)":
                for name in (solvable["name"], f"{solvable['name']}.{solvable.get('arch')}"):
                    available.setdefault(name, []).append(solvable.get("edition", ""))
        # The answer does not say who provides what: with one name it is clear, with several each is taken at its word.
        virtual = names if any(solvables(said.get("virtual", ()))) else []
        return rpm.survey(asks, said, available=available, virtual=virtual, held=said.get("lock", ()))

    def refresh(self) -> None:
        """``zypper refresh``."""
        result = self.patiently(script(_REFRESH))
        if result.exit_code != 0:
            raise self.failure("refresh the index", result)

    def simulate(self, change: Change) -> tuple[Move, ...]:
        """What ``--dry-run`` says."""
        words = _words(change, "--dry-run")
        # A lock can be lifted only for real: what was named is then known, what follows it is not.
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
        return self.outcome(describe(change), self.patiently(script(_CHANGE, *groups, *_words(change))), rpm.installed)

    def alike(self, name: str) -> list[str]:
        """Names of the index with the same first two letters."""
        body = _FIND + 'zypper -n -x --no-refresh search -t package "$1*"'
        return [each["name"] for each in solvables([self.ask(script(body, name[:2]), expect=range(256)).out])]


def _words(change: Change, *flags: str) -> list[str]:
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
    # A name with an exclamation mark is one to be removed.
    return [*words, "--", *map(_spec, change.install), *(f"!{name}" for name in change.remove)]


def _spec(target: Target) -> str:
    return target.file or (f"{target.name}={target.version}" if target.version else target.name)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """What would be done (``to-install``), and the packages that it would be done to."""
    opened: tuple[str, int] | None = None
    for tag in _SECTION.finditer(text):
        if opened is None and not tag[1]:
            opened = tag[2], tag.end()
        elif opened is not None and tag[1] and tag[2] == opened[0]:
            yield tag[2], text[opened[1] : tag.start()]
            opened = None


def solvables(texts: Sequence[str]) -> Iterator[dict[str, str]]:
    """The packages in answers of zypper, each by its attributes."""
    for text in texts:
        for attributes in _SOLVABLE.findall(text):
            found = {key: unescape(value) for key, value in _ATTRIBUTE.findall(attributes)}
            if "name" in found:
                yield found
