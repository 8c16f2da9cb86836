"""Questions to a person at the terminal, or to what is piped in instead: one at a time, never beyond a deadline."""

from __future__ import annotations

import contextlib
import io
import os
import selectors
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TextIO

from msgspec import Struct

from kubexm_exec.control import Cancel, Deadline, Semaphore, Waker
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut

_YES: Final = frozenset({"y", "yes", "true", "ok", "approve"})
_NO: Final = frozenset({"n", "no", "false", "deny", "reject"})


class InputLines:
    """Reads lines of an input without ever reading ahead of what was asked for by more than one piece.

    A terminal and a pipe are read by their descriptor, so that a deadline or a cancel ends the waiting; anything else
    (a StringIO) has its lines at once.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._buffer = b""
        self._ended = False
        try:
            self._fd: int | None = stream.fileno()
        except (OSError, io.UnsupportedOperation, AttributeError):
            self._fd = None

    @property
    def is_terminal(self) -> bool:
        """Whether a person sits there."""
        return self._fd is not None and os.isatty(self._fd)

    def read(self, deadline: Deadline, cancel: Cancel) -> str | None:
        """The next line without its end, or None when there is no more; raises CommandTimedOut or CommandCancelled."""
        if self._fd is None:
            line = self._stream.readline()
            return line.rstrip("\r\n") if line else None
        while b"\n" not in self._buffer and not self._ended:
            self._wait(self._fd, deadline, cancel)
            piece = os.read(self._fd, 4096)
            self._ended = not piece
            self._buffer += piece
        if not self._buffer:
            # The end of a terminal's input (Ctrl-D) is not the end of the terminal.
            self._ended = not self.is_terminal
            return None
        raw, _, self._buffer = self._buffer.partition(b"\n")
        return raw.decode("utf-8", "replace").rstrip("\r")

    @staticmethod
    def _wait(fd: int, deadline: Deadline, cancel: Cancel) -> None:
        with contextlib.closing(Waker()) as waker, selectors.DefaultSelector() as selector:
            remove = cancel.on_set(waker.wake)
            try:
                selector.register(waker.reader, selectors.EVENT_READ)
                try:
                    selector.register(fd, selectors.EVENT_READ)
                except PermissionError:
                    return  # a regular file: it can always be read
                while not cancel.is_set():
                    ready = selector.select(deadline.left())
                    if any(key.fd == fd for key, _ in ready):
                        return
                    if deadline.passed():
                        raise CommandTimedOut("nobody answered in time")
                raise CommandCancelled
            finally:
                remove()


class Question(Struct, eq=False):
    """One that is open."""

    node: str
    host: str
    over: Cancel
    """Set when there is an answer, or nobody waits for one any more."""
    answer: bool | None = None
    by: str = ""


class Asker:
    """Asks for yes or no, one question at a time; each may also be answered from elsewhere."""

    def __init__(
        self,
        lines: InputLines | None,
        say: Callable[[str], None],
        terminal: Callable[[], AbstractContextManager[None]] = nullcontext,
        *,
        patient: bool = False,
    ) -> None:
        """``say`` shows a text. ``terminal``: entered while a question is open, so that nobody else draws over it.

        ``patient``: without ``lines``, or after their end, an answer from elsewhere is always waited for.
        """
        self._lines = lines
        self._say = say
        self._terminal = terminal
        self._patient = patient
        self._turn = Semaphore(1)
        self._open: list[Question] = []

    def ask(
        self,
        node: str,
        host: str,
        who: str,
        question: str,
        *,
        default: bool | None,
        deadline: Deadline,
        cancel: Cancel,
        waits: bool = False,
        elsewhere: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> bool | None:
        """True or False; the default (which may be None) if nobody is there or nobody answers in time.

        ``waits``: without input, or after its end, an answer from ``elsewhere`` (a command) is waited for.
        ``opened`` is called when it can be answered.
        """
        waits = waits or self._patient
        if self._lines is None and not waits:
            return default
        asked = Question(node, host, Cancel())
        remove = cancel.on_set(asked.over.set)
        self._open.append(asked)
        try:
            opened()
            if self._lines is not None:
                try:
                    return self._in_turn(self._lines, who, question, default, deadline, asked.over)
                except EOFError:
                    self._say(f"\nThe input has ended{f'; waiting for: {elsewhere}' if waits else ''}.\n")
                    if not waits:
                        return default
            if not asked.over.wait(deadline.left()):
                return default
            raise CommandCancelled("it was cancelled")
        except CommandCancelled:
            if asked.answer is None:
                raise
            self._say(f"\n{who}: {'yes' if asked.answer else 'no'}, says {asked.by}\n")
            return asked.answer
        finally:
            self._open.remove(asked)
            remove()

    def answer(self, node: str, host: str, answer: bool, by: str) -> bool:
        """Answer the open questions of a node, if any; only the first answer counts, and none after a cancel."""
        asked = [each for each in list(self._open) if each.node == node and host in ("", each.host)]
        found = [each for each in asked if not each.over.is_set()]
        for each in found:
            each.answer, each.by = answer, by
            each.over.set()
        return bool(found)

    def _in_turn(
        self, lines: InputLines, who: str, question: str, default: bool | None, deadline: Deadline, cancel: Cancel
    ) -> bool | None:
        if not self._turn.take(deadline, cancel):
            return default  # another question was not answered in time
        try:
            with self._terminal():
                return self._asked(lines, who, question, default, deadline, cancel)
        finally:
            self._turn.give_back()

    def _asked(
        self, lines: InputLines, who: str, question: str, default: bool | None, deadline: Deadline, cancel: Cancel
    ) -> bool | None:
        choices = {True: "[Y/n]", False: "[y/N]", None: "[y/n]"}[default]
        while True:
            self._say(f"{who}: {question} {choices} ")
            try:
                answer = lines.read(deadline, cancel)
            except CommandTimedOut:
                self._say("\nNobody answered in time.\n")
                return default
            if answer is None:
                if not lines.is_terminal:
                    raise EOFError
                self._say("\nThe input has ended.\n")
                return default
            if not lines.is_terminal:
                self._say(f"{answer}\n")
            word = answer.strip().lower()
            if word in _YES or word in _NO:
                return word in _YES
            if not word and default is not None:
                return default
            self._say("Please answer yes or no.\n")
