"""What dnf and zypper have in common: the database of rpm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubexm_exec.runner.packages.base import surveyed
from kubexm_exec.runner.packages.data import Ask, Found, Survey
from kubexm_exec.runner.packages.versions import compare_rpm, newest

# After it, "$@" are the names to look up in the index.
LOOK: Final = r"""
which=$1 files=$2; shift 2
date '+now|%s'
while [ "$files" -gt 0 ]; do
  f=$1 n=; shift; files=$((files - 1))
  [ -e "$f" ] && { n=$(rpm -qp --nosignature --qf '%{NAME}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}' "$f") || exit; }
  printf 'file|%s\n' "$n"
  [ -z "$n" ] || set -- "$@" "${n%|*}"
done
known=$(rpm -q --qf 'known|%{NAME}|%{ARCH}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' "$@" 2>/dev/null | grep '^known|')
printf '%s\n' "$known"
for n do
  shift
  case $known in
    *"|$n|"* | *"|${n%.*}|${n##*.}|"*) [ "$which" != all ] || set -- "$@" "$n" ;;
    *)
      [ "$which" != none ] || continue
      set -- "$@" "$n"
      rpm -q --qf "provides|$n|%{NAME}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n" --whatprovides "$n" 2>/dev/null |
        grep '^provides|'
      ;;
  esac
done
"""
SNAPSHOT: Final = r"""
all() { rpm -qa --qf '%{NAME}|%{ARCH}|%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' | grep -v '^gpg-pubkey|'; }
"""


def plain(version: str) -> str:
    """A version without the epoch 0, as people write it."""
    return version.removeprefix("0:").removeprefix("(none):")


def installed(line: str) -> tuple[str, str] | None:
    """Name and version of a line of the snapshot."""
    parts = line.split("|")
    return (parts[0], plain(parts[2])) if len(parts) == 3 else None


def survey(
    asks: Sequence[Ask],
    said: Mapping[str, Sequence[str]],
    *,
    available: Mapping[str, Sequence[str]],
    virtual: Sequence[str],
    held: Sequence[str],
) -> Survey:
    """Combine the answers of rpm and of the index."""
    files = iter(said.get("file", ()))
    found: list[Found] = []
    for ask in asks:
        name, version = ask.name, ""
        if ask.file:
            name, _, version = next(files, "").partition("|")
            if not name:
                found.append(Found(name=""))
                continue
        here = _known(name, said.get("known", ()))
        provider, provided = ("", "") if here or ask.file else _provider(name, said.get("provides", ()))
        versions = tuple(dict.fromkeys(plain(each) for each in available.get(name, ())))
        found.append(
            Found(
                name=name,
                installed=here or provided,
                provider=provider,
                held=(provider or name) in held,
                candidate=newest(versions, compare_rpm),
                versions=versions,
                virtual=not versions and name in virtual,
                file_version=plain(version),
            )
        )
    return surveyed(found, said)


def _known(name: str, lines: Sequence[str]) -> str:
    """The installed version; the newest if there are several."""
    versions = []
    for line in lines:
        package, arch, version = line.split("|", 2)
        if name in (package, f"{package}.{arch}"):
            versions.append(plain(version))
    return newest(versions, compare_rpm)


def _provider(name: str, lines: Sequence[str]) -> tuple[str, str]:
    for line in lines:
        asked, package, version = line.split("|", 2)
        if asked == name:
            return package, plain(version)
    return "", ""
