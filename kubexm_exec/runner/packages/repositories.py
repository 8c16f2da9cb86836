"""Repositories of packages: fetch the index of just one, and the keys that rpm trusts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.packages.base import Manager
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

# The age of the whole index is not made younger by the refresh of one repository. apt complains about the signature
# of a repository that is to do without one, and goes on: only other complaints count then.
_APT: Final = r"""
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
_DNF: Final = r"""
dnf=$(command -v dnf || command -v yum) || exit 127
"$dnf" -q -y --setopt=exit_on_lock=True "--setopt=$1.skip_if_unavailable=False" "--disablerepo=*" "--enablerepo=$1" \
  --refresh makecache >&2
"""
_ZYPPER: Final = r"""
command -v zypper >/dev/null 2>&1 || exit 127
zypper -n refresh --force "$1" >&2
"""
_APK: Final = r"""
command -v apk >/dev/null 2>&1 || exit 127
apk update >&2
"""
_SCRIPTS: Final = {"apt": _APT, "dnf": _DNF, "zypper": _ZYPPER, "apk": _APK}
_IMPORT: Final = r"""
trap 'rm -f -- "$file"' EXIT
file=$(mktemp) && cat >"$file" && rpm --import "$file" >&2
"""
_FORGET: Final = r"""
for id do
  for key in $(rpm -q gpg-pubkey --qf '%{VERSION}-%{RELEASE}\n' 2>/dev/null | grep "^$id-"); do
    rpm -e --allmatches "gpg-pubkey-$key" >&2 || exit
  done
done
"""
# Other files that hold the same key: it is theirs too.
_SHARED: Final = r"""
for f in /etc/pki/rpm-gpg/*; do
  if [ "$f" != "$1" ] && [ -f "$f" ] && cmp -s "$f" "$1"; then echo "$f"; fi
done
exit 0
"""


def refresh(manager: Manager, name: str, path: str, *, trusted: bool = False) -> None:
    """Fetch the index of one repository anew; one that cannot be had is a failure.

    So is one that is not signed as it should be, unless it is trusted without a signature.
    """
    result = manager.patiently(script(_SCRIPTS[manager.name], name, path, "yes" if trusted else "no"))
    if result.exit_code != 0:
        raise manager.failure(f"fetch the index of {name}", result)


def trusted_keys(session: Session) -> set[str]:
    """The ids (eight digits) of the keys that rpm trusts."""
    body = "rpm -q gpg-pubkey --qf '%{VERSION}\\n' 2>/dev/null; exit 0"
    return {line.strip() for line in execute(session, script(body), live=False).out.splitlines()}


def trust_key(session: Session, key: bytes) -> None:
    """Let rpm trust a key (armoured)."""
    result = execute(session, script(_IMPORT, stdin=key), check=False, live=False)
    if result.exit_code != 0:
        raise StepFailed(
            "give rpm the repository's key: it was refused",
            exit_code=result.exit_code,
            stderr=result.err,
            hint="is it a key that this version of rpm understands? Very old and very new kinds are not",
        )


def forget_keys(session: Session, ids: Collection[str]) -> None:
    """Let rpm no longer trust these keys."""
    if ids:
        execute(session, script(_FORGET, *sorted(ids)), live=False)


def same_keys(session: Session, path: str) -> list[str]:
    """Other key files with the same content."""
    return execute(session, script(_SHARED, path), live=False).out.splitlines()
