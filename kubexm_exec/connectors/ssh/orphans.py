"""Commands that may still run on a host after a lost connection or a killed run: they are ended first."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from kubexm_exec.connectors.base import User
from kubexm_exec.connectors.ssh.scripts import CLEAR_LEFT, END_LEFT
from kubexm_exec.connectors.ssh.shell import Ending, Exchange, Job
from kubexm_exec.control import Cancel, Deadline, Semaphore
from kubexm_exec.model.errors import CommandTimedOut, ConnectorError, OutcomeUnknown

_LOST: Final = "a command of an earlier connection, which was lost, may still run there"
_BROKE_OFF: Final = "a command of an earlier session of the run, which was killed, may still run there"

_PROCESS: Final = re.compile(r"\b\d+:\d+\b")
_TIME: Final = 30.0
"""Seconds to end one; on a busy host, a few of them are for the search of its processes."""


class Way(Struct, frozen=True):
    """How to work as a user of the host."""

    run: Callable[[Job, Deadline, Cancel], tuple[Exchange, Ending]]
    """Runs one of our scripts."""
    sign: str
    """What follows the mark in the words of that user's shells."""


class _Left(Struct, eq=False):
    """A command, or all commands of one user in an earlier session, that may still run."""

    user: User
    """Its user: others may not be allowed to end it."""
    word: str
    """A word in the command line of its shell; or the mark that such words begin with."""
    processes: set[str]
    """Its known processes, each as its number and its start time."""
    marked: bool = False

    @property
    def before(self) -> str:
        """Why it may still run."""
        return _BROKE_OFF if self.marked else _LOST

    def job(self, what: str, sign: str) -> Job:
        """The job that looks for it, or ends it. The word is a pattern there, so that the job does not find itself."""
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
        """Remember that earlier sessions, with these marks, may have left commands of users."""
        with self._lock:
            self._all.extend(_Left(user, mark, set(), marked=True) for mark, user in left)

    def end(self, way: Callable[[User], Way], deadline: Deadline, cancel: Cancel) -> None:
        """End them all, by one thread at a time; raises ConnectorError if one of them cannot be ended."""
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
    # First all are found, then they are ended: if that is interrupted, the rest must still be known.
    for what in ("look", "end"):
        try:
            exchange, ending = way.run(left.job(what, way.sign), deadline.earlier(_TIME), cancel)
        except CommandTimedOut:
            if deadline.passed():
                raise
            raise ConnectorError(f"{left.before}, and the host is too slow to tell") from None
        except OutcomeUnknown as error:
            # The next command has not begun.
            raise ConnectorError(
                f"{left.before}, and the connection was lost again during the search for it"
            ) from error
        if ending.exit_code == 0:
            if left.marked:
                way.run(Job(("/bin/sh", "-c", CLEAR_LEFT, "kx", left.word)), deadline.earlier(_TIME), cancel)
            return
        said = (exchange.stdout.kept() + exchange.stderr.kept()).decode("utf-8", "replace")
        left.processes.update(_PROCESS.findall(said))
    why = " ".join(re.sub(_PROCESS, lambda found: found[0].partition(":")[0], said).split())
    raise ConnectorError(f"{left.before} and cannot be ended ({why}): nothing else is started; end it on the host")
