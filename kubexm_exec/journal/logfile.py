"""The whole output of a run in a file beside the journal, one JSON line for each piece."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from kubexm_exec.engine.ports import JournalError
from kubexm_exec.journal.errors import explain
from kubexm_exec.model.events import ACTION_OUTPUT, Event
from kubexm_exec.ownership import open_own, own_folder

NAME: Final = "output.jsonl"
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BEGIN: Final = '{"time":'
"""How every line begins; quotes in texts are escaped, so that it occurs nowhere else."""


class OutputLog:
    """A subscriber that writes the output of steps; the file is created with the first piece, for its owner only."""

    def __init__(self, folder: Path, lost: Callable[[JournalError], None]) -> None:
        """``lost`` is called once if it cannot be written: a run must not go on while its output is lost."""
        self._folder = folder
        self._lost: Callable[[JournalError], None] | None = lost
        self._file: TextIO | None = None

    def __call__(self, event: Event) -> None:
        """Write the event if it is output."""
        if event.kind != ACTION_OUTPUT or self._lost is None:
            return
        try:
            self._write(event)
        except OSError as error:
            lost, self._lost = self._lost, None
            lost(explain(f"the run's log {self._folder / NAME}", error))

    def _write(self, event: Event) -> None:
        if self._file is None:
            for folder in (self._folder.parent.parent, self._folder.parent, self._folder):
                own_folder(folder)
            descriptor = open_own(self._folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            # Line-buffered: readers see whole lines, and a crash loses none.
            self._file = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="surrogateescape")
        line = {"time": round(event.time, 3), "node": event.node, "host": event.host, **event.data}
        self._file.write(_ENCODE(line) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            # A failed write was reported when it happened.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def read_log(folder: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """The pieces from an offset on, each with the offset after it; an incomplete last line is left for later."""
    path = folder / NAME
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            piece = _piece(line.decode("utf-8", "surrogateescape"))
            if piece is not None:
                yield offset, piece


def _piece(line: str) -> dict[str, Any] | None:
    """The data of a line. After a full disk or a crash the next session's first line may follow an incomplete one."""
    for text in (line, line[max(0, line.rfind(_BEGIN)) :]):
        with contextlib.suppress(ValueError):
            piece: dict[str, Any] = json.loads(text)
            return piece
    return None
