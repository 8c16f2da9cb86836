"""``kubexm runs``: list, resume, roll back, cancel and answer runs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from msgspec.structs import replace

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import (
    HOST_PATTERNS,
    approve,
    console_option,
    diff_option,
    forks_option,
    output_option,
    telling,
    verbose_option,
)
from kubexm_exec.cli.journaled import journal_option, overwrite_option, patient_option, service_of, wait_option
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text
from kubexm_exec.model.result import timestamp
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import AnswerRequest, ResumeRequest, RollbackRequest, Undoable
from kubexm_spec.diagnostics import plural

F = TypeVar("F", bound=Callable[..., Any])

_ELSEWHERE: Final = ("logs", "prune", "show")
"""Commands that live in a module of their own: ``runs_NAME``."""
_NAMED: Final = 5


class RunsGroup(click.Group):
    """Imports a command that lives elsewhere only when it is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported."""
        if cmd_name in _ELSEWHERE:
            found: click.Command = importlib.import_module(f"kubexm_exec.cli.runs_{cmd_name}").command
            return found
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown name gets a suggestion."""
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            from kubexm_spec.diagnostics import did_you_mean

            guess = did_you_mean(args[0], names) or f"to see a run: kubexm runs show {args[0]}"
            ctx.fail(f"there is no command {args[0]!r}; {guess}")
        return super().resolve_command(ctx, args)


def _limit(function: F) -> F:
    return click.option(
        "--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of runs, newest first."
    )(function)


def _broken_undo_options(function: F) -> F:
    undone = click.option(
        "--undone",
        metavar="NODE",
        multiple=True,
        help="Confirm that the interrupted undo of this node (or task, glob) completed.",
    )
    again = click.option(
        "--again",
        metavar="NODE",
        multiple=True,
        help="Its undo was interrupted, and its outcome is unknown: undo this node (or task, glob) again.",
    )
    return again(undone(function))


