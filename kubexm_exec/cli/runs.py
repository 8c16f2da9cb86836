"""``kubexm runs``: what was run, how it went, and going on with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli.common import fail, output_option
from kubexm_exec.cli.journaled import journal_option, open_store, refuse, wait_option

if TYPE_CHECKING:
    from kubexm_exec.journal.store import RunRow


@click.group("runs", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
@journal_option
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@output_option
def command(ctx: click.Context, journal: str | None, limit: int, output: str) -> None:
    """Show the newest runs; with a command, look at one or go on with it.

    A run is named by its id, by the beginning or the end of it, or as `last`.
    """
    ctx.obj = journal
    if ctx.invoked_subcommand is not None:
        return
    store = open_store(journal, output)
    rows = store.runs(limit=limit)
    store.close()
    if output == "json":
        click.echo(json.dumps([row_json(row) for row in rows], ensure_ascii=False))
        return
    from kubexm_exec.cli.runtables import list_runs

    click.echo(list_runs(rows))


def row_json(row: RunRow) -> dict[str, Any]:
    """A run as data."""
    from kubexm_exec.result import timestamp

    return {
        "id": row.id, "name": row.name, "status": state_of(row), "message": row.message, "spec": row.spec,
        "target": row.target, "executor": row.executor, "startTime": timestamp(row.created),
        "endTime": timestamp(row.ended), "holder": str(row.holder), "counts": dict(row.counts),
    }  # fmt: skip


def state_of(row: RunRow) -> str:
    """Its status; Interrupted if its process is gone without having said how it ended."""
    return row.status if row.over or row.alive else "Interrupted"


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
@click.option("--hosts", metavar="HOSTS", help="Of what is not done, only on these hosts: names, ranges or globs.")
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
    accept_changes: bool,
    forks: int | None,
    verbose: int,
    output: str,
    wait: bool,
) -> None:
    """Go on with RUN: what succeeded stays, what failed, was skipped or did not come to its end is run.

    What was running when it broke off is looked at first, and never run twice blindly.
    """
    from kubexm_exec.cli.resuming import load_past, resume
    from kubexm_exec.journal.resume import Selection, matches

    form = "json" if output == "json" else "text"
    store = open_store(journal, form)
    past = load_past(store, run, form)
    ids = [node.id for node in past.graph.steps()]
    for glob in (*begin, *only):
        if not any(matches(node, [glob]) for node in ids):
            from kubexm_spec.diagnostics import did_you_mean

            fail(f'there is no node "{glob}" in run {past.row.id}', did_you_mean(glob, ids), output=form)
    chosen = None if hosts is None else _hosts(past.graph.hosts, hosts, form)
    selection = Selection(begin=begin, only=only, hosts=chosen)
    code = resume(store, past, selection, accept=accept_changes, wait=wait, output=output, verbose=verbose, forks=forks)
    raise SystemExit(code)


def _hosts(known: Any, text: str, form: str) -> frozenset[str]:
    from fnmatch import fnmatchcase

    from kubexm_spec.ranges import expand_range

    found: set[str] = set()
    for word in text.split(","):
        names = {name for pattern in expand_range(word.strip()) for name in known if fnmatchcase(name, pattern)}
        if not names:
            fail(f'"{word.strip()}" means no host of the run', f"hosts: {', '.join(known)}", output=form)
        found |= names
    return frozenset(found)


@command.command("rollback")
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
def rollback_command(journal: str | None, run: str, yes: bool, verbose: int, output: str, wait: bool) -> None:
    """Undo what RUN has done, from its end to its beginning; what cannot be undone is named first."""
    from kubexm_exec.cli.resuming import load_past
    from kubexm_exec.cli.rollback import roll_back

    form = "json" if output == "json" else "text"
    store = open_store(journal, form)
    past = load_past(store, run, form)
    raise SystemExit(roll_back(store, past, yes=yes, wait=wait, output=output, verbose=verbose))


@command.command("cancel")
@click.argument("run")
@output_option
@click.pass_obj
def cancel_command(journal: str | None, run: str, output: str) -> None:
    """Ask RUN to stop: what runs is ended, `always` hooks run, and it can be resumed later."""
    from kubexm_exec.journal.errors import JournalError
    from kubexm_exec.journal.holder import Holder

    store = open_store(journal, output)
    try:
        row = store.run(run)
        if not row.alive:
            fail(f"run {row.id} does not run: it is {state_of(row)}", f"kubexm runs show {row.id}", output=output)
        store.ask(row.id, "cancel", str(Holder.me()))
    except JournalError as error:
        refuse(error, output)
    told = {"run": row.id, "asked": "cancel", "holder": str(row.holder)}
    click.echo(json.dumps(told) if output == "json" else f"asked run {row.id} of {row.holder} to stop")
