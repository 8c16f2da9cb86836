"""The console for logs, pipes and CI: a complete line for everything that happens; for what never began, one a node."""

from __future__ import annotations

import time
from typing import TextIO

from kubexm_exec.console.lines import Lines
from kubexm_exec.console.text import Paint
from kubexm_exec.console.writer import LineConsole
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import GraphExecutionResult


class PlainConsole(LineConsole):
    """Writes the lines of each event in one piece, so that they never interleave; ``quiet`` keeps only what went wrong.

    With ``verbose`` 1 the output of steps and their starts are shown, with 2 also the log lines of level debug.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        stream: TextIO,
        *,
        color: bool = False,
        verbose: int = 0,
        quiet: bool = False,
        diffs: bool = False,
    ) -> None:
        super().__init__(stream)
        self._lines = Lines(
            graph,
            Paint(color),
            results=not quiet,
            output=verbose > 0 and not quiet,
            messages=not quiet,
            starts=verbose > 0 and not quiet,
            level="debug" if verbose > 1 else "info" if verbose else "warning",
            diffs=diffs and not quiet,
        )

    def __call__(self, event: Event) -> None:
        """Show an event."""
        text = self._lines(event)
        if text:
            self.output.write(text)

    def close(self, result: GraphExecutionResult | None) -> None:
        """Show what is left to show."""
        self.output.write(self._lines.rest(time.time()))