@click.group(
    "runs", cls=RunsGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.pass_context
@journal_option
@_limit
@output_option
def command(ctx: click.Context, journal: str | None, limit: int, output: str) -> None:
    """List the newest runs; with a command, inspect or continue one.

    RUN is an id, the beginning or end of an id, or `last`.
    """
    ctx.obj = journal
    if ctx.invoked_subcommand is None:
        _show_list(journal, limit, output)


@command.command("list")
@_limit
@click.option("--name", default="", help="Only runs of the pipeline with this name.")
@output_option
@click.pass_context
def list_command(ctx: click.Context, limit: int, name: str, output: str) -> None:
    """List the newest runs, like `kubexm runs` alone."""
    above = {} if ctx.parent is None else ctx.parent.params
    given = {"limit": limit, "output": output}
    chosen: dict[str, Any] = {
        option: above[option] if ctx.get_parameter_source(option) is ParameterSource.DEFAULT else value
        for option, value in given.items()
    }
    _show_list(ctx.obj, **chosen, name=name)


def _show_list(journal: str | None, limit: int, output: str, *, name: str = "") -> None:
    from kubexm_exec.cli.runtables import list_runs, row_json

    found = service_of(journal).runs(limit=limit, name=name)
    if output == "json":
        click.echo(json.dumps([row_json(each) for each in found], ensure_ascii=False))
    else:
        click.echo(list_runs(found, name))


@command.command("resume")
@click.argument("run")
@click.option(
    "--from",
    "begin",
    metavar="NODE",
    multiple=True,
    help="Run this node (or module, task, glob) and everything after it again.",
)
@click.option(
    "--only", metavar="NODE", multiple=True, help="Of the remaining work, only this node (or module, task, glob)."
)
@click.option("--hosts", metavar="HOSTS", help=f"Of the remaining work, only on these hosts: {HOST_PATTERNS}.")
@click.option(
    "--done",
    metavar="NODE",
    multiple=True,
    help="Confirm that this node (or task, glob) completed: it was interrupted, and its outcome is unknown.",
)
@_broken_undo_options
@overwrite_option
@click.option(
    "--accept-changes",
    is_flag=True,
    help="The spec has changed: run the changed nodes and everything that depends on them.",
)
@forks_option(default=None, instead="; by default as before")
@diff_option
@verbose_option
@console_option
@wait_option
@patient_option
@click.pass_obj
def resume_command(
    journal: str | None,
    run: str,
    begin: tuple[str, ...],
    only: tuple[str, ...],
    hosts: str | None,
    done: tuple[str, ...],
    again: tuple[str, ...],
    undone: tuple[str, ...],
    overwrite: bool,
    accept_changes: bool,
    forks: int | None,
    diffs: bool,
    verbose: int,
    output: str,
    wait: bool,
    patient: bool,
) -> None:
    """Continue RUN: keep what succeeded, run what failed, was skipped or did not complete.

    Actions that were interrupted are checked first. Actions whose outcome is unknown must be confirmed.
    """
    from kubexm_exec.cli.running import Terminal

    if accept_changes and (only or hosts is not None):
        raise Invalid("--accept-changes applies to the whole run", "omit --only and --hosts")
    request = ResumeRequest(
        run=run, begin=begin, only=only, hosts=hosts, done=done, again=again, undone=undone, overwrite=overwrite,
        accept_changes=accept_changes, forks=forks, verbose=verbose, wait=wait, patient=patient,
    )  # fmt: skip
    terminal = Terminal(output, verbose, diffs=diffs, journal=journal)
    raise SystemExit(terminal.conclude(service_of(journal).resume(request, terminal)))


@command.command("rollback")
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask for approval.")
@_broken_undo_options
@overwrite_option
@verbose_option
@console_option
@wait_option
@click.pass_obj
def rollback_command(
    journal: str | None,
    run: str,
    yes: bool,
    again: tuple[str, ...],
    undone: tuple[str, ...],
    overwrite: bool,
    verbose: int,
    output: str,
    wait: bool,
) -> None:
    """Undo the changes of RUN, last first, after listing what cannot be undone."""
    from kubexm_exec.cli.running import Terminal

    service = service_of(journal)
    request = RollbackRequest(run=run, again=again, undone=undone, overwrite=overwrite, verbose=verbose, wait=wait)
    found = service.undoable(request)
    if output != "json":
        _tell_undoable(found, overwrite=overwrite)
    if not yes:
        approve("undo it?", output)
    terminal = Terminal(output, verbose, journal=journal)
    # The run that was shown: `last` may mean another one by now.
    approved = replace(request, run=found.info.row.id)
    raise SystemExit(terminal.conclude(service.roll_back(approved, terminal)))


def _tell_undoable(found: Undoable, *, overwrite: bool) -> None:
    row, blind, later = found.info.row, found.blind, found.later
    can = len(found.can) - len(found.withheld)
    click.echo(f"run {row.id} of {row.name}: {plural(can, 'action')} can be undone", err=True)
    for node, where in found.cannot:
        click.echo(f"  cannot be undone: {node} on {where}", err=True)
    for node, where in found.withheld:
        why = "what it replaced contains a secret, such as a key, and is not in the journal"
        click.echo(f"  cannot be undone: {node} on {where}: {why}", err=True)
    if blind:
        text = ", ".join(blind[:_NAMED]) + (f" and {len(blind) - _NAMED} more" if len(blind) > _NAMED else "")
        click.echo(f"  undone without checking for later changes: {text}", err=True)
    for each in later[:_NAMED]:
        began = timestamp(each.created)
        click.echo(f"  later run on the same target: {each.id} of {each.name} ({began})", err=True)
    if len(later) > _NAMED:
        click.echo(f"  and {len(later) - _NAMED} more", err=True)
    if later and overwrite:
        click.echo("  what they changed of the same is lost: --overwrite restores the state before this run", err=True)
    elif later:
        click.echo("  their changes are kept: roll them back first to undo those too", err=True)


@command.command("cancel")
@click.argument("run")
@output_option
@click.pass_obj
def cancel_command(journal: str | None, run: str, output: str) -> None:
    """Stop RUN: running actions are ended, `always` hooks run, and it can be resumed later."""
    row = service_of(journal).cancel(run).row
    told = {"run": row.id, "asked": "cancel", "holder": str(row.holder)}
    click.echo(json.dumps(told) if output == "json" else f"asked run {row.id} of {row.holder} to stop")


@command.command("answer")
@click.argument("run")
@click.argument("node")
@click.argument("answer", type=click.Choice(["yes", "no"]))
@click.option("--host", default="", metavar="HOST", help="Only on this host; by default wherever the node asks.")
@output_option
@click.pass_obj
def answer_command(journal: str | None, run: str, node: str, answer: str, host: str, output: str) -> None:
    """Answer the question that NODE of RUN asks, such as a gate, from another terminal or machine."""
    row = service_of(journal).answer(AnswerRequest(run=run, node=node, answer=answer == "yes", host=host)).row
    told = {"run": row.id, "node": node, "host": host or None, "answer": answer, "holder": str(row.holder)}
    click.echo(json.dumps(told) if output == "json" else f"answered {node} of run {row.id} with {answer}")


@command.command("events")
@click.argument("run", default="last")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@click.pass_obj
@telling
def events_command(journal: str | None, run: str, follow: bool) -> None:
    """Print the events of RUN as JSON lines, named as in `kubexm-run --output json`.

    Every session begins with `run.started` and ends with `run.finished`; an interrupted one has the
    status `Interrupted`. For the output of steps, see `kubexm runs logs`.
    """
    from kubexm_exec.console.jsonl import json_line

    try:
        for event in service_of(journal).events(run, follow=follow):
            click.echo(json_line(event.to_json()), nl=False)
    except KeyboardInterrupt:
        raise SystemExit(codes.INTERRUPTED) from None


@command.command("report")
@click.argument("run", default="last")
@click.option(
    "-o", "--out", "file", metavar="FILE", required=True, help="Where to write the page; - is standard output."
)
@force_option
@click.pass_obj
@telling
def report_command(journal: str | None, run: str, file: str, force: bool) -> None:
    """Write the HTML report of RUN, like `kubexm-run --report`; also of an interrupted or running one."""
    from kubexm_exec.report import ReportEvents, render_report

    check_targets([(file, Product.REPORT)], "text", force=force, reads=[journal])
    found = service_of(journal).report(run)
    told = ReportEvents()
    for event in found.events:
        told(event)
    write_text(file, render_report(found.past.graph, found.past.shown, told.events), private=True)
    if file != "-":
        click.echo(f"wrote {file}")
