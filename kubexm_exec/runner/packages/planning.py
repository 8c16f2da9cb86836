"""Plans the changes to packages: pure, and the same for all package managers."""

from __future__ import annotations

from collections.abc import Sequence

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.packages.data import Ask, Change, Found, Goal, Lookup, Missing, Move, Plan, Survey, Target
from kubexm_exec.runner.packages.versions import Compare, matches, newest


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
    """Collects the changes, package by package."""

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
