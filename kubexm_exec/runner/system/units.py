"""Unit files of systemd: read together with the state of their units, verified before use, and reloaded."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.filescripts import reason_of
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations, refused
from kubexm_exec.runner.files.probe import Held, look
from kubexm_exec.runner.system.services import PROPERTIES, ServiceState, SystemdServices

# The unit's folder of drop-ins is listed too: it is removed together with the unit.
_LOOK: Final = r"""
p=$1 d=$2; shift 2
for u do part "show $u"; systemctl show -p "$p" -- "$u" || exit; done
part dropins
[ -z "$d" ] || for f in "$d"/*.conf; do if [ -f "$f" ]; then printf '%s\n' "$f"; fi; done
:
"""
# Exits with 0 whatever it finds: the lines tell. A unit without a new file is verified as the host has it.
_VERIFY: Final = r"""
command -v systemd-analyze >/dev/null 2>&1 || exit 0
d=$(mktemp -d "${TMPDIR:-/tmp}/kx.XXXXXXXXXX") || exit
trap 'rm -rf -- "$d"' EXIT
cd -- "$d" && tar -xf - || exit
for u do
  shift
  if ! [ -e "./$u" ]; then
    f=$(systemctl show -p FragmentPath --value -- "$u")
    [ -n "$f" ] && cp -- "$f" "./$u" || continue
  fi
  set -- "$@" "$d/$u"
done
[ $# -gt 0 ] || exit 0
said=$(systemd-analyze verify --man=no --recursive-errors=no "$@" 2>&1)
case $said in *'unrecognized option'*) said=$(systemd-analyze verify --man=no "$@" 2>&1) ;; esac
printf '%s\n%s\n' "$d/" "$said"
"""
_CALENDAR: Final = r"""
command -v systemd-analyze >/dev/null 2>&1 || { echo missing; exit 0; }
for c do
  if said=$(systemd-analyze calendar -- "$c" 2>&1); then
    printf 'next %s\n' "$(printf '%s\n' "$said" | sed -n 's/^ *Next elapse: *//p')"
  else printf 'bad %s\n' "$c"; fi
done
"""
_HINTS: Final = ((r"(?i)access denied|authentication|permission denied", "use `become: true` for this host"),)
_FATAL: Final = re.compile(r"has a bad unit file setting|failed to load properly|Refusing\.")


class UnitLook(Struct, frozen=True):
    """Unit files, and the states of units."""

    files: Mapping[str, Held]
    states: Mapping[str, ServiceState]
    dropins: Sequence[str] = ()


class Verdict(Struct, frozen=True):
    """The result of verifying unit files."""

    complaints: Sequence[str] = ()
    fatal: bool = False
    """Whether systemd would refuse to load them."""


class Units(Operations):
    """Unit files of one host with systemd; made by ``Runner.units``."""

    def needed(self, what: str, hint: str = "") -> None:
        """Raise StepFailed on a host without systemd."""
        init = self._session.facts()["init"]
        if init != "systemd":
            raise StepFailed(
                f"{what}: the host has no systemd, its init system is {init}",
                hint=hint or "leave such hosts out with `when: facts.init == 'systemd'`",
            )

    def look(self, units: Sequence[str], files: Sequence[str], dropins: str = "") -> UnitLook:
        """Files, the states of units, and the files in a folder of drop-ins, in one round trip."""
        try:
            seen = look(
                self._session, files, _LOOK, PROPERTIES, dropins, *dict.fromkeys(units), what=f"look at {units[0]}"
            )
        except StepFailed as failure:
            if "/dev/null" in failure.message:
                raise StepFailed(
                    f"unit {units[0]} is masked",
                    hint="a link to /dev/null is in its place: unmask it first with a service step, `masked: false`",
                ) from failure
            raise
        states = {unit: SystemdServices.parse(unit, seen.text(f"show {unit}")) for unit in units}
        return UnitLook(seen.files, states, seen.lines("dropins"))

    def reload(self) -> None:
        """Have systemd read all unit files again."""
        self._do("reload systemd", "systemctl --no-ask-password daemon-reload", hints=_HINTS)

    def verify(self, units: Sequence[str], files: Mapping[str, str]) -> Verdict:
        """Verify units with these files, which are named such as ``x.service`` and ``x.service.d/y.conf``."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, text in files.items():
                data = text.encode("utf-8", "surrogateescape")
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o600
                tar.addfile(entry, io.BytesIO(data))
        result = self._ask(_VERIFY, *units, stdin=packed.getvalue())
        if result.exit_code != 0:
            raise refused(self._session, f"verify {units[0]}", result, reason_of(result.err)[0], hints=_HINTS)
        folder, _, said = result.out.partition("\n")
        if not folder:
            return Verdict()
        ours = [
            line.replace(folder, "")
            for line in said.splitlines()
            if folder in line or any(line.startswith((f"{unit}:", f"Unit {unit} ")) for unit in units)
        ]
        return Verdict(ours, fatal=bool(_FATAL.search("\n".join(ours))))

    def calendar(self, expressions: Sequence[str]) -> list[str]:
        """When each expression elapses next, in the host's words; an invalid one is a failure."""
        lines = self._ask(_CALENDAR, *expressions).out.splitlines()
        bad = [line.removeprefix("bad ") for line in lines if line.startswith("bad ")]
        if bad:
            raise StepFailed(
                f"schedule {bad[0]!r}: systemd does not understand it",
                hint="write it as in OnCalendar=, such as `daily`, `Mon..Fri 03:00` or `*:0/15`; "
                "try `systemd-analyze calendar`",
            )
        return [line.removeprefix("next ") for line in lines if line.startswith("next ")]
