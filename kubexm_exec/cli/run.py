"""``kubexm-run``: runs a spec or a plan with an executor, shows it live, and says how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, cast

import click
from msgspec.structs import replace

from kubexm_exec.cli.common import (
    bundle_option,
    console_option,
    diff_option,
    executor_option,
    forks_option,
    offline_option,
    value_options,
    verbose_option,
)
from kubexm_exec.cli.gc import prepare
from kubexm_exec.cli.interrupts import interruptible
from kubexm_exec.cli.journaled import journal_option, overwrite_option, patient_option, service_of, wait_option
from kubexm_exec.cli.targets import force_option
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Documents, RunRequest

_CALLED_HERE: Final = {
    "--check": "--executor check shows what would change, as diffs",
    "-C": "--executor check shows what would change, as diffs",
    "--dry-run": "--executor dry-run shows what would run where, --executor check what would change",
    "--debug": "--executor debug steps through it",
    "--step": "--executor debug steps through it",
    "--syntax-check": "kubexm validate SPEC checks it",
    "--extra-vars": "-e KEY=VALUE sets a value, --vars-file FILE several",
    "--list-tasks": "--executor dry-run shows what would run where, in order",
    "--list-hosts": "kubexm inventory -i FILE shows the hosts",
    "--start-at-task": "kubexm runs resume RUN --from NODE continues a run from there",
    "--ask-become-pass": "set become: {password: env:NAME} on a host",
    "-K": "set become: {password: env:NAME} on a host",
    "--become": "set become: true on a host, a task or a step",
    "-b": "set become: true on a host, a task or a step",
    "-l": "--limit HOSTS selects hosts",
    "-t": "--tags TAGS selects steps",
    "-f": "--forks NUMBER limits concurrent actions",
}
"""What options of other tools are called here."""


class RunCommand(click.Command):
    """Remembers what was typed, so that the end of a run can say what to type next."""

    words: tuple[str, ...] = ("kubexm-run",)
    """The command itself, as it is typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line, and keep them as they were."""
        ctx.obj = [*self.words, *args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = _CALLED_HERE.get(error.option_name)
            if hint is None:
                raise
            raise click.UsageError(f"there is no option {error.option_name}; {hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Do it, or be interrupted before it is done."""
        with interruptible():
            return super().invoke(ctx)


_LOG_LEVEL: Final = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="Level of the log; info and debug include the events of the run.",
)
_LOG_FORMAT: Final = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines on stderr.",
)
_UPLOADS: Final = click.option(
    "--uploads",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="Maximum number of concurrent uploads of large files (8 MiB and more).",
)
_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    forks_option(),
    _UPLOADS,
    value_options,
    bundle_option,
    offline_option,
    console_option,
    journal_option,
    click.option("--no-journal", is_flag=True, help="Do not record the run: it cannot be resumed or shown later."),
    wait_option,
    patient_option,
    overwrite_option,
    diff_option,
    click.option("--result", "result_file", metavar="FILE", help="Write the result as JSON."),
    click.option("--report", "report_file", metavar="FILE", help="Write an HTML report."),
    force_option,
    verbose_option,
    _LOG_LEVEL,
    _LOG_FORMAT,
)


def run_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options of every command that runs a spec, besides the executor and the spec itself."""
    decorated: Any = function
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return cast("Callable[..., None]", decorated)


@click.command("kubexm-run", cls=RunCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("spec", required=False)
@executor_option
@click.option("--plan", "plan_file", metavar="FILE", help="Run a saved plan instead of a SPEC.")
@run_options
@click.version_option(package_name="kubexm", prog_name="kubexm-run")
def command(
    spec: str | None, executor: str, plan_file: str | None, choice: Documents, bundle: str | None, **options: Any
) -> None:
    """Run SPEC: compile it to a graph and bring its hosts into the desired state.

    Executors: concurrent runs it, dry-run shows what would run and contacts no host, check asks the hosts what would
    change and changes nothing, debug runs one action at a time.

    Exit codes: 0 success, 1 something failed, 2 wrong spec or command line, nothing ran, 3 refused,
    130 interrupted.
    """
    prepare()
    if spec is not None and plan_file is not None:
        raise Invalid("SPEC and --plan FILE exclude each other: a plan contains its spec")
    if spec is None and plan_file is None:
        raise Invalid("give a SPEC, or a plan with --plan FILE", "kubexm-run spec.yaml")
    run_documents(replace(choice, spec=spec or "", plan=plan_file or "", bundle=bundle), executor, **options)


def run_documents(
    documents: Documents,
    executor: str,
    *,
    offline: bool,
    forks: int,
    uploads: int,
    output: str,
    journal: str | None,
    no_journal: bool,
    wait: bool,
    patient: bool,
    overwrite: bool,
    diffs: bool,
    result_file: str | None,
    report_file: str | None,
    force: bool,
    verbose: int,
    log_level: str,
    log_format: str,
) -> NoReturn:
    """Run documents with the options of `run_options`, and end with the exit code of the run."""
    from kubexm_exec.cli.running import Terminal

    documents = replace(documents, offline=offline or documents.offline)
    request = RunRequest(
        documents=documents, executor=executor, forks=forks, uploads=uploads, verbose=verbose, overwrite=overwrite,
        journal=not no_journal, wait=wait, patient=patient and not no_journal,
    )  # fmt: skip
    terminal = Terminal(
        output, verbose, diffs=diffs, typed=click.get_current_context().obj, journal=journal,
        logs=(log_level, log_format), result_file=result_file, report_file=report_file, force=force,
    )  # fmt: skip
    raise SystemExit(terminal.conclude(service_of(journal).run(request, terminal)))
