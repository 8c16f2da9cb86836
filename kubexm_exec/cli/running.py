"""One run from the command line: puts the engine, the console and the journal together."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail, show_diagnostics, wants_color
from kubexm_exec.cli.interrupts import Presses
from kubexm_exec.cli.journaled import open_store, refuse, waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kubexm_exec.console.checkview import ForecastLog
    from kubexm_exec.engine.history import RunHistory, SessionHistory
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.engine.runtime import Runtime
    from kubexm_exec.executors.base import Executor
    from kubexm_exec.journal.logfile import OutputLog
    from kubexm_exec.journal.session import Session
    from kubexm_exec.model.events import Event
    from kubexm_exec.model.graph import ExecutionGraph
    from kubexm_exec.model.result import GraphExecutionResult
    from kubexm_exec.scheduler import Action
    from kubexm_exec.values.expressions import Expressions
    from kubexm_spec.diagnostics import Span


def _warn(message: str) -> None:
    """What somebody should know of the secrets that are used, such as a file that everybody can read."""
    from kubexm_exec.logs import get_logger

    get_logger().warning(message)


class Run:
    """One run from the command line: puts the engine's parts together."""

    def __init__(
        self,
        graph: ExecutionGraph,
        executor: str,
        forks: int,
        output: str,
        verbose: int,
        templates: tuple[str, ...],
        typed: list[str],
        bundle: Path | None = None,
        uploads: int = 10,
        run_id: str = "",
        expressions: Expressions | None = None,
    ) -> None:
        from kubexm_exec.console import make_console
        from kubexm_exec.executors.base import load_executor
        from kubexm_exec.model.events import EventBus
        from kubexm_exec.model.ids import new_run_id
        from kubexm_exec.model.result import RunMode
        from kubexm_exec.plugins import RegistryError, executor_registry
        from kubexm_exec.report.collect import ReportEvents
        from kubexm_exec.secrets import Redactor, Secrets

        self.graph = graph
        self.executor = executor
        self.session: Session | None = None
        self.log: OutputLog | None = None
        self.journal_error: JournalError | None = None
        self.sessions: Sequence[SessionHistory] = ()
        """This session and those before it, if it is not the first."""
        self.done_before = 0
        """Actions that earlier sessions have done."""
        self.left: Callable[[Action], bool] | None = None
        """Which actions this session has to do, if not all."""
        self.success = "Success"
        """What the journal calls a run that went well."""
        self.output = output
        self.typed = typed
        self.events: list[Event] = []
        try:
            chosen = load_executor(executor_registry(), executor)
        except RegistryError as error:
            fail(error.message, error.hint, output="json" if output == "json" else "text", kind=error.code)
        self.make_executor: Callable[[], Executor] = chosen
        self.acts = chosen.mode is RunMode.ACT
        """Whether it changes anything: if not, there is nothing to write down."""
        self._checked = chosen.mode is RunMode.OFFLINE
        self.redactor = Redactor()
        self.secrets = Secrets(self.redactor, _warn)
        self.bus = EventBus(run_id or new_run_id(), self.redactor.mask)
        kind = "plain" if output == "auto" and chosen.at_a_terminal else output
        self.console = make_console(kind, graph, sys.stdout, color=wants_color(sys.stdout), verbose=verbose)
        self.bus.subscribe(self.console)
        self.forecasts: ForecastLog | None = None
        if chosen.mode is RunMode.OFFLINE:
            from kubexm_exec.console.checkview import ForecastLog

            self.forecasts = ForecastLog()
            self.bus.subscribe(self.forecasts)
        self.told = ReportEvents()
        self.bus.subscribe(self.told)
        self.runtime = self._runtime(forks, uploads, verbose, templates, bundle, expressions)

    def _runtime(
        self,
        forks: int,
        uploads: int,
        verbose: int,
        templates: tuple[str, ...],
        bundle: Path | None,
        expressions: Expressions | None,
    ) -> Runtime:
        from pathlib import Path

        from kubexm_exec.engine.runtime import RunOptions, Runtime
        from kubexm_exec.plugins import connector_registry, step_registry

        steps = step_registry()

        def fragment(graph: ExecutionGraph, node: Any, host: str, data: Any) -> Any:
            from kubexm_exec.compile.fragment import compile_fragment

            return compile_fragment(
                graph, node, host, data, registry=steps, expressions=self.runtime.expressions, templates=templates
            )

        return Runtime(
            self.graph,
            options=RunOptions(
                forks=forks,
                uploads=uploads,
                input=sys.stdin if not sys.stdin.closed else None,
                output=sys.stdout if self.output != "json" else sys.stderr,
                terminal=self.console.suspended,
                verbose=verbose,
                templates=tuple(Path(folder) for folder in templates),
                bundle=bundle,
            ),
            bus=self.bus,
            secrets=self.secrets,
            steps=steps,
            connectors=connector_registry(),
            compile_fragment=fragment,
            expressions=expressions,
        )

    def check_secrets(self, of_host: Callable[[str, str], Span | None] | None = None) -> None:
        """Look up what can be before the run; ends the program if something is missing: nothing has changed yet.

        ``of_host``: where a secret of a host is named, if its inventory is at hand.
        """
        if self._checked:
            return
        self._checked = True
        from kubexm_exec.engine.neededsecrets import check, uses_of

        runtime = self.runtime
        uses = uses_of(runtime.graph, runtime.steps.load, runtime.expressions, runtime.finder, self.left)
        found = check(uses, self.secrets, of_host)
        if len(found):
            show_diagnostics(found, {}, "json" if self.output == "json" else "text")
        if found.has_errors:
            raise SystemExit(codes.WRONG)

    def configure_logs(self, level: str, form: str) -> None:
        """Log lines go to stderr; where a tree is drawn on the same terminal, they scroll by above it."""
        from kubexm_exec.console import log_stream
        from kubexm_exec.logs import configure

        configure(level, form == "json", log_stream(self.console, sys.stderr), mask=self.redactor.mask)
        if level in ("debug", "info"):
            from kubexm_exec.logs.events import EventLog

            self.bus.subscribe(EventLog(self.bus.run))

    # The journal

    def packages(self) -> dict[str, dict[str, str]]:
        """The package and version behind each step type of the run."""
        from kubexm_exec.compile.plan import packages_of
        from kubexm_exec.plugins import step_registry

        return packages_of(sorted({node.step_name for node in self.graph.steps()}), step_registry())

    def write_down(self, place: str | None, spec: str, inputs: dict[str, Any], *, wait: bool) -> None:
        """Have the run written down from its beginning; ends the program if that cannot be, or another run is at it."""
        from kubexm_exec.engine.ports import JournalError
        from kubexm_exec.journal.database import state_folder
        from kubexm_exec.journal.session import Session, Start

        form = "json" if self.output == "json" else "text"
        store = open_store(place, form)
        start = Start(
            run=self.bus.run, name=self.graph.name, target=self.graph.target, spec=spec, executor=self.executor,
            made_from=inputs,
        )  # fmt: skip
        try:
            self.keep(Session.begin(store, state_folder(), start, wait=waiting(form) if wait else None))
        except JournalError as error:
            refuse(error, form)

    def keep(self, session: Session, history: RunHistory | None = None) -> None:
        """Write down what happens from now on; ``history``: all that is written down of the run already."""
        from kubexm_exec.journal.logfile import OutputLog

        self.session = session
        self.log = OutputLog(session.folder, session.lost)
        self.bus.subscribe(self.log)
        session.attach(self.runtime, None if history is None else history.left())

    def _close_journal(self, result: GraphExecutionResult | None) -> None:
        if self.session is None:
            return
        from kubexm_exec.model.result import counts

        if self.log is not None:
            self.log.close()
        self.journal_error = self.session.close(result, {} if result is None else counts(result), self.success)
        self.session.store.close()

    def exit_code(self, result: GraphExecutionResult) -> int:
        """How the program ends after a run."""
        from kubexm_exec.model.result import Status

        if self.journal_error is not None:
            return codes.FAILED
        if result.status is Status.CANCELLED:
            return codes.INTERRUPTED
        return codes.OK if result.status is Status.SUCCESS else codes.FAILED

    def execute(self) -> GraphExecutionResult:
        """Run to the end; the first Ctrl-C stops cleanly, the second at once."""
        import signal

        from kubexm_exec.cli.gc import settle

        runtime = self.runtime
        settle()

        def interrupted(number: int, frame: Any) -> None:
            if runtime.interrupt() > 2:
                self.console.abandon()
                os._exit(codes.INTERRUPTED)

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        result: GraphExecutionResult | None = None
        loading = before[signal.SIGINT]
        if isinstance(loading, Presses) and loading.times:
            # It was raised where it was lost.
            runtime.interrupt()
        try:
            runtime.watch()
            self.check_secrets()
            result = self.make_executor().execute(runtime)
        finally:
            try:
                self.console.close(result)
                runtime.close()
                self._close_journal(result)
            finally:
                # Only now: an interrupt in the middle of that would leave a run that has ended without its end.
                for number, handler in before.items():
                    signal.signal(number, handler)
        if result is None:
            raise RuntimeError("the executor gave no result")
        self._summary(result)
        return result

    def _summary(self, result: GraphExecutionResult) -> None:
        if self.journal_error is not None:
            self._tell_journal_error(self.journal_error)
        if self.output in ("json", "quiet", "silent"):
            return
        from shutil import get_terminal_size

        from kubexm_exec.cli.journaled import runs_command
        from kubexm_exec.cli.typed import next_command
        from kubexm_exec.console.summary import Journaled, render_summary

        journaled = None
        if self.session is not None and not self.session.gone:
            journaled = Journaled(runs_command(self.session.store), self.bus.run, self.done_before)
        text = render_summary(
            self.runtime.graph,
            self._shown(result),
            color=wants_color(sys.stdout),
            width=get_terminal_size().columns,
            spec_command=next_command(self.typed),
            forecasts=self.forecasts,
            journaled=journaled,
        )
        self.console.output.write(self.redactor.mask(text))

    def _shown(self, result: GraphExecutionResult) -> GraphExecutionResult:
        """The result for people: without the pauses between this session and those before."""
        if not self.sessions:
            return result
        from kubexm_exec.journal.results import of_all_sessions

        return of_all_sessions(result, self.sessions)

    def result_json(self, result: GraphExecutionResult) -> dict[str, Any]:
        """The result as data, without secrets."""
        return self.runtime.result_json(result)

    def report(self, result: GraphExecutionResult) -> str:
        """The result as a page, without secrets."""
        from kubexm_exec.report import render_report

        return render_report(self.runtime.graph, self._shown(result), self.told.events, mask=self.redactor.mask)

    def _tell_journal_error(self, error: JournalError) -> None:
        hint = error.hint or f"kubexm runs resume {self.bus.run}"
        if self.output == "json":
            line = {"event": "journal.lost", "run": self.bus.run, "message": error.what, "hint": hint}
            click.echo(json.dumps(line, ensure_ascii=False))
        else:
            click.echo(
                f"error: the run was stopped, because it could not be written down\n  {error.what}\n  → {hint}",
                err=True,
            )
