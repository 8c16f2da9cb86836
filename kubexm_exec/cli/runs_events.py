"""``kubexm runs events``: what happened in a run, as JSON lines."""

from __future__ import annotations

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import telling
from kubexm_exec.cli.journaled import service_of


@click.command("events")
@click.argument("run", default="last")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@click.pass_obj
@telling
def command(journal: str | None, run: str, follow: bool) -> None:
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
