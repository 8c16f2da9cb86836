"""The way out to a stream: whole lines in one write each, from any thread, whatever the stream cannot take."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from kubexm_exec.model.result import GraphExecutionResult


class LineWriter:
    """Writes whole lines to a stream, each call in one piece.

    A reader that has gone (``kubexm-run ... | head``) must not end a run that changes hosts: from then on nothing is
    written. Characters that the stream's encoding does not have are written as escapes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.gone = False
        """True once nobody reads any more."""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write a text that ends with a line end; gives its length, as files do."""
        if not text or self.gone:
            return len(text)
        with self._lock:
            try:
                self._write(text)
            except (OSError, ValueError):  # nobody reads, the disk is full, the stream was closed
                self.gone = True
                self._let_go()
        return len(text)

    def flush(self) -> None:
        """Every write is flushed already."""

    def _write(self, text: str) -> None:
        if not text.isascii() and not can_encode(self.stream, text):
            encoding = _encoding(self.stream)
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        self.stream.write(text)
        self.stream.flush()

    def _let_go(self) -> None:
        """What is still in the stream's buffer would raise again when the interpreter ends; give it somewhere to go."""
        try:
            descriptor = self.stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
        except (OSError, ValueError):  # not a file, or closed: there is nothing to flush either
            return
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


class LineConsole:
    """A console that only adds lines, and so never has to give a terminal back."""

    draws = False

    def __init__(self, stream: TextIO) -> None:
        self.output = LineWriter(stream)
        """Others (log lines) may write whole lines to it."""

    def suspended(self) -> AbstractContextManager[None]:
        """Nothing is held back: lines of events may come between."""
        return nullcontext()

    def close(self, result: GraphExecutionResult | None) -> None:
        """Every line is written already."""

    def abandon(self) -> None:
        """There is nothing to give back."""


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def can_encode(stream: TextIO, text: str) -> bool:
    """Whether the stream has characters for this text."""
    try:
        text.encode(_encoding(stream))
    except (UnicodeEncodeError, LookupError):
        return False
    return True
