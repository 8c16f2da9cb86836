"""``kubexm-run``: runs a spec or a plan with an executor, shows it live, and says how it ended."""

from __future__ import annotations

from typing import Any, Final

import click
from msgspec.structs import replace

from kubexm_exec.cli.common import bundle_option, console_option, value_options
from kubexm_exec.cli.gc import prepare
from kubexm_exec.cli.interrupts import interruptible
from kubexm_exec.cli.journaled import journal_option, overwrite_option, service_of, wait_option
from kubexm_exec.cli.targets import force_option
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import Documents, RunRequest

_CALLED_HERE: Final = {
    "--check": "--executor check looks what would change, with diffs",
    "-C": "--executor check looks what would change, with diffs",
    "--diff": "--executor check shows diffs, and changes nothing",
    "-D": "--executor check shows diffs, and changes nothing",
    "--dry-run": "--executor dry-run shows what would run where, --executor check what would change",
    "--debug": "--executor debug goes through it step by step",
    "--step": "--executor debug goes through it step by step",
    "--syntax-check": "kubexm validate SPEC checks it",
    "--extra-vars": "-e KEY=VALUE gives a value, --vars-file FILE many",
    "--list-tasks": "--executor dry-run shows what would run where, in order",
    "--list-hosts": "kubexm inventory -i FILE shows the hosts",
    "--start-at-task": "kubexm runs resume RUN --from NODE goes on with a run from there",
    "--ask-become-pass": "become: {password: env:NAME} of a host names the password",
    "-K": "become: {password: env:NAME} of a host names the password",
    "--become": "become: true on a host, a task or a step says it",
    "-b": "become: true on a host, a task or a step says it",
    "-l": "--limit HOSTS chooses hosts",
    "-t": "--tags TAGS chooses steps",
    "-f": "--forks NUMBER says how many actions run at once",
}
"""What options of other tools are called here."""


class _Command(click.Command):
    """Remembers what was typed, so that the end of a run can say what to type next."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line, and keep them as they were."""
        ctx.obj = ["kubexm-run", *args]
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
@click.option(
    "--uploads",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    help="How many large files (8 MiB and more) are sent to hosts at once.",
)
@value_options
@bundle_option
@console_option
@journal_option
@click.option("--no-journal", is_flag=True, help="Write nothing down: the run can be neither resumed nor shown later.")
@wait_option
@overwrite_option
@click.option("--result", "result_file", metavar="FILE", help="Write the result as JSON.")
@click.option("--report", "report_file", metavar="FILE", help="Write a report as an HTML page.")
@force_option
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
    uploads: int,
    choice: Documents,
    bundle: str | None,
    output: str,
    journal: str | None,
    no_journal: bool,
    wait: bool,
    overwrite: bool,
    result_file: str | None,
    report_file: str | None,
    force: bool,
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
    prepare()
    if spec is not None and plan_file is not None:
        raise Invalid("a SPEC and --plan FILE do not go together: a plan holds its spec")
    if spec is None and plan_file is None:
        raise Invalid("give a SPEC, or a plan with --plan FILE", "kubexm-run spec.yaml")
    documents = replace(choice, spec=spec or "", plan=plan_file or "", bundle=bundle)
    if plan_file is not None and choice != Documents(folder=choice.folder, templates=choice.templates):
        raise Invalid(
            "a plan is run exactly as it is: values, hosts and tags were chosen when it was made",
            "kubexm plan SPEC -o FILE",
        )
    from kubexm_exec.cli.running import Terminal

    request = RunRequest(
        documents=documents, executor=executor, forks=forks, uploads=uploads, verbose=verbose, overwrite=overwrite,
        journal=not no_journal, wait=wait,
    )  # fmt: skip
    terminal = Terminal(
        output, verbose, typed=click.get_current_context().obj, journal=journal, logs=(log_level, log_format),
        result_file=result_file, report_file=report_file, force=force,
    )  # fmt: skip
    raise SystemExit(terminal.conclude(service_of(journal).run(request, terminal)))
