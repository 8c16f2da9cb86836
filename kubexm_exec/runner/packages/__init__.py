"""Packages on a host, by its package manager: their state, plans, changes and undos, and repository keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import Operations
from kubexm_exec.runner.packages.apk import Apk
from kubexm_exec.runner.packages.apt import Apt
from kubexm_exec.runner.packages.base import Manager
from kubexm_exec.runner.packages.data import (
    Ask,
    Change,
    Found,
    Goal,
    Lookup,
    Missing,
    Move,
    Outcome,
    Plan,
    State,
    Survey,
    Target,
)
from kubexm_exec.runner.packages.dnf import Dnf
from kubexm_exec.runner.packages.versions import Compare, matches, newest
from kubexm_exec.runner.packages.zypper import Zypper
from kubexm_spec.diagnostics import suggest


def first_lookup(goal: Goal) -> Lookup:
    """Which packages to look up in the index at first."""
    if goal.state == "absent":
        return "none"
    return "all" if goal.state == "latest" else "missing"


def wants_all(asks: Sequence[Ask], survey: Survey, goal: Goal) -> bool:
    """Whether to look up installed packages too, because one has the wrong version."""
    pairs = zip(asks, survey.found, strict=True)
    return goal.state == "present" and any(
        ask.version and found.installed and not matches(ask.version, found.installed) for ask, found in pairs
    )


def make_plan(asks: Sequence[Ask], survey: Survey, goal: Goal, compare: Compare) -> Plan:
    """The plan for packages; a change that is not allowed is a StepFailed."""
    planner = _Planner(goal, compare)
    for ask, found in zip(asks, survey.found, strict=True):
        if goal.state == "absent":
            planner.absent(found)
        else:
            planner.present(ask, found)
    return planner.plan()


class _Planner:
    def __init__(self, goal: Goal, compare: Compare) -> None:
        self.goal = goal
        self.compare = compare
        self.install: list[Target] = []
        self.remove: list[str] = []
        self.hold: list[str] = []
        self.unhold: list[str] = []
        self.moves: list[Move] = []
        self.missing: list[Missing] = []
        self.versions: dict[str, str] = {}
        self.downgrades = False
        self.indexed = False

    def plan(self) -> Plan:
        change = Change(
            install=tuple(self.install),
            remove=tuple(self.remove),
            hold=tuple(self.hold),
            unhold=tuple(self.unhold),
            purge=self.goal.purge,
            downgrade=self.downgrades,
            recommends=self.goal.recommends,
        )
        return Plan(change, tuple(self.moves), tuple(self.missing), self.versions, self.indexed)

    def absent(self, found: Found) -> None:
        self.versions[found.name] = ""
        if (not found.installed and not found.broken) or found.provider:
            if found.leftover and self.goal.purge:
                self.remove.append(found.name)
                self.moves.append(Move(found.name, "configuration", ""))
            return
        self.versions[found.name] = found.installed
        if found.held:
            if self.goal.hold is None:
                raise _is_held(found, "removed")
            self.unhold.append(found.name)
        self.remove.append(found.name)
        self.moves.append(Move(found.name, found.installed or "half installed", ""))

    def present(self, ask: Ask, found: Found) -> None:
        if ask.file and not found.name:
            self.missing.append(Missing(ask))
            return
        self.versions[found.name] = found.installed
        target = self._target(ask, found)
        if target is None:
            self._holds(found, changes=False)
            return
        version = target.version or found.candidate
        if found.installed and not found.provider and self.compare(version, found.installed) < 0:
            if not self.goal.downgrade:
                raise StepFailed(
                    f"package {found.name}: {version} is older than {found.installed}, which is installed",
                    hint="set `allowDowngrade: true` if you want the older one",
                )
            self.downgrades = True
        self._holds(found, changes=True)
        self.install.append(target)
        self.moves.append(Move(found.name, "" if found.provider else found.installed, version))

    def _target(self, ask: Ask, found: Found) -> Target | None:
        """What to install; None if nothing, or if the index does not have it (which is then in ``missing``)."""
        if ask.file:
            same = found.installed == found.file_version and not found.provider
            return None if same else Target(found.name, found.file_version, ask.file)
        if found.installed and self.goal.state == "present" and (not ask.version or self._right(ask, found)):
            return None
        self.indexed = True
        if ask.version:
            version = newest((each for each in found.versions if matches(ask.version, each)), self.compare)
        else:
            version = found.candidate
        if not version:
            # The newest is wanted, the index has none, and the installed version is right.
            if found.installed and (not ask.version or self._right(ask, found)):
                return None
            if found.virtual and not ask.version:
                return Target(found.name)
            self.missing.append(Missing(ask, found.versions))
            return None
        if found.installed and not found.provider:
            order = self.compare(version, found.installed)
            # The index has only older versions, and the installed one is right.
            if order == 0 or (order < 0 and (not ask.version or self._right(ask, found))):
                return None
        elif found.provider and not ask.version:
            return None
        return Target(found.name, version)

    def _right(self, ask: Ask, found: Found) -> bool:
        return not found.provider and matches(ask.version, found.installed)

    def _holds(self, found: Found, *, changes: bool) -> None:
        """Plan holds and releases. The hold of somebody else is respected."""
        name = found.provider or found.name
        if found.held and changes:
            if self.goal.hold is None:
                raise _is_held(found, "changed")
            self.unhold.append(name)
        elif found.held and self.goal.hold is False:
            self.unhold.append(name)
        if self.goal.hold and (changes or not found.held):
            self.hold.append(name)


def _is_held(found: Found, what: str) -> StepFailed:
    where = f"held at {found.installed}" if found.installed else "held as absent"
    return StepFailed(
        f"package {found.name}: it is {where} and would have to be {what}",
        hint="somebody held it on purpose; set `hold: true` or `hold: false` to let this step decide about the hold",
    )


__all__ = [
    "Ask",
    "Change",
    "Found",
    "Goal",
    "ManagerName",
    "Missing",
    "Move",
    "Outcome",
    "Packages",
    "Plan",
    "State",
    "Survey",
    "Target",
]

ManagerName = Literal["auto", "apt", "dnf", "yum", "zypper", "apk"]
_MANAGERS: Final[dict[str, type[Manager]]] = {"apt": Apt, "dnf": Dnf, "yum": Dnf, "zypper": Zypper, "apk": Apk}
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
_SHARED: Final = r"""
for f in /etc/pki/rpm-gpg/*; do
  if [ "$f" != "$1" ] && [ -f "$f" ] && cmp -s "$f" "$1"; then echo "$f"; fi
done
exit 0
"""


class Packages(Operations):
    """The packages of one host."""

    def manager_name(self, wanted: ManagerName = "auto") -> str:
        """The name of the package manager to use: the wanted one, or that of the host."""
        name = str(self._session.facts().get("packageManager", "")) if wanted == "auto" else wanted
        if name not in _MANAGERS:
            raise StepFailed(
                f"the host has no package manager that kubexm supports (its facts say {name or 'nothing'})",
                hint=f"kubexm supports {', '.join(_MANAGERS)}; choose one with `manager`",
            )
        return "dnf" if name == "yum" else name

    def manager(self, wanted: ManagerName = "auto", *, wait: float = 0.0) -> Manager:
        """The package manager to use; ``wait`` is how long it waits for the lock, in seconds."""
        return _MANAGERS[self.manager_name(wanted)](self._session, wait=wait)

    def plan(self, manager: Manager, asks: Sequence[Ask], goal: Goal) -> tuple[Plan, Survey]:
        """What to do: in one round trip, or in two if an installed package has the wrong version."""
        holds = goal.hold is not None
        survey = manager.survey(asks, index=first_lookup(goal), holds=holds)
        if wants_all(asks, survey, goal):
            survey = manager.survey(asks, index="all", holds=holds)
        return make_plan(asks, survey, goal, manager.compare), survey

    def installed(self, manager: Manager, names: Sequence[str], *, holds: bool) -> dict[str, Found]:
        """The state of packages by name, without the index."""
        survey = manager.survey([Ask(name) for name in names], index="none", holds=holds) if names else Survey(())
        return {found.name: found for found in survey.found}

    def revert(
        self,
        manager: Manager,
        moves: Sequence[Move],
        *,
        held: Sequence[str] = (),
        unheld: Sequence[str] = (),
        purge: bool = False,
    ) -> None:
        """Restore packages to their versions before the moves; a version that is no longer available is a failure.

        ``held`` were held before and ``unheld`` were not. With ``purge`` the configuration of removed packages goes
        too. Packages that others installed meanwhile are never removed: if one needs what is to be removed, that is a
        failure, and nothing is done.
        """
        asks = [Ask(name) for name in dict.fromkeys([*(move.name for move in moves), *held, *unheld])]
        if not asks:
            return
        survey = manager.survey(asks, index="all", holds=bool(held or unheld))
        found = {each.name: each for each in survey.found}
        install: list[Target] = []
        remove: list[str] = []
        gone: list[str] = []
        for move in moves:
            now = found[move.name]
            if not move.before:
                if (now.installed or now.broken) and not now.provider:
                    remove.append(move.name)
            elif now.installed != move.before or now.provider:
                if move.before in now.versions:
                    install.append(Target(move.name, move.before))
                else:
                    gone.append(f"{move.name} {move.before}")
        touched = {*remove, *(target.name for target in install)}
        change = Change(
            install=tuple(install),
            remove=tuple(remove),
            unhold=tuple(name for name in found if found[name].held and (name in touched or name in unheld)),
            hold=tuple(name for name in held if name in touched or not found[name].held),
            auto=tuple(move.name for move in moves if move.auto and move.name in touched),
            purge=purge,
            downgrade=True,
        )
        if change.any:
            self._refuse_more(manager, change, {move.name for move in moves})
            outcome = manager.apply(change)
            if outcome.failure is not None:
                raise outcome.failure
        if gone:
            raise StepFailed(
                f"cannot restore {', '.join(gone)}: no repository of the host has it any more",
                hint="all else was restored; install the missing version by hand if it is needed",
            )

    def unknown(self, manager: Manager, missing: Sequence[Missing], survey: Survey) -> StepFailed:
        """The failure of a package that is not available, with a suggestion."""
        first = missing[0]
        if first.ask.file:
            return StepFailed(
                f"install {first.ask.file}: there is no such file on the host",
                hint="bring it there first, with a copy, sync or download step",
            )
        if first.versions:
            some = ", ".join(first.versions[:5]) + (", ..." if len(first.versions) > 5 else "")
            return StepFailed(
                f"package {first.ask.name}: no repository of the host has version {first.ask.version}",
                hint=f"available are {some}; is a repository missing, or the package held?",
            )
        names = ", ".join(each.ask.name for each in missing)
        if survey.age is None:
            return StepFailed(
                f"package {names}: the host has no package index yet",
                hint="add a repository first with a repository step (with `update: never` no index is fetched)",
            )
        close = suggest(first.ask.name, manager.alike(first.ask.name)) if len(missing) == 1 else None
        hint = "check the name, or add its repository first with a repository step"
        return StepFailed(
            f"no repository of the host has the package{'s' if len(missing) > 1 else ''} {names}",
            hint=f'did you mean "{close}"? If not, {hint}' if close else hint,
        )

    def refresh_repository(self, manager: Manager, name: str, path: str, *, trusted: bool = False) -> None:
        """Refresh the index of one repository, which is configured in a file."""
        manager.refresh_repository(name, path, trusted=trusted)

    def trusted_keys(self) -> set[str]:
        """The ids (eight digits) of the keys that rpm trusts."""
        lines = self._ask("rpm -q gpg-pubkey --qf '%{VERSION}\\n' 2>/dev/null").out.splitlines()
        return {line.strip() for line in lines}

    def trust_key(self, key: bytes) -> None:
        """Have rpm trust a key (armoured)."""
        result = self._ask(_IMPORT, stdin=key)
        if result.exit_code != 0:
            raise StepFailed(
                "give rpm the key of the repository: rpm rejects it",
                exit_code=result.exit_code,
                stderr=result.err,
                hint="this version of rpm may not support such a key: very old and very new types are rejected",
            )

    def forget_keys(self, ids: Collection[str]) -> None:
        """Have rpm trust these keys no longer."""
        if ids:
            self._do("have rpm forget keys", _FORGET, *sorted(ids))

    def same_keys(self, path: str) -> list[str]:
        """Other key files of rpm with the same content: the key is theirs too."""
        return self._ask(_SHARED, path).out.splitlines()

    def _refuse_more(self, manager: Manager, change: Change, ours: set[str]) -> None:
        """An undo that would remove what is not its own is refused."""
        simulated = manager.simulate(replace(change, hold=(), auto=()))
        others = sorted({move.name for move in simulated if not move.after} - ours)
        if others:
            raise StepFailed(
                f"cannot remove {', '.join(change.remove)}: {', '.join(others)} would go with it",
                hint="it was installed since and needs what is to be removed; remove it first, or leave all as it is",
            )
