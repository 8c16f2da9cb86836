"""What every package manager can be asked, and what they all have in common: locks, live output, what changed."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, Final

from msgspec.structs import replace

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.control import Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import StepFailed
from kubexm_exec.runner.commands import execute
from kubexm_exec.runner.packages.data import Ask, Change, Lookup, Move, Outcome, Survey, pair
from kubexm_exec.runner.packages.trouble import explain, is_locked
from kubexm_exec.runner.session import Session

# Everything that is installed before and after, as lines; printed is what is only in one of the two.
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
    """One package manager. All methods are questions and commands on a host; nothing is remembered."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    """How the names of its package files end."""
    locked: ClassVar[re.Pattern[str]]
    """What it says when another one is at work."""

    def __init__(self, session: Session, *, wait: float = 0.0) -> None:
        self.session = session
        self.wait = wait
        """Seconds to wait for another package manager that is at work."""

    @abstractmethod
    def compare(self, one: str, two: str) -> int:
        """Negative if the first version is older than the second, 0 if they are equal, else positive."""

    @abstractmethod
    def survey(self, asks: Sequence[Ask], *, index: Lookup, holds: bool) -> Survey:
        """What the host knows of packages; ``holds`` may be left out where asking for them takes time."""

    @abstractmethod
    def refresh(self) -> None:
        """Fetch the index anew."""

    @abstractmethod
    def simulate(self, change: Change) -> tuple[Move, ...]:
        """All that a transaction would do, also to packages that were not named."""

    @abstractmethod
    def apply(self, change: Change) -> Outcome:
        """Do it."""

    @abstractmethod
    def alike(self, name: str) -> list[str]:
        """Names in the index that begin as this one does."""

    def ask(self, command: Command, *, expect: Collection[int] = (0,)) -> CommandResult:
        """A question that only the step is interested in."""
        result = self.patiently(command, live=False)
        if result.exit_code not in expect:
            raise self.failure("ask for packages", result)
        return result

    def patiently(self, command: Command, *, live: bool = True) -> CommandResult:
        """Run a command; while another package manager is at work, wait for it, up to the time for that.

        What people see is standard error: standard output is for what the step asks.
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
            # Cancelled or out of time: the next command says so in the connector's own words.
            session.cancel.wait(min(_BETWEEN_LOOKS, until.left() or 0.0, self._left()))

    def failure(self, what: str, result: CommandResult) -> StepFailed:
        """The failure that a command's answer is."""
        return explain(self.session, self.name, what, result, locked=self.locked, waited=self.wait)

    def outcome(self, what: str, result: CommandResult, parse: Callable[[str], tuple[str, str] | None]) -> Outcome:
        """What a transaction's script says that it did."""
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
        return "another package manager is at work"

    def _tell(self, text: str) -> None:
        if self.session.on_output is not None and not self.session.sensitive:
            self.session.on_output("stdout", text.encode("utf-8", "replace"))


def _errors_only(listener: OnOutput) -> OnOutput:
    def listen(stream: str, data: bytes) -> None:
        if stream == "stderr":
            listener("stdout", data)

    return listen


def index_age(now: str, stamps: Sequence[str]) -> float | None:
    """Seconds since the newest of the stamps (seconds since 1970, as the host says); None if there is none."""
    times = [int(stamp) for stamp in stamps if stamp.isdecimal()]
    if not times or not now.isdecimal():
        return None
    return float(max(0, int(now) - max(times)))
