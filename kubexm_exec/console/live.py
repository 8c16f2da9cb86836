"""The console for a terminal: a tree that is redrawn while the run goes on, with everything worth keeping above it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from kubexm_exec.console.lines import Lines
from kubexm_exec.console.tally import Tally
from kubexm_exec.console.text import Paint, unstyle
from kubexm_exec.console.tree import ASCII, UNICODE, Tree
from kubexm_exec.console.writer import LineWriter, can_encode
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import GraphExecutionResult

_PERIOD: Final = 0.1
"""Seconds between two redraws."""
_WRAP: Final = "\x1b[?7h"
_NO_WRAP: Final = "\x1b[?7l"
_SHOW_CURSOR: Final = "\x1b[?25h"
_CLEAR: Final = "\x1b[H\x1b[2J"
_KEPT: Final = 200
_WAITING: Final = 2000
"""With more lines than this to be shown, a caller that adds more waits for the terminal."""


class LiveConsole:
    """Redraws a tree at most ten times a second; events only count, so that 100,000 actions cost next to nothing.

    Lines that should stay (failures, messages, log lines, with ``verbose`` all output of steps) scroll by above the
    tree. At the end it is wiped away for the summary; without a result it stays, to show how far the run got.
    """

    draws = True

    def __init__(
        self, graph: ExecutionGraph, stream: TextIO, *, color: bool = True, verbose: int = 0, diffs: bool = False
    ) -> None:
        self.output = _Above(self)
        """Others (log lines) may write whole lines to it."""
        self._writer = LineWriter(stream)
        self._stream = stream
        self._tally = Tally(graph)
        self._tree = Tree(self._tally, UNICODE if can_encode(stream, "✔✘○⊘⠋━╸…") else ASCII)
        self._lines = Lines(
            graph,
            Paint(color),
            results=False,
            output=verbose > 0,
            level="debug" if verbose > 1 else "info" if verbose else "warning",
            diffs=diffs,
        )
        self._console = Console(
            file=cast(TextIO, self._writer),
            force_terminal=True,
            color_system="auto" if color else None,
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        self._frame = _Frame()
        self._live: Live | None = None
        self._state = threading.Condition()
        """Held for counting and for taking lines: never while something is written."""
        self._screen = threading.RLock()
        """Held for writing to the terminal."""
        self._pending: list[str] = []
        self._last: deque[str] = deque(maxlen=_KEPT)
        """The last lines above the tree."""
        self._drawn = (0, 0)
        """Size of the terminal when the tree was drawn last."""
        self._suspended = 0
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="kubexm-live", daemon=True)
        self._ticker.start()

    def __call__(self, event: Event) -> None:
        """Count an event, and keep its lines for the next redraw."""
        text = self._lines(event)
        with self._state:
            self._tally(event)
        if text:
            self.above(text)

    def above(self, text: str) -> None:
        """Show whole lines above the tree; after the end, where the cursor is."""
        with self._state:
            # A caller faster than the terminal waits; but never for a person's answer.
            while len(self._pending) > _WAITING and not self._stop.is_set() and not self._suspended:
                self._state.wait(_PERIOD)
            if not self._stop.is_set():
                self._pending.append(text)
                return
        self._writer.write(text)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The tree is wiped away and the terminal is the caller's; what happens meanwhile is shown afterwards."""
        with self._screen:
            if not self._suspended:
                self._draw()
            self._suspended += 1
            self._end(wipe=True)
        try:
            yield
        finally:
            with self._screen:
                self._suspended -= 1

    def close(self, result: GraphExecutionResult | None) -> None:
        """Show what is left, and give the terminal back as it was."""
        with self._state:
            if self._stop.is_set():
                return
            self._stop.set()
            self._state.notify_all()
        with self._screen:
            if self._live is not None or self._pending:
                self._draw()
            self._end(wipe=result is not None)

    def abandon(self) -> None:
        """Give the terminal back at once and wait for nothing; may be called in a signal handler."""
        self._stop.set()
        if self._live is not None:
            os.write(self._stream.fileno(), f"{_SHOW_CURSOR}{_WRAP}\r\n".encode())

    def _tick(self) -> None:
        while not self._stop.wait(_PERIOD):
            with self._screen:
                if not self._suspended and not self._stop.is_set():
                    self._draw()

    def _draw(self) -> None:
        width, height = self._size()
        with self._state:
            lines = self._tree.lines(width, height, time.time())
            above = "".join(self._pending)
            self._pending.clear()
            self._last.extend(above.splitlines(keepends=True)[-_KEPT:])
            self._state.notify_all()
        self._put(lines, above, width, height)

    def _put(self, lines: list[Text], above: str, width: int, height: int) -> None:
        self._console.size = (width, height)
        if self._drawn not in ((0, 0), (width, height)):
            above = self._cleared(above, width, height - len(lines) - 1)
        self._frame.lines = lines
        self._drawn = (width, height)
        if self._live is None:
            # Standard streams are left alone: other writers use `output`.
            self._live = Live(
                self._frame,
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
            self._writer.write(_NO_WRAP)
        if above:
            self._console.print(_Scrolling(above), soft_wrap=True)
        else:
            self._live.refresh()

    def _cleared(self, above: str, width: int, rows: int) -> str:
        """Begin on an empty screen with the last lines that were above the tree, for a terminal of another size.

        Terminals differ in what they make of old lines then: wrap or cut them, scroll them away or back in, and when
        they tell. Where the tree has come to cannot be known.
        """
        self._writer.write(_CLEAR)
        shown: list[str] = []
        for line in reversed(self._last):
            rows -= max(1, -(-cell_len(unstyle(line.rstrip("\n"))) // width))
            if rows < 0:
                break
            shown.append(line)
        return "".join(reversed(shown)) if shown else above

    def _end(self, *, wipe: bool) -> None:
        if self._live is not None:
            self._live.transient = wipe
            self._live.stop()
            self._writer.write(_WRAP)
            self._live = None
            self._drawn = (0, 0)

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return 80, 24
        # A terminal that does not know its size says zero.
        return size.columns or 80, size.lines or 24


class _Above:
    """A stream whose lines are shown above the tree."""

    def __init__(self, console: LiveConsole) -> None:
        self._console = console

    def write(self, text: str) -> int:
        self._console.above(text)
        return len(text)

    def flush(self) -> None:
        """Lines are shown at the next redraw."""


class _Scrolling:
    """Lines that scroll by above the tree: unlike those of the tree they may take as many rows as they need."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Only a control segment is passed on as it is; what control it is does not matter to a terminal.
        yield Segment(_WRAP, None, [(ControlType.CARRIAGE_RETURN,)])
        yield Text.from_ansi(self._text.removesuffix("\n"))
        yield Segment(_NO_WRAP, None, [(ControlType.CARRIAGE_RETURN,)])


class _Frame:
    """The lines that are on the screen now; one object, so that whatever is printed above uses the newest ones."""

    def __init__(self) -> None:
        self.lines: list[Text] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n", no_wrap=True, overflow="crop").join(self.lines)
