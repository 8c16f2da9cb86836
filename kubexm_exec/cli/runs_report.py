"""``kubexm runs report``: the HTML page of any run."""

from __future__ import annotations

import click

from kubexm_exec.cli.pasts import open_past, read_past
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text


@click.command("report")
@click.argument("run", default="last")
@click.option("-o", "--out", "file", metavar="FILE", required=True, help="Where to write the page; - is the output.")
@force_option
@click.pass_obj
def command(journal: str | None, run: str, file: str, force: bool) -> None:
    """Write the HTML report of RUN, as `kubexm-run --report` does; also of one that broke off or still runs."""
    from kubexm_exec.engine import entries
    from kubexm_exec.engine.ports import JournalError
    from kubexm_exec.journal.replay import Retelling
    from kubexm_exec.model.events import ACTION_RETRY, GRAPH_EXTENDED, RUN_STOPPING
    from kubexm_exec.report import render_report
    from kubexm_exec.report.collect import ReportEvents

    check_targets([(file, Product.REPORT)], "text", force=force, reads=[journal])
    store, past = open_past(journal, run, "text")
    seen = read_past(store, past, "text")
    told = ReportEvents()
    retell = Retelling(seen.row, seen.graph, past.inputs["forks"])
    try:
        for _, _, rows in store.entries(seen.row.id):
            for row in rows:
                for event in retell(entries.read(row)):
                    if event.kind in (ACTION_RETRY, GRAPH_EXTENDED, RUN_STOPPING):
                        told(event)
    except JournalError as error:
        from kubexm_exec.cli.journaled import refuse

        refuse(error, "text")
    write_text(file, render_report(seen.graph, seen.shown, told.events), private=True)
    if file != "-":
        click.echo(f"wrote {file}")
