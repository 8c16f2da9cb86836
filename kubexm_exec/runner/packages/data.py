"""What is known of packages and what is to be done with them: plain data that all package managers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, field

from kubexm_exec.model.errors import StepFailed

State = Literal["present", "absent", "latest"]
Lookup = Literal["none", "missing", "all"]
"""Of which packages the index is asked: of none, of those that are not installed, of all."""


class Ask(Struct, frozen=True):
    """One package that somebody wants: by name, perhaps in a version, or as a file on the host."""

    name: str = ""
    version: str = ""
    """A version or a pattern; see ``versions.matches``. Empty: any."""
    file: str = ""
    """Path of a package file on the host, instead of a name."""

    def __str__(self) -> str:
        return self.file or (f"{self.name}={self.version}" if self.version else self.name)


class Found(Struct, frozen=True, kw_only=True):
    """What the host knows of one package that was asked for."""

    name: str
    """Of a file: the name in it; empty if there is no such file."""
    installed: str = ""
    """Its version; empty if it is not installed."""
    provider: str = ""
    """The installed package that stands in for this name."""
    leftover: bool = False
    """Removed, but its configuration is still there."""
    broken: bool = False
    """Only half installed: something failed on the way."""
    held: bool = False
    candidate: str = ""
    """What the manager would install by itself; empty if the index does not have it."""
    versions: tuple[str, ...] = ()
    """All that the index has."""
    virtual: bool = False
    """Not a package itself, but the index has packages that provide it."""
    file_version: str = ""


class Survey(Struct, frozen=True):
    """What the host knows of all packages that were asked for."""

    found: tuple[Found, ...]
    age: float | None = None
    """Seconds since the index was refreshed; None if there is none."""


class Goal(Struct, frozen=True):
    """How the packages should be."""

    state: State = "present"
    hold: bool | None = None
    """None: holds are left as they are."""
    purge: bool = False
    downgrade: bool = False
    """Whether an older version than the installed one may be put in its place."""
    recommends: bool = False


class Target(Struct, frozen=True):
    """A package to be installed in a version; without one the manager chooses."""

    name: str
    version: str = ""
    file: str = ""


class Change(Struct, frozen=True):
    """One transaction."""

    install: tuple[Target, ...] = ()
    remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    """Held afterwards."""
    unhold: tuple[str, ...] = ()
    """No longer held, from before the transaction on."""
    auto: tuple[str, ...] = ()
    """Marked afterwards as installed only because others need them."""
    purge: bool = False
    downgrade: bool = False
    recommends: bool = False

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.install or self.remove or self.hold or self.unhold)


class Move(Struct, frozen=True):
    """One package from one version to another; empty stands for not installed."""

    name: str
    before: str = ""
    after: str = ""
    auto: bool = False
    """Before, it was there only because others need it."""

    def __str__(self) -> str:
        if not self.before:
            # Which version it is, or even which package, may be the manager's choice.
            return f"{self.name} {self.after} installed" if self.after else f"{self.name} installed"
        if not self.after:
            return f"{self.name} {self.before} removed"
        return f"{self.name} {self.before} -> {self.after}"

    def note(self) -> str:
        """The same without the name."""
        return str(self).removeprefix(f"{self.name} ")


class Outcome(Struct, frozen=True):
    """What a transaction did, all of it, also if it failed on the way."""

    moves: tuple[Move, ...]
    failure: StepFailed | None = None


class Missing(Struct, frozen=True):
    """What the index does not have."""

    ask: Ask
    versions: tuple[str, ...] = ()
    """What it has of that name."""


class Plan(Struct, frozen=True):
    """What lies between the packages as they are and as they should be."""

    change: Change
    moves: tuple[Move, ...] = ()
    """Of the packages that were named; others may have to follow."""
    missing: tuple[Missing, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """The versions that are installed now, by name."""
    indexed: bool = False
    """Whether it depends on what is in the index."""

    @property
    def done(self) -> bool:
        """Whether all is as it should be."""
        return not self.change.any and not self.missing


def pair(gone: Sequence[tuple[str, str]], come: Sequence[tuple[str, str]]) -> tuple[Move, ...]:
    """Packages (name, version) that went and came as moves: one that went and came has changed."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for name, version in gone:
        before.setdefault(name, []).append(version)
    for name, version in come:
        after.setdefault(name, []).append(version)
    moves: list[Move] = []
    for name in sorted(before.keys() | after.keys()):
        olds, news = before.get(name, []), after.get(name, [])
        if len(olds) == len(news) == 1:
            moves.append(Move(name, olds[0], news[0]))
        else:
            # Several versions side by side, as kernels are.
            moves.extend(Move(name, old, "") for old in olds)
            moves.extend(Move(name, "", new) for new in news)
    return tuple(moves)


def describe(change: Change) -> str:
    """A transaction in few words, for a failure."""
    if change.install:
        return "install " + ", ".join(target.name or target.file for target in change.install)
    if change.remove:
        return "remove " + ", ".join(change.remove)
    return "hold " + ", ".join(change.hold) if change.hold else "release " + ", ".join(change.unhold)
