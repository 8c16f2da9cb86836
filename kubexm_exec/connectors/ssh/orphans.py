"""What may run on at a host after a lost connection or a killed run: it is ended before anything else is done there."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from kubexm_exec.connectors.base import User
from kubexm_exec.connectors.ssh.scripts import CLEAR_LEFT, END_LEFT
from kubexm_exec.connectors.ssh.shell import Ending, Exchange, Job
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError, OutcomeUnknown

_LOST: Final = "a command that was at work when an earlier connection was lost may still run there"
_BROKE_OFF: Final = "a command that was at work when the run broke off before may still run there"

_PROCESS: Final = re.compile(r"\b\d+:\d+\b")
_TIME: Final = 30.0
"""Seconds for ending one; it takes a few of them to look through the processes of a busy host."""


class Run(Protocol):
    """Runs a script of ours on the host."""

    def __call__(self, job: Job, deadline: Deadline, cancel: Cancel) -> tuple[Exchange, Ending]:
        """What it said, and how it ended."""


class Way(Struct, frozen=True):
    """How to work as a user of the host."""

    run: Run
    sign: str
    """What follows the mark in the words of that user's shells."""


class _Left(Struct, eq=False):
    """A command, or all of an earlier session's of one user, of which nobody knows whether it still runs."""

    user: User
    """Whose it is: another one may not be allowed to end it."""
    word: str
    """In the command line of the shell that waits for it; or the mark that such words begin with."""
    processes: set[str]
    """Those that are known to belong to it, each as its number and the moment when it began."""
    marked: bool = False

    @property
    def before(self) -> str:
        """Why it may be there."""
        return _BROKE_OFF if self.marked else _LOST

    def job(self, what: str, sign: str) -> Job:
        """What looks for it, or ends it. The word stands in it as a pattern, so that it does not find itself."""
        word = f"{self.word}{sign}" if self.marked else self.word
        pattern = f"[{word[0]}]{word[1:]}"
        return Job(("/bin/sh", "-c", END_LEFT, "kx", pattern, " ".join(sorted(self.processes)), what))


class Leftovers:
    """The lost commands of one host; several threads may use it at once."""

    def __init__(self) -> None:
        self._all: list[_Left] = []
        self._lock = threading.Lock()
        self._turn = Semaphore(1)

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, user: User, exchange: Exchange) -> None:
        """Remember a command of a user whose channel was lost."""
        if exchange.word:
            with self._lock:
                self._all.append(_Left(user, exchange.word, set(exchange.process.split())))

    def expect(self, left: Sequence[tuple[str, User]]) -> None:
        """Remember that earlier sessions, whose words began with these marks, may have left something of users."""
        with self._lock:
            self._all.extend(_Left(user, mark, set(), marked=True) for mark, user in left)

    def end(self, way: Callable[[User], Way], deadline: Deadline, cancel: Cancel) -> None:
        """End them all; whoever comes meanwhile waits for that. ConnectorError if one of them cannot be ended."""
        if not self._turn.take(deadline, cancel):
            raise CommandTimedOut
        try:
            while self._all:
                _end(self._all[0], way(self._all[0].user), deadline, cancel)
                with self._lock:
                    del self._all[0]
        finally:
            self._turn.give_back()


def _end(left: _Left, way: Way, deadline: Deadline, cancel: Cancel) -> None:
    said = ""
    # What is there is known before any of it is ended: the rest has to be found also if that is cut off in the middle.
    for what in ("look", "end"):
        try:
            exchange, ending = way.run(left.job(what, way.sign), deadline.earlier(_TIME), cancel)
        except CommandTimedOut:
            if deadline.passed():
                raise
            raise ConnectorError(f"{left.before}, and the host is too slow to say") from None
        except OutcomeUnknown as error:
            # Nothing of what is to be done next has begun.
            raise ConnectorError(f"{left.before}, and the connection was lost again while it was looked for") from error
        if ending.exit_code == 0:
            if left.marked:
                way.run(Job(("/bin/sh", "-c", CLEAR_LEFT, "kx", left.word)), deadline.earlier(_TIME), cancel)
            return
        said = (exchange.stdout.kept() + exchange.stderr.kept()).decode("utf-8", "replace")
        left.processes.update(_PROCESS.findall(said))
    why = " ".join(re.sub(_PROCESS, lambda found: found[0].partition(":")[0], said).split())
    raise ConnectorError(f"{left.before} and cannot be ended ({why}): nothing else is begun; end it on the host")
