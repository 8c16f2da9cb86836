"""``kubexm graph``: draws the graph of a spec."""

from __future__ import annotations

import click
from msgspec.structs import replace

from kubexm_exec.cli.common import Warnings, value_options
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.cli.targets import Product, check_targets, force_option, write_text
from kubexm_exec.service.requests import Documents


@click.command("graph")
@click.argument("spec")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "json", "svg", "html"]),
    default="mermaid",
    show_default=True,
    help="Text to paste, data, or a picture. SVG and HTML need no network.",
)
@click.option(
    "-o", "--out", "target", default="-", metavar="FILE", help="Where to write it; standard output by default."
)
@force_option
@value_options
def command(spec: str, form: str, target: str, force: bool, choice: Documents) -> None:
    """Draw the graph of SPEC: modules, tasks, steps and their dependencies."""
    from kubexm_exec.draw import draw

    planned = service_of(None).plan(replace(choice, spec=spec), Warnings())
    check_targets([(target, Product.GRAPH)], "text", force=force, reads=planned.reads)
    write_text(target, draw(planned.plan.graph, form))
    if target != "-":
        click.echo(f"Wrote {target}.", err=True)
