"""The state of packages and the changes to them: plain data that all package managers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, field

from kubexm_exec.model.errors import StepFailed

State = Literal["present", "absent", "latest"]
Lookup = Literal["none", "missing", "all"]
"""Which packages to look up in the index: none, those that are not installed, or all."""


class Ask(Struct, frozen=True):
    """A package that is asked for: by name, perhaps with a version, or as a file on the host."""

    name: str = ""
    version: str = ""
    """A version or a pattern; see ``versions.matches``. Empty: any."""
    file: str = ""
    """Path of a package file on the host, instead of a name."""

    def __str__(self) -> str:
        return self.file or (f"{self.name}={self.version}" if self.version else self.name)


class Found(Struct, frozen=True, kw_only=True):
    """The state of one package on a host."""

    name: str
    """Of a file: the name in it; empty if there is no such file."""
    installed: str = ""
    """Its version; empty if it is not installed."""
    provider: str = ""
    """The installed package that provides this name."""
    leftover: bool = False
    """Removed, but its configuration is still there."""
    broken: bool = False
    """Half installed: something failed on the way."""
    held: bool = False
    candidate: str = ""
    """The version that the manager would choose; empty if the index has none."""
    versions: tuple[str, ...] = ()
    """All versions in the index."""
    virtual: bool = False
    """Not a package, but a name that packages in the index provide."""
    file_version: str = ""


class Survey(Struct, frozen=True):
    """The state of all packages that were asked for."""

    found: tuple[Found, ...]
    age: float | None = None
    """Seconds since the index was refreshed; None if there is none."""


class Goal(Struct, frozen=True):
    """The desired state of packages."""

    state: State = "present"
    hold: bool | None = None
    """None: holds are left as they are."""
    purge: bool = False
    downgrade: bool = False
    """Whether an older version may replace the installed one."""
    recommends: bool = False


class Target(Struct, frozen=True):
    """A package to install; without a version the manager chooses."""

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
    """Released before the transaction."""
    auto: tuple[str, ...] = ()
    """Marked afterwards as installed automatically."""
    purge: bool = False
    downgrade: bool = False
    recommends: bool = False

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.install or self.remove or self.hold or self.unhold)


class Move(Struct, frozen=True):
    """The change of one package from one version to another; empty is not installed."""

    name: str
    before: str = ""
    after: str = ""
    auto: bool = False
    """Whether it was installed automatically before."""

    def __str__(self) -> str:
        if not self.before:
            # The version, or even the package, may be the choice of the manager.
            return f"{self.name} {self.after} installed" if self.after else f"{self.name} installed"
        if not self.after:
            return f"{self.name} {self.before} removed"
        return f"{self.name} {self.before} -> {self.after}"

    def note(self) -> str:
        """The text without the name."""
        return str(self).removeprefix(f"{self.name} ")


class Outcome(Struct, frozen=True):
    """All moves of a transaction, also if it failed on the way."""

    moves: tuple[Move, ...]
    failure: StepFailed | None = None


class Missing(Struct, frozen=True):
    """A package, or a version of it, that the index does not have."""

    ask: Ask
    versions: tuple[str, ...] = ()
    """The versions that the index has."""


class Plan(Struct, frozen=True):
    """The difference between the state of packages and the desired state."""

    change: Change
    moves: tuple[Move, ...] = ()
    """Of the packages that were named; others may follow."""
    missing: tuple[Missing, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """The installed versions, by name."""
    indexed: bool = False
    """Whether it depends on the index."""

    @property
    def done(self) -> bool:
        """Whether there is nothing to do."""
        return not self.change.any and not self.missing


def pair(gone: Sequence[tuple[str, str]], come: Sequence[tuple[str, str]]) -> tuple[Move, ...]:
    """Removed and added packages (name, version) as moves: a package in both has changed."""
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
            # Several versions side by side, as of kernels.
            moves.extend(Move(name, old, "") for old in olds)
            moves.extend(Move(name, "", new) for new in news)
    return tuple(moves)


def describe(change: Change) -> str:
    """A transaction for a message."""
    if change.install:
        return "install " + ", ".join(target.name or target.file for target in change.install)
    if change.remove:
        return "remove " + ", ".join(change.remove)
    return "hold " + ", ".join(change.hold) if change.hold else "release " + ", ".join(change.unhold)
