"""``kubexm runs``: what was run, how it went, and going on with it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kubexm_exec.cli.common import HOST_PATTERNS, fail, output_option
from kubexm_exec.cli.journaled import journal_option, open_store, overwrite_option, refuse, wait_option

F = TypeVar("F", bound=Callable[..., Any])

_ELSEWHERE: Final = ("events", "logs", "prune", "report", "show")
"""Commands that live in a module of their own: ``runs_NAME``."""


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
        "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first."
    )(function)


def _broken_undo_options(function: F) -> F:
    undone = click.option(
        "--undone", metavar="NODE", multiple=True, help="The same, but it was undone, as you have seen."
    )
    again = click.option(
        "--again",
        metavar="NODE",
        multiple=True,
        help="Its undo broke off, and nobody can tell how far it came: undo this node (or task, glob ...) once more.",
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
    """Show the newest runs; with a command, look at one or go on with it.

    A run is named by its id, by the beginning or the end of it, or as `last`.
    """
    ctx.obj = journal
    if ctx.invoked_subcommand is None:
        _show_list(journal, limit, output)


@command.command("list")
@_limit
@click.option("--name", default="", help="Only runs of the pipeline of this name.")
@output_option
@click.pass_context
def list_command(ctx: click.Context, limit: int, name: str, output: str) -> None:
    """Show the newest runs, as `kubexm runs` alone does."""
    above = {} if ctx.parent is None else ctx.parent.params
    given = {"limit": limit, "output": output}
    chosen: dict[str, Any] = {
        option: above[option] if ctx.get_parameter_source(option) is ParameterSource.DEFAULT else value
        for option, value in given.items()
    }
    _show_list(ctx.obj, **chosen, name=name)


def _show_list(journal: str | None, limit: int, output: str, *, name: str = "") -> None:
    from kubexm_exec.cli.pasts import row_json
    from kubexm_exec.cli.runtables import list_runs
    from kubexm_exec.engine.ports import JournalError

    store = open_store(journal, output, reading=True)
    try:
        rows = store.runs(limit=limit, name=name)
        if output == "json":
            click.echo(json.dumps([row_json(store, row) for row in rows], ensure_ascii=False))
        else:
            click.echo(list_runs(store, rows, name))
    except JournalError as error:
        refuse(error, output)
    finally:
        store.close()


@command.command("resume")
@click.argument("run")
@click.option(
    "--from",
    "begin",
    metavar="NODE",
    multiple=True,
    help="Run this node (or module, task, glob) and all after it again.",
)
@click.option(
    "--only", metavar="NODE", multiple=True, help="Of what is not done, only this node (or module, task, glob)."
)
@click.option("--hosts", metavar="HOSTS", help=f"Of what is not done, only on these hosts: {HOST_PATTERNS}.")
@click.option(
    "--done",
    metavar="NODE",
    multiple=True,
    help="It broke off, and nobody can tell how far it came: this node (or task, glob ...) was done, as you have seen.",
)
@_broken_undo_options
@overwrite_option
@click.option(
    "--accept-changes", is_flag=True, help="The spec has changed: run the changed nodes, and all that depends on them."
)
@click.option("--forks", type=click.IntRange(1, 10_000), help="How many actions run at once; as before by default.")
@click.option("-v", "--verbose", count=True, help="Show the output of steps; -vv shows more.")
@click.option(
    "--output",
    type=click.Choice(["auto", "live", "plain", "json", "quiet"]),
    default="auto",
    show_default=True,
    help="As of kubexm-run.",
)
@wait_option
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
    verbose: int,
    output: str,
    wait: bool,
) -> None:
    """Go on with RUN: what succeeded stays, what failed, was skipped or did not come to its end is run.

    What was running when it broke off is looked at first, and never run twice blindly.
    """
    from kubexm_exec.cli.pasts import check_nodes, chosen_hosts
    from kubexm_exec.cli.resuming import load_past, resume
    from kubexm_exec.engine.resume import Selection

    form = "json" if output == "json" else "text"
    store = open_store(journal, form)
    past = load_past(store, run, form)
    check_nodes([node.id for node in past.graph.steps()], (*begin, *only), past.row.id, form)
    chosen = None if hosts is None else chosen_hosts(past.graph.hosts, hosts, form)
    if accept_changes and (only or hosts is not None):
        fail("changes are accepted for all of the run", "leave --only and --hosts out", output=form)
    selection = Selection(begin=begin, only=only, hosts=chosen, done=done)
    code = resume(
        store, past, selection, accept=accept_changes, wait=wait, output=output, verbose=verbose, forks=forks,
        again=again, undone=undone, overwrite=overwrite,
    )  # fmt: skip
    raise SystemExit(code)


@command.command("rollback")
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_broken_undo_options
@overwrite_option
@click.option("-v", "--verbose", count=True, help="Show the output of steps; -vv shows more.")
@click.option(
    "--output",
    type=click.Choice(["auto", "live", "plain", "json", "quiet"]),
    default="auto",
    show_default=True,
    help="As of kubexm-run.",
)
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
    """Undo what RUN has done, from its end to its beginning; what cannot be undone is named first."""
    from kubexm_exec.cli.resuming import load_past
    from kubexm_exec.cli.rollback import roll_back

    form = "json" if output == "json" else "text"
    store = open_store(journal, form)
    past = load_past(store, run, form)
    code = roll_back(
        store, past, yes=yes, wait=wait, output=output, verbose=verbose, again=again, undone=undone,
        overwrite=overwrite,
    )  # fmt: skip
    raise SystemExit(code)


@command.command("cancel")
@click.argument("run")
@output_option
@click.pass_obj
def cancel_command(journal: str | None, run: str, output: str) -> None:
    """Ask RUN to stop: what runs is ended, `always` hooks run, and it can be resumed later."""
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.journal.owner import Owner
    from kubexm_exec.journal.results import is_alive, state_of

    store = open_store(journal, output)
    try:
        row = store.run(run)
        if not is_alive(store, row):
            fail(
                f"run {row.id} does not run: it is {state_of(store, row).value}",
                f"kubexm runs show {row.id}",
                output=output,
            )
        store.ask(row.id, "cancel", str(Owner.me()))
    except JournalError as error:
        refuse(error, output)
    told = {"run": row.id, "asked": "cancel", "holder": str(row.holder)}
    click.echo(json.dumps(told) if output == "json" else f"asked run {row.id} of {row.holder} to stop")
