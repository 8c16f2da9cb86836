"""``kubexm runs prune``: removes old runs that are of no use any more, and frees their space."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import click

from kubexm_exec.cli.common import approve, output_option
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.cli.runtables import moment
from kubexm_exec.console.text import columns, one_line
from kubexm_exec.service.errors import Invalid
from kubexm_exec.service.requests import PruneRequest, RunRow
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import parse_duration

_AGE: Final = "30d"
_SHOWN: Final = 20


@click.command("prune")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N runs, whatever their age.")
@click.option(
    "--older-than",
    metavar="TIME",
    help=f"Only runs that began before this time, such as 12h or 90d; {_AGE} without --keep.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Include runs that are still useful, but never one in progress."
)
@click.option("--yes", is_flag=True, help="Do not ask for approval.")
@output_option
@click.pass_obj
def command(
    journal: str | None, keep: int | None, older_than: str | None, everything: bool, yes: bool, output: str
) -> None:
    """Remove old runs, with their logs and their data for undo.

    Runs in progress are never removed. Without --all, these are kept as well: runs that can still be resumed (they did
    not succeed on all hosts, and no later run of the same spec on the same target did), and the newest successful run
    of each spec on each target, which `kubexm drift` needs.
    """
    try:
        age = parse_duration(older_than or (_AGE if keep is None else 0))
    except ValueError as error:
        raise Invalid(f"--older-than {older_than}: {error}") from None
    service = service_of(journal)
    found = service.prunable(PruneRequest(keep=keep or 0, age=age, everything=everything))
    if not found:
        _end(0, output, "there is nothing to remove")
        return
    if not yes:
        _ask([each.row for each in found], output)
    left = service.prune([each.row.id for each in found])
    _end(len(found), output, f"removed {_runs(len(found))}; {_runs(left)} left")


def _runs(number: int) -> str:
    return plural(number, "run")


def _ask(found: Sequence[RunRow], output: str) -> None:
    if output != "json":
        click.echo(f"{_runs(len(found))} would be removed:", err=True)
        cells = [[f"  {row.id}", one_line(row.name), row.status, moment(row.created)] for row in found[:_SHOWN]]
        for line in columns(cells, left=frozenset({0, 1, 2, 3})):
            click.echo(line, err=True)
        if len(found) > _SHOWN:
            click.echo(f"  + {len(found) - _SHOWN} more", err=True)
    approve("remove them?", output)


def _end(removed: int, output: str, text: str) -> None:
    click.echo(json.dumps({"removed": removed}) if output == "json" else text)
