"""Packages on a host by its package manager: what is there, what would change, the change, and its undo."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.packages import repositories
from kubexm_exec.runner.packages.apk import Apk
from kubexm_exec.runner.packages.apt import Apt
from kubexm_exec.runner.packages.base import Manager
from kubexm_exec.runner.packages.data import (
    Ask,
    Change,
    Found,
    Goal,
    Missing,
    Move,
    Outcome,
    Plan,
    State,
    Survey,
    Target,
)
from kubexm_exec.runner.packages.dnf import Dnf
from kubexm_exec.runner.packages.planning import first_lookup, make_plan, wants_all
from kubexm_exec.runner.packages.zypper import Zypper
from kubexm_exec.runner.session import Session
from kubexm_spec.diagnostics import suggest

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


class Packages:
    """The packages of one host."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def manager_name(self, wanted: ManagerName = "auto") -> str:
        """The package manager that is used: the one that is wanted, or the host's own."""
        name = str(self._session.facts().get("packageManager", "")) if wanted == "auto" else wanted
        if name not in _MANAGERS:
            raise StepFailed(
                f"the host has no package manager that kubexm knows (its facts say {name or 'nothing'})",
                hint=f"kubexm knows {', '.join(_MANAGERS)}; name the host's with `manager`",
            )
        return "dnf" if name == "yum" else name

    def manager(self, wanted: ManagerName = "auto", *, wait: float = 0.0) -> Manager:
        """The package manager itself; ``wait`` is how long it waits for another one that is at work."""
        return _MANAGERS[self.manager_name(wanted)](self._session, wait=wait)

    def plan(self, manager: Manager, asks: Sequence[Ask], goal: Goal) -> tuple[Plan, Survey]:
        """What is to be done: in one round trip, or two if what is installed has another version than it should."""
        holds = goal.hold is not None
        survey = manager.survey(asks, index=first_lookup(goal), holds=holds)
        if wants_all(asks, survey, goal):
            survey = manager.survey(asks, index="all", holds=holds)
        return make_plan(asks, survey, goal, manager.compare), survey

    def installed(self, manager: Manager, names: Sequence[str], *, holds: bool) -> dict[str, Found]:
        """What is installed of some packages, by their names; no index is asked."""
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
        """Put packages back to what they were before the moves; what cannot be had any more is a failure.

        ``held`` were held before and ``unheld`` were not. With ``purge`` what goes leaves no configuration. What is
        as it was is left alone. Nothing that others installed meanwhile is removed: if it needs what is to go, that is
        a failure, and nothing is done.
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
                f"cannot put back {', '.join(gone)}: no repository of the host has it any more",
                hint="the rest is as it was before; install what is missing by hand if it is needed",
            )

    def unknown(self, manager: Manager, missing: Sequence[Missing], survey: Survey) -> StepFailed:
        """The failure that a package is not to be had, with what was probably meant."""
        first = missing[0]
        if first.ask.file:
            return StepFailed(
                f"install {first.ask.file}: there is no such file on the host",
                hint="bring it there first with a copy, sync or download step",
            )
        if first.versions:
            some = ", ".join(first.versions[:5]) + (", ..." if len(first.versions) > 5 else "")
            return StepFailed(
                f"package {first.ask.name}: no repository of the host has the version {first.ask.version}",
                hint=f"it has {some}; is a repository missing, or the package held?",
            )
        names = ", ".join(each.ask.name for each in missing)
        if survey.age is None:
            return StepFailed(
                f"package {names}: the host has no index of packages yet",
                hint="add a repository first with a repository step (and with `update: never` no index is fetched)",
            )
        close = suggest(first.ask.name, manager.alike(first.ask.name)) if len(missing) == 1 else None
        hint = "look at the name, or add its repository first with a repository step"
        return StepFailed(
            f"no repository of the host has the package{'s' if len(missing) > 1 else ''} {names}",
            hint=f'did you mean "{close}"? If not, {hint}' if close else hint,
        )

    def refresh_repository(self, manager: Manager, name: str, path: str, *, trusted: bool = False) -> None:
        """Fetch the index of one repository, which is written down in a file."""
        repositories.refresh(manager, name, path, trusted=trusted)

    def trusted_keys(self) -> set[str]:
        """The ids (eight digits) of the keys that rpm trusts."""
        return repositories.trusted_keys(self._session)

    def trust_key(self, key: bytes) -> None:
        """Let rpm trust a key (armoured)."""
        repositories.trust_key(self._session, key)

    def forget_keys(self, ids: Collection[str]) -> None:
        """Let rpm no longer trust these keys."""
        repositories.forget_keys(self._session, ids)

    def same_keys(self, path: str) -> list[str]:
        """Other key files of rpm with the same content."""
        return repositories.same_keys(self._session, path)

    def _refuse_more(self, manager: Manager, change: Change, ours: set[str]) -> None:
        """An undo that would remove what is not its own is refused."""
        simulated = manager.simulate(replace(change, hold=(), auto=()))
        others = sorted({move.name for move in simulated if not move.after} - ours)
        if others:
            raise StepFailed(
                f"cannot remove {', '.join(change.remove)}: {', '.join(others)} would go with it",
                hint="it was installed since and needs what is to be removed; remove it first, or leave all as it is",
            )
