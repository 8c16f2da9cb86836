"""Turns the output of commands into events of whole lines, masked and rate-limited."""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from kubexm_exec.secrets import Redactor, StreamMask

INTERVAL: Final = 0.05
"""Seconds between two events of one stream."""
LARGE: Final = 8 << 10
"""So much text is sent at once, even without the end of its line."""
TAIL: Final = 64 << 10
"""Characters kept of each stream for the record."""


Later: TypeAlias = Callable[[float, Callable[[], None]], None]
"""Has another thread call something after so many seconds."""


class OutputLines:
    """The output of one action; connectors call it with pieces of bytes."""

    def __init__(self, emit: Callable[[str, str], None], redactor: Redactor, later: Later | None) -> None:
        self._emit = emit
        self._later = later
        self._redactor = redactor
        self._streams: dict[str, _Stream] = {}
        self._lock = threading.Lock()
        self._waiting = False
        self._closed = False

    def __call__(self, stream: str, data: bytes) -> None:
        """Take some bytes of ``stdout`` or ``stderr``."""
        with self._lock:
            if self._closed:
                return
            if stream not in self._streams:
                self._streams[stream] = _Stream(self._redactor)
            one = self._streams[stream]
            one.feed(data)
            now = time.monotonic()
            if self._later is None or one.size >= LARGE or now >= one.next:
                self._send(stream, one, now)
            elif one.has_line and not self._waiting:
                self._waiting = True
                self._later(INTERVAL, self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._waiting = False
            if not self._closed:
                now = time.monotonic()
                for stream, one in self._streams.items():
                    self._send(stream, one, now)

    def _send(self, stream: str, one: _Stream, now: float) -> None:
        if text := one.take():
            one.next = now + INTERVAL
            self._emit(stream, text)

    def tail(self, stream: str) -> str:
        """The end of a stream."""
        with self._lock:
            return self._streams[stream].tail() if stream in self._streams else ""

    def close(self) -> None:
        """Send what is pending; ignore what follows."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for stream, one in self._streams.items():
                if text := one.end():
                    self._emit(stream, text)


class _Stream:
    def __init__(self, redactor: Redactor) -> None:
        self._mask = StreamMask(redactor)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._kept: list[str] = []
        self._kept_size = 0
        self.size = 0
        self.has_line = False
        self.next = 0.0

    def feed(self, data: bytes) -> None:
        self._add(self._decoder.decode(self._mask.feed(data)))

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self.size += len(text)
            self.has_line = self.has_line or "\n" in text
            self._kept.append(text)
            self._kept_size += len(text)
            if self._kept_size > 2 * TAIL:
                self._kept = ["".join(self._kept)[-TAIL:]]
                self._kept_size = TAIL

    def take(self) -> str:
        """The complete lines; a very long line is sent in pieces."""
        if not self.has_line and self.size < LARGE:
            return ""
        text = "".join(self._pieces)
        whole = text.rfind("\n") + 1 or len(text)
        lines, rest = text[:whole], text[whole:]
        self._pieces = [rest] if rest else []
        self.size = len(rest)
        self.has_line = False
        return lines

    def end(self) -> str:
        self._add(self._decoder.decode(self._mask.flush(), final=True))
        text = "".join(self._pieces)
        self._pieces = []
        return text

    def tail(self) -> str:
        return "".join(self._kept)[-TAIL:]
