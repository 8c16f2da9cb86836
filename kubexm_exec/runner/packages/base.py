"""What all package managers have in common: their interface, locks, live output, and the list of changes."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Final

from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.control import Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.packages.data import Ask, Change, Found, Lookup, Move, Outcome, Survey, Target, pair
from kubexm_exec.runner.packages.trouble import explain, is_locked
from kubexm_exec.runner.quote import script
from kubexm_exec.runner.session import Session

# Compares two lists of all installed packages, and prints the lines that are in one of them only.
DIFFERENCE: Final = r"""
difference() {
  { printf '%s\n' "$1" | sed 's/^/-/'; printf '%s\n' "$2" | sed 's/^/+/'; } | awk '
    { mark = substr($0, 1, 1); line = substr($0, 2); if (mark == "-") old[line] = 1; else new[line] = 1 }
    END { for (line in old) if (!(line in new)) print "-" line; for (line in new) if (!(line in old)) print "+" line }'
}
"""
_BETWEEN_LOOKS: Final = 1.0
_OUTPUT: Final = 4 << 20


class Manager(ABC):
    """One package manager on a host; it has no state of its own."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    """The suffix of its package files."""
    locked: ClassVar[re.Pattern[str]]
    """Its messages when another process has the lock."""
    equals: ClassVar[str] = "="
    """What it expects between the name and the version of a package."""
    scripts: ClassVar[tuple[str, str, str]]
    """How to survey packages, to refresh the index, and to refresh that of one repository."""

    def __init__(self, session: Session, *, wait: float = 0.0) -> None:
        self.session = session
        self.wait = wait
        """Seconds to wait while another process has the lock."""

    @abstractmethod
    def compare(self, one: str, two: str) -> int:
        """Negative if the first version is older than the second, 0 if they are equal, else positive."""

    @abstractmethod
    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What the host knows of packages; without ``holds``, the holds may be missing where they take time."""

    @abstractmethod
    def simulate(self, change: Change) -> tuple[Move, ...]:
        """All moves of a transaction, also of packages that were not named."""

    @abstractmethod
    def apply(self, change: Change) -> Outcome:
        """Perform a transaction."""

    @abstractmethod
    def alike(self, name: str) -> list[str]:
        """Names in the index with the same first two letters."""

    def refresh(self) -> None:
        """Refresh the index; a repository that cannot be reached is a failure."""
        self._refresh("refresh the index", script(self.scripts[1]))

    def refresh_repository(self, name: str, path: str, *, trusted: bool = False) -> None:
        """Refresh the index of one repository, which is configured in a file.

        One that cannot be reached is a failure; so is a wrong signature, unless it is trusted without one.
        """
        command = script(self.scripts[2], name, path, "yes" if trusted else "no")
        self._refresh(f"fetch the index of {name}", command)

    def _refresh(self, what: str, command: Command) -> None:
        result = self.patiently(command)
        if result.exit_code != 0:
            raise self.failure(what, result)

    def asked(self, asks: Sequence[Ask], *options: str, expect: Collection[int] = (0,)) -> dict[str, list[str]]:
        """The answer to a survey: lines by the word before their first bar."""
        files = [ask.file for ask in asks if ask.file]
        names = [ask.name for ask in asks if not ask.file]
        command = script(self.scripts[0], *options, str(len(files)), *files, *names)
        said: dict[str, list[str]] = {}
        for line in self.ask(command, expect=expect).out.splitlines():
            key, bar, value = line.partition("|")
            if bar:
                said.setdefault(key, []).append(value)
        return said

    def specs(self, targets: Sequence[Target]) -> list[str]:
        """Packages to install, as the manager takes them."""
        return [
            each.file or (f"{each.name}{self.equals}{each.version}" if each.version else each.name) for each in targets
        ]

    def ask(self, command: Command, *, expect: Collection[int] = (0,)) -> CommandResult:
        """Run a command whose output only the step is interested in."""
        result = self.patiently(command, live=False)
        if result.exit_code not in expect:
            raise self.failure("ask for packages", result)
        return result

    def patiently(self, command: Command, *, live: bool = True) -> CommandResult:
        """Run a command; while another process has the lock, wait up to ``wait`` seconds for it.

        People see its standard error: standard output is for the step.
        """
        session = self.session
        if live and session.on_output is not None:
            session = replace(session, on_output=_errors_only(session.on_output))
        until: Deadline | None = None
        while True:
            result = execute(session, dataclasses.replace(command, max_output=_OUTPUT), check=False, live=live)
            if result.exit_code == 0 or not is_locked(self.locked, result.err + result.out):
                return result
            if until is None:
                until = Deadline.after(self.wait)
                self._tell(f"waiting up to {self.wait:g}s: {self._lock_line(result)}\n")
            if until.passed():
                return result
            # If the action is cancelled or out of time, the next command raises.
            session.cancel.wait(min(_BETWEEN_LOOKS, until.left() or 0.0, self._left()))

    def failure(self, what: str, result: CommandResult) -> StepFailed:
        """The failure of a command."""
        return explain(self.session, self.name, what, result, locked=self.locked, waited=self.wait)

    def outcome(self, what: str, result: CommandResult, parse: Callable[[str], tuple[str, str] | None]) -> Outcome:
        """What a transaction has done, as its script says."""
        moves = self.moves(result.out, parse)
        return Outcome(moves, None if result.exit_code == 0 else self.failure(what, result))

    def moves(self, text: str, parse: Callable[[str], tuple[str, str] | None]) -> tuple[Move, ...]:
        """The lines of ``difference`` as moves; ``parse`` gives name and version of a line, or None for neither."""
        sides: dict[str, list[tuple[str, str]]] = {"-": [], "+": []}
        for line in text.splitlines():
            if line[:1] in sides and (found := parse(line[1:])):
                sides[line[0]].append(found)
        return pair(sides["-"], sides["+"])

    def _left(self) -> float:
        left = self.session.deadline.left()
        return _BETWEEN_LOOKS if left is None else left

    def _lock_line(self, result: CommandResult) -> str:
        for line in (result.err + "\n" + result.out).splitlines():
            if self.locked.search(line):
                return line.strip()
        return "another process has the lock"

    def _tell(self, text: str) -> None:
        if self.session.on_output is not None and not self.session.sensitive:
            self.session.on_output("stdout", text.encode("utf-8", "replace"))


def _errors_only(listener: OnOutput) -> OnOutput:
    def listen(stream: str, data: bytes) -> None:
        if stream == "stderr":
            listener("stdout", data)

    return listen


def surveyed(found: Sequence[Found], said: Mapping[str, Sequence[str]]) -> Survey:
    """What was found, with the age of the index: seconds from its newest stamp to the time of the host."""
    times = [int(stamp) for stamp in said.get("stamp", ()) if stamp.isdecimal()]
    now = next(iter(said.get("now", ())), "")
    return Survey(tuple(found), float(max(0, int(now) - max(times))) if times and now.isdecimal() else None)
