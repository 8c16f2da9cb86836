"""A run at the terminal: shows what happens, asks what steps ask, stops on Ctrl-C, and sums it up."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import show_diagnostics, wants_color
from kubexm_exec.cli.interrupts import Presses
from kubexm_exec.cli.targets import Product, check_targets, write_text
from kubexm_exec.model.result import GraphExecutionResult, RunMode, Status
from kubexm_exec.service.live import LiveRun, Watcher

if TYPE_CHECKING:
    from kubexm_exec.console import Console
    from kubexm_exec.console.checkview import ForecastLog
    from kubexm_exec.model.events import Event
    from kubexm_exec.service.errors import Held, ServiceError
    from kubexm_exec.service.requests import Outcome
    from kubexm_spec.diagnostics import Diagnostics


class Terminal(Watcher):
    """A person at a terminal, or a program that reads the output."""

    def __init__(
        self,
        output: str,
        verbose: int = 0,
        *,
        diffs: bool = False,
        typed: Sequence[str] | None = None,
        journal: str | None = None,
        logs: tuple[str, str] = ("warning", "text"),
        result_file: str | None = None,
        report_file: str | None = None,
        force: bool = False,
    ) -> None:
        """``typed``: what the next commands are made of; nothing but the spec by default, and none are if it is empty.

        ``logs``: level and form of log lines.
        """
        self.output = output
        self.form = "json" if output == "json" else "text"
        self.verbose = verbose
        self.diffs = diffs
        self.typed = typed
        self.journal = journal
        self.logs = logs
        self.result_file = result_file
        self.report_file = report_file
        self.force = force
        self.run: LiveRun
        self.console: Console
        self.forecasts: ForecastLog | None = None
        self._waited_for = ""

    def found(self, diagnostics: Diagnostics, sources: Mapping[str, Any]) -> None:
        """Show warnings."""
        show_diagnostics(diagnostics, sources, self.form)

    def attach(self, run: LiveRun) -> None:
        """Show what happens; ends the program if the result could not be written."""
        from kubexm_exec.console import log_stream, make_console
        from kubexm_exec.logs import configure
        from kubexm_exec.report import ReportEvents

        targets = [(self.result_file, Product.RESULT), (self.report_file, Product.REPORT)]
        check_targets(targets, self.form, force=self.force, reads=run.reads)
        self.run = run
        kind = "plain" if self.output == "auto" and run.at_a_terminal else self.output
        color = wants_color(sys.stdout)
        self.console = make_console(kind, run.graph, sys.stdout, color=color, verbose=self.verbose, diffs=self.diffs)
        run.subscribe(self.console)
        if self.console.draws:
            run.subscribe(self._resumed)
        if run.mode is RunMode.OFFLINE:
            from kubexm_exec.console.checkview import ForecastLog

            self.forecasts = ForecastLog()
            run.subscribe(self.forecasts)
        self.told = ReportEvents()
        run.subscribe(self.told)
        questions = sys.stdout if self.output != "json" else sys.stderr
        run.talk(sys.stdin if not sys.stdin.closed else None, questions, self.console.suspended)
        # Where a tree is drawn on the same terminal, log lines scroll by above it.
        level, form = self.logs
        configure(level, form == "json", log_stream(self.console, sys.stderr), mask=run.mask)
        if level in ("debug", "info"):
            from kubexm_exec.logs import EventLog

            run.subscribe(EventLog(run.id))

    def _resumed(self, event: Event) -> None:
        from kubexm_exec.console.lines import done_before
        from kubexm_exec.model.events import RUN_RESUMED

        if event.kind == RUN_RESUMED:
            self.console.output.write(f"resuming run {event.run}: {done_before(event.data)}\n")

    def waiting(self, held: Held) -> None:
        """Say once who is waited for."""
        if held.run != self._waited_for:
            self._waited_for = held.run
            if self.form != "json":
                click.echo(f"waiting: {held.message}", err=True)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """The first Ctrl-C stops cleanly, the second at once; so does a terminal that closes."""
        import signal
        import threading

        from kubexm_exec.cli.gc import settle

        run = self.run
        settle()
        if self.output not in ("json", "quiet"):
            # While hosts are waited for: at the end it would be a twentieth of a small run over SSH.
            threading.Thread(target=_load_summary, daemon=True).start()

        def interrupted(number: int, frame: Any) -> None:
            if run.interrupt() > 2:
                self.console.abandon()
                os._exit(codes.INTERRUPTED)

        hung_up: list[int] = []

        def hang_up(number: int, frame: Any) -> None:
            # A terminal that closes may say so twice, and that is nobody's wish to end at once.
            if not hung_up:
                hung_up.append(number)
                interrupted(number, frame)

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hang_up)
        loading = before[signal.SIGINT]
        if isinstance(loading, Presses) and loading.times:
            # It was raised where it was lost.
            run.interrupt()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def ended(self, result: GraphExecutionResult | None) -> None:
        """Give the terminal back."""
        self.console.close(result)

    def conclude(self, outcome: Outcome) -> int:
        """Sum the run up, and write what is to be written; gives the exit code."""
        if outcome.lost is not None:
            self._tell_lost(outcome.lost)
        if self.output not in ("json", "quiet"):
            self._summary(outcome)
        if self.result_file is not None:
            text = json.dumps(outcome.to_json(), indent=2, ensure_ascii=False)
            write_text(self.result_file, text + "\n", private=True)
        if self.report_file is not None:
            from kubexm_exec.report import render_report

            text = render_report(outcome.graph, outcome.shown, self.told.events, mask=outcome.mask)
            write_text(self.report_file, text, private=True)
        if outcome.well:
            return codes.OK
        cancelled = outcome.result.status is Status.CANCELLED and outcome.lost is None
        return codes.INTERRUPTED if cancelled else codes.FAILED

    def _summary(self, outcome: Outcome) -> None:
        from shutil import get_terminal_size

        from kubexm_exec.cli.journaled import runs_command
        from kubexm_exec.cli.typed import next_commands, typed_run
        from kubexm_exec.console.summary import Journaled, render_summary

        typed = self.typed
        if typed is None:
            typed = typed_run(self.run.documents, self.run.executor, self.journal)
        journaled = None
        if outcome.journaled:
            due: dict[str, list[str]] = {}
            for each in outcome.due:
                due.setdefault(each.handler, []).append(each.host)
            journaled = Journaled(runs_command(self.journal), outcome.run, outcome.done_before, due)
        text = render_summary(
            outcome.graph,
            outcome.shown,
            color=wants_color(sys.stdout),
            width=get_terminal_size().columns,
            commands=next_commands(typed),
            forecasts=self.forecasts,
            journaled=journaled,
        )
        self.console.output.write(outcome.mask(text))

    def _tell_lost(self, error: ServiceError) -> None:
        hint = error.hint or f"kubexm runs resume {self.run.id}"
        if self.form == "json":
            line = {"event": "journal.lost", "run": self.run.id, "message": error.message, "hint": hint}
            click.echo(json.dumps(line, ensure_ascii=False))
        else:
            click.echo(
                f"error: the run was stopped because it could not be recorded\n  {error.message}\n  → {hint}",
                err=True,
            )


def _load_summary() -> None:
    """Import what the summary needs."""
    import kubexm_exec.cli.typed
    import kubexm_exec.console.summary  # noqa: F401  used at the end
