"""``kubexm runs events``: what happened in a run, as JSON lines."""

from __future__ import annotations

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.pasts import looks, open_past


@click.command("events")
@click.argument("run", default="last")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the run ends.")
@click.pass_obj
def command(journal: str | None, run: str, follow: bool) -> None:
    """Print what happened in RUN as one JSON object a line, named as in `kubexm-run --output json`.

    Every session begins with `run.started` and ends with `run.finished`; one that broke off has the status
    `Interrupted`. What steps printed is not in it: see `kubexm runs logs`.
    """
    from kubexm_exec.console.jsonl import json_line
    from kubexm_exec.engine import entries
    from kubexm_exec.journal.replay import Retelling

    store, past = open_past(journal, run, "text")
    retell = Retelling(past.row, past.graph, past.inputs["forks"])
    last, alive = 0, False
    try:
        for now_alive in looks(store, past.row.id, follow=follow, output="text"):
            alive = now_alive
            for seq, _, rows in store.entries(past.row.id, last):
                last = seq
                for row in rows:
                    for event in retell(entries.read(row)):
                        click.echo(json_line(event.to_json()), nl=False)
        if not alive:
            for event in retell.broke_off():
                click.echo(json_line(event.to_json()), nl=False)
    except KeyboardInterrupt:
        raise SystemExit(codes.INTERRUPTED) from None
