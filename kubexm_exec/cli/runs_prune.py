"""``kubexm runs prune``: forgets old runs that nobody needs any more, and gives their space back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import fail, output_option
from kubexm_exec.cli.journaled import open_store, refuse

if TYPE_CHECKING:
    from kubexm_exec.journal.store import RunRow, Store

_AGE: Final = "30d"
_SHOWN: Final = 20


@click.command("prune")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N runs, whatever their age.")
@click.option(
    "--older-than", metavar="TIME", help=f"Only runs that began longer ago, such as 12h or 90d; {_AGE} without --keep."
)
@click.option("--all", "everything", is_flag=True, help="Also runs that are still of use, but never one that goes on.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@click.pass_obj
def command(
    journal: str | None, keep: int | None, older_than: str | None, everything: bool, yes: bool, output: str
) -> None:
    """Forget old runs, with their logs and what they keep for an undo.

    Runs that go on are never removed. Neither are, without --all: those that can still be resumed (they did not end
    well, or left out hosts that failed within maxFailures, and no later run of the same spec on the same target did all
    of it), and of each spec on each target the newest success, which `kubexm drift` needs.
    """
    from kubexm_exec.engine.ports import JournalError
    from kubexm_spec.duration import parse_duration

    try:
        age = parse_duration(older_than or (_AGE if keep is None else 0))
    except ValueError as error:
        fail(f"--older-than {older_than}: {error}", output=output)
    store = open_store(journal, output)
    try:
        rows = store.runs(limit=sys.maxsize >> 32)
        found = list(old(store, rows, keep or 0, time.time() - age, everything=everything))
        if not found:
            _end(0, output, "there is nothing to remove")
            return
        if not yes:
            _ask(found, output)
        _remove(store, found)
    except JournalError as error:
        refuse(error, output)
    _end(len(found), output, f"removed {_runs(len(found))}; {_runs(len(rows) - len(found))} left")


def old(store: Store, rows: Sequence[RunRow], keep: int, before: float, *, everything: bool) -> Iterator[RunRow]:
    """The runs (given newest first) that nobody needs any more."""
    from kubexm_exec.journal.results import is_alive

    good: set[tuple[str, str]] = set()
    for number, row in enumerate(rows):
        of = (row.spec, row.target)
        # The newest success is needed by drift; what left something to do and has had no success since, by a resume.
        needed = of not in good and row.status != "RolledBack"
        if row.status == "Success" and not (row.counts.get("failed") or row.counts.get("unreachable")):
            good.add(of)
        if number < keep or row.created > before or (needed and not everything) or is_alive(store, row):
            continue
        yield row


def _runs(number: int) -> str:
    from kubexm_exec.console.text import plural

    return plural(number, "run")


def _ask(found: Sequence[RunRow], output: str) -> None:
    from kubexm_exec.cli.runtables import moment
    from kubexm_exec.console.text import columns, one_line

    if output != "json":
        click.echo(f"{_runs(len(found))} would be removed:", err=True)
        cells = [[f"  {row.id}", one_line(row.name), row.status, moment(row.created)] for row in found[:_SHOWN]]
        for line in columns(cells, left=frozenset({0, 1, 2, 3})):
            click.echo(line, err=True)
        if len(found) > _SHOWN:
            click.echo(f"  + {len(found) - _SHOWN} more", err=True)
    if output == "json" or not sys.stdin.isatty():
        fail("nobody can be asked whether to remove them", "say so: --yes", code=codes.REFUSED, output=output)
    if not click.confirm("remove them?", err=True):
        raise SystemExit(codes.REFUSED)


def _remove(store: Store, found: Sequence[RunRow]) -> None:
    import shutil

    from kubexm_exec.journal.database import state_folder
    from kubexm_exec.journal.store import folder_of

    for row in found:
        # The journal first: a folder that nobody knows is only lost space. One at a time: others want to write, too.
        store.remove([row.id])
        shutil.rmtree(folder_of(state_folder(), row.id), ignore_errors=True)
    store.give_back()


def _end(removed: int, output: str, text: str) -> None:
    click.echo(json.dumps({"removed": removed}) if output == "json" else text)
