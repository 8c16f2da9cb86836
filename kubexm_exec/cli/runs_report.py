"""``kubexm runs report``: the HTML page of any run."""

from __future__ import annotations

import click

from kubexm_exec.cli.common import telling
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text


@click.command("report")
@click.argument("run", default="last")
@click.option(
    "-o", "--out", "file", metavar="FILE", required=True, help="Where to write the page; - is standard output."
)
@force_option
@click.pass_obj
@telling
def command(journal: str | None, run: str, file: str, force: bool) -> None:
    """Write the HTML report of RUN, like `kubexm-run --report`; also of an interrupted or running one."""
    from kubexm_exec.report import render_report
    from kubexm_exec.report.collect import ReportEvents

    check_targets([(file, Product.REPORT)], "text", force=force, reads=[journal])
    found = service_of(journal).report(run)
    told = ReportEvents()
    for event in found.events:
        told(event)
    write_text(file, render_report(found.past.graph, found.past.shown, told.events), private=True)
    if file != "-":
        click.echo(f"wrote {file}")
