"""``kubexm-run``: runs a spec or a plan with an executor, shows it live, and says how it ended."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import (
    Choice,
    bundle_folder,
    bundle_option,
    compile_or_exit,
    fail,
    value_options,
    wants_color,
    write_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kubexm_exec.events import Event
    from kubexm_exec.graph import ExecutionGraph
    from kubexm_exec.result import GraphExecutionResult
    from kubexm_exec.runtime import Runtime


class _Command(click.Command):
    """Remembers what was typed, so that the end of a run can say what to type next."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line, and keep them as they were."""
        ctx.obj = ["kubexm-run", *args]
        return super().parse_args(ctx, args)


@click.command("kubexm-run", cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("spec", required=False)
@click.option(
    "--executor",
    default="concurrent",
    show_default=True,
    metavar="NAME",
    help="concurrent, debug, dry-run, check, or a third party's.",
)
@click.option("--plan", "plan_file", metavar="FILE", help="Run a saved plan exactly as it is, instead of a SPEC.")
@click.option(
    "--forks", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many actions run at once."
)
@value_options
@bundle_option
@click.option(
    "--output",
    type=click.Choice(["auto", "live", "plain", "json", "quiet"]),
    default="auto",
    show_default=True,
    help="auto is live on a terminal and plain lines elsewhere; json is one event a line.",
)
@click.option("--result", "result_file", metavar="FILE", help="Write the result as JSON.")
@click.option("--report", "report_file", metavar="FILE", help="Write a report as an HTML page.")
@click.option("-v", "--verbose", count=True, help="Show the output of steps; -vv shows more.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="How much is logged; info and debug log what happens in the run.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of log lines on stderr.",
)
@click.version_option(package_name="kubexm", prog_name="kubexm-run")
def command(
    spec: str | None,
    executor: str,
    plan_file: str | None,
    forks: int,
    choice: Choice,
    bundle: str | None,
    output: str,
    result_file: str | None,
    report_file: str | None,
    verbose: int,
    log_level: str,
    log_format: str,
) -> None:
    """Run SPEC: compile it to a graph and make it true.

    Executors: concurrent does it, dry-run shows what would run and contacts no host, check asks the hosts what would
    change and changes nothing, debug goes step by step.

    Exit codes: 0 all well, 1 something failed, 2 the spec or the call is wrong and nothing ran, 3 refused,
    130 interrupted.
    """
    form = "json" if output == "json" else "text"
    if spec is not None and plan_file is not None:
        fail("a SPEC and --plan FILE do not go together: a plan holds its spec", output=form)
    if spec is None and plan_file is None:
        fail("give a SPEC, or a plan with --plan FILE", "kubexm-run spec.yaml", output=form)
    folder = bundle_folder(bundle, form)
    for name in (result_file, report_file):
        check_writable(name, form)
    if plan_file is not None:
        if not choice.is_empty():
            fail(
                "a plan is run exactly as it is: values, hosts and tags were chosen when it was made",
                "kubexm plan SPEC -o FILE",
                output=form,
            )
        graph = _planned(plan_file, form)
    else:
        options = choice.options(form)
        _, graph = compile_or_exit(spec or "", options, form)
    run = Run(graph, executor, forks, output, verbose, choice.templates, click.get_current_context().obj, folder)
    run.configure_logs(log_level, log_format)
    result = run.execute()
    if result_file is not None:
        write_text(result_file, json.dumps(run.result_json(result), indent=2, ensure_ascii=False) + "\n")
    if report_file is not None:
        write_text(report_file, run.report(result))
    raise SystemExit(exit_code(result))


def main() -> None:
    """Entry point of ``kubexm-run``."""
    command(prog_name="kubexm-run")


def check_writable(name: str | None, form: str) -> None:
    """A run of an hour must not end with a result that cannot be written."""
    if name is None or name == "-":
        return
    folder = os.path.dirname(name) or "."  # noqa: PTH120 - pathlib costs as much as the rest of this check
    if not os.path.isdir(folder):  # noqa: PTH112
        fail(f"{name} cannot be written: there is no folder {folder}", f"mkdir -p {folder}", output=form)
    if not os.access(folder, os.W_OK):
        fail(f"{name} cannot be written: {folder} is not writable", output=form)


def _planned(plan_file: str, form: str) -> ExecutionGraph:
    from kubexm_exec.plan import PlanError, StalePlanError, check_plan, load_plan
    from kubexm_exec.registry import step_registry

    try:
        plan = load_plan(plan_file)
        check_plan(plan, step_registry())
    except PlanError as error:
        fail(str(error), output=form, kind="bad-plan")
    except StalePlanError as error:
        fail(
            "the plan is stale, nothing was run:\n" + "\n".join(f"    {change}" for change in error.changes),
            f"make it again: kubexm plan {plan.spec} -o {plan_file}",
            code=codes.REFUSED,
            output=form,
            kind="stale-plan",
        )
    return plan.graph


def exit_code(result: GraphExecutionResult) -> int:
    """How the program ends after a run."""
    from kubexm_exec.result import Status

    if result.status is Status.CANCELLED:
        return codes.INTERRUPTED
    return codes.OK if result.status is Status.SUCCESS else codes.FAILED


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
    ) -> None:
        from kubexm_exec.console import make_console
        from kubexm_exec.console.checkview import ForecastLog
        from kubexm_exec.events import EventBus
        from kubexm_exec.ids import new_run_id
        from kubexm_exec.registry import RegistryError, executor_registry
        from kubexm_exec.report.collect import ReportEvents
        from kubexm_exec.secrets import Redactor, Secrets

        self.graph = graph
        self.output = output
        self.typed = typed
        self.events: list[Event] = []
        try:
            self.executor_class: Any = executor_registry().load(executor)
        except RegistryError as error:
            fail(error.message, error.hint, output="json" if output == "json" else "text", kind=error.code)
        self.redactor = Redactor()
        self.secrets = Secrets(self.redactor, _warn)
        self.bus = EventBus(new_run_id(), self.redactor.mask)
        kind = "plain" if output == "auto" and executor in ("debug", "serial-debug") else output
        self.console = make_console(kind, graph, sys.stdout, color=wants_color(sys.stdout), verbose=verbose)
        self.bus.subscribe(self.console)
        self.forecasts = ForecastLog() if executor == "dry-run" else None
        if self.forecasts is not None:
            self.bus.subscribe(self.forecasts)
        self.told = ReportEvents()
        self.bus.subscribe(self.told)
        self.runtime = self._runtime(forks, verbose, templates, bundle)

    def _runtime(self, forks: int, verbose: int, templates: tuple[str, ...], bundle: Path | None) -> Runtime:
        from pathlib import Path

        from kubexm_exec.compile.fragment import compile_fragment
        from kubexm_exec.registry import connector_registry, step_registry
        from kubexm_exec.runtime import RunOptions, Runtime

        steps = step_registry()

        def fragment(graph: ExecutionGraph, node: Any, host: str, data: Any) -> Any:
            return compile_fragment(
                graph, node, host, data, registry=steps, expressions=self.runtime.expressions, templates=templates
            )

        return Runtime(
            self.graph,
            options=RunOptions(
                forks=forks,
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
        )

    def configure_logs(self, level: str, form: str) -> None:
        """Log lines go to stderr; where a tree is drawn on the same terminal, they scroll by above it."""
        from kubexm_exec.console import log_stream
        from kubexm_exec.logs import configure

        configure(level, form == "json", log_stream(self.console, sys.stderr), mask=self.redactor.mask)
        if level in ("debug", "info"):
            from kubexm_exec.eventlog import EventLog

            self.bus.subscribe(EventLog(self.bus.run))

    def execute(self) -> GraphExecutionResult:
        """Run to the end; the first Ctrl-C stops cleanly, the second at once."""
        import signal

        from kubexm_exec.memory import settle

        runtime = self.runtime
        settle()

        def interrupted(number: int, frame: Any) -> None:
            if runtime.interrupt() > 2:
                self.console.abandon()
                os._exit(codes.INTERRUPTED)

        before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
        result: GraphExecutionResult | None = None
        try:
            runtime.watch()
            result = self.executor_class().execute(runtime)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.console.close(result)
            runtime.close()
        if result is None:
            raise RuntimeError("the executor gave no result")
        self._summary(result)
        return result

    def _summary(self, result: GraphExecutionResult) -> None:
        if self.output in ("json", "quiet"):
            return
        from shutil import get_terminal_size

        from kubexm_exec.console.summary import next_command, render_summary

        text = render_summary(
            self.runtime.graph,
            result,
            color=wants_color(sys.stdout),
            width=get_terminal_size().columns,
            spec_command=next_command(self.typed),
            forecasts=self.forecasts,
        )
        self.console.output.write(self.redactor.mask(text))

    def result_json(self, result: GraphExecutionResult) -> dict[str, Any]:
        """The result as data, without secrets."""
        return self.runtime.result_json(result)

    def report(self, result: GraphExecutionResult) -> str:
        """The result as a page, without secrets."""
        from kubexm_exec.report import render_report

        return render_report(self.runtime.graph, result, self.told.events, mask=self.redactor.mask)
