"""What people see of a run: a live tree, plain lines, JSON lines, and the summary at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import GraphExecutionResult

__all__ = ["Console", "Kind", "Output", "can_be_live", "log_stream", "make_console", "wants_color"]

Kind = Literal["auto", "live", "plain", "json", "quiet", "silent"]


class Output(Protocol):
    """Where others may write whole lines without tearing what the console shows."""

    def write(self, text: str) -> int:
        """Write a text that ends with a line end."""

    def flush(self) -> None:
        """Every write is shown soon anyway."""


class Console(Protocol):
    """A subscriber that shows the events of a run."""

    draws: bool
    """Whether it moves the cursor, so that nobody else may write to the terminal meanwhile."""

    @property
    def output(self) -> Output:
        """For log lines and the like; give it to ``logs.configure``."""

    def __call__(self, event: Event) -> None:
        """Show an event."""

    def suspended(self) -> AbstractContextManager[None]:
        """Inside, the terminal is the caller's: to ask a person something, say."""

    def close(self, result: GraphExecutionResult | None) -> None:
        """The run is over; the terminal is as it was before. None: it ended without a result. May be called twice."""

    def abandon(self) -> None:
        """Give the terminal back at once and wait for nothing; may be called in a signal handler."""


def make_console(
    kind: str, graph: ExecutionGraph, stream: TextIO, *, color: bool | None, verbose: int, diffs: bool = False
) -> Console:
    """The console of that kind (see ``Kind``); auto is live on a terminal that can show it, else plain.

    ``live`` where it cannot be is plain too; ``silent`` shows nothing at all. ``color`` None: as the terminal and the
    environment say. ``diffs``: what actions change is shown as it happens.
    """
    # Each is imported only if it is the one: a run in CI needs no tree.
    if kind == "json":
        from kubexm_exec.console.jsonl import JsonConsole

        return JsonConsole(stream)
    if kind == "silent":
        from io import StringIO

        stream, kind = StringIO(), "quiet"
    with_color = wants_color(stream) if color is None else color
    if (kind == "auto" and can_be_live(stream) and not _set(os.environ, "CI")) or (
        kind == "live" and can_be_live(stream)
    ):
        from kubexm_exec.console.live import LiveConsole

        return LiveConsole(graph, stream, color=with_color, verbose=verbose, diffs=diffs)
    if kind not in ("auto", "live", "plain", "quiet"):
        raise ValueError(f'there is no console "{kind}"; there are auto, live, plain, json and quiet')
    from kubexm_exec.console.plain import PlainConsole

    return PlainConsole(graph, stream, color=with_color, verbose=verbose, quiet=kind == "quiet", diffs=diffs)


def log_stream(console: Console, stderr: TextIO) -> Output:
    """Where log lines go: to stderr, unless a tree is drawn there too."""
    return console.output if console.draws and stderr.isatty() else stderr


def wants_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether to colour: NO_COLOR says no, FORCE_COLOR yes, else a terminal that is not dumb does."""
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if _set(environ, "FORCE_COLOR"):
        return True
    return can_be_live(stream, environ)


def can_be_live(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the stream is a terminal on which the cursor can be moved."""
    environ = os.environ if environ is None else environ
    try:
        return stream.isatty() and environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
    except ValueError:  # closed
        return False


def _set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in ("", "0", "false", "no")
