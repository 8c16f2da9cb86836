"""A registry of plug-ins by entry point: lists them without importing, loads one when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from kubexm_spec.diagnostics import did_you_mean

T = TypeVar("T")

RAISES: Final = (Exception, SystemExit)
"""What the code of a third party may raise: it must harm only those who use it, and never end the program."""


class RegistryError(Exception):
    """A plug-in that is not there, is there twice, or cannot be loaded; says which package and what to do."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


def raised(error: BaseException) -> str:
    """An exception of a third party in a message; its own text may raise another one."""
    try:
        said = str(error)
    except RAISES as other:
        said = f"(its text cannot be shown: {type(other).__name__})"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class PluginInfo(Struct, frozen=True):
    """What is known of a plug-in before it is loaded."""

    name: str
    value: str
    distribution: str
    version: str


def installed(group: str) -> EntryPoints:
    """The entry points of a group."""
    found: EntryPoints = _scan(tuple(sys.path)).select(group=group)
    return found


@cache
def _scan(path: tuple[str, ...]) -> Any:
    """All entry points on a path, of every group: finding one reads all files anyway. Its type depends on Python."""
    return entry_points()


class Registry(Generic[T]):
    """The plug-ins of one entry-point group."""

    def __init__(self, group: str, noun: str, elsewhere: Mapping[str, str] | None = None) -> None:
        self.group = group
        self.noun = noun
        self.elsewhere = elsewhere or {}
        """Names of other tools, and what they are called here."""
        self._loaded: dict[str, T] = {}
        self._known: dict[str, PluginInfo] = {}

    @cached_property
    def _entries(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in installed(self.group):
            found.setdefault(entry.name, []).append(entry)
        return {name: _distinct(claims) for name, claims in sorted(found.items())}

    def names(self) -> list[str]:
        """All names, sorted."""
        return list(self._entries)

    def infos(self) -> list[PluginInfo]:
        """Every claim of every name, without loading anything."""
        return [self._info(entry) for claims in self._entries.values() for entry in claims]

    def info(self, name: str) -> PluginInfo:
        """Who claims a name; raises RegistryError as ``load`` does."""
        if name not in self._known:
            # Reading a package's version costs as much as compiling a step, and a spec can ask for each of its hosts.
            self._known[name] = self._info(self._entry(name))
        return self._known[name]

    def load(self, name: str) -> T:
        """The plug-in; raises RegistryError if it is unknown, claimed twice, or broken."""
        if name not in self._loaded:
            entry = self._entry(name)
            try:
                self._loaded[name] = entry.load()
            except RAISES as error:
                wrong = f"cannot be loaded from {entry.value}: {raised(error)}"
                raise self.broken(name, wrong) from error
        return self._loaded[name]

    def broken(self, name: str, wrong: str) -> RegistryError:
        """The error of a plug-in that its author has to repair; ``wrong`` goes on after its name and its package."""
        package = self.info(name).distribution
        return RegistryError(
            f"broken-{self.noun.replace(' ', '-')}",
            f'{self.noun} "{name}" of package {package} {wrong}',
            f"repair or remove the package {package}",
        )

    def _entry(self, name: str) -> EntryPoint:
        claims = self._entries.get(name)
        if not claims:
            raise RegistryError(
                f"unknown-{self.noun.replace(' ', '-')}",
                f'there is no {self.noun} "{name}"',
                self._called_here(name) or did_you_mean(name, self.names()) or f"installed: {', '.join(self.names())}",
            )
        if len(claims) > 1:
            owners = " and ".join(sorted(f"{_distribution(entry)} ({entry.value})" for entry in claims))
            raise RegistryError(
                f"ambiguous-{self.noun.replace(' ', '-')}",
                f'{self.noun} "{name}" is claimed by {owners}',
                "uninstall one of the packages",
            )
        return claims[0]

    def _called_here(self, name: str) -> str:
        ours, blank, more = self.elsewhere.get(name, "").partition(" ")
        return f'here it is "{ours}"{blank}{more}' if ours in self._entries else ""

    @staticmethod
    def _info(entry: EntryPoint) -> PluginInfo:
        version = entry.dist.version if entry.dist is not None else ""
        return PluginInfo(entry.name, entry.value, _distribution(entry), version)


def _distinct(claims: list[EntryPoint]) -> list[EntryPoint]:
    """The claims of a name, each once: a checkout installed in editable mode can be seen twice, and is one claim."""
    if len(claims) == 1:  # as nearly always; who claims it would have to be read from the package's files
        return claims
    return list({(_distribution(entry), entry.value): entry for entry in claims}.values())


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown package"


_MODULES_OF_ANSIBLE: Final = {
    "apt": "package",
    "blockinfile": "block-in-file",
    "debug": "message",
    "dnf": "package",
    "get_url": "download",
    "ini_file": "set-value",
    "lineinfile": "line-in-file",
    "set_fact": "set",
    "shell": "command with `shell: ...`",
    "synchronize": "sync",
    "systemd": "service",
    "unarchive": "archive",
    "uri": "http",
    "wait_for": "wait",
    "yum": "package",
}


def step_registry() -> Registry[Any]:
    """Step types."""
    return Registry("kubexm.steps", "step type", _MODULES_OF_ANSIBLE)


def executor_registry() -> Registry[Any]:
    """Executors."""
    return Registry("kubexm.executors", "executor")


def connector_registry() -> Registry[Any]:
    """Connectors."""
    return Registry("kubexm.connectors", "connector")
