"""``kubexm vars``: the values a host sees, and where each one is from."""

from __future__ import annotations

import json
from typing import Any

import click
from msgspec.structs import replace

from kubexm_exec.cli.common import Warnings, output_option, value_options
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.service.requests import Documents, VarsRequest


@click.command("vars")
@click.argument("spec")
@click.option("--host", required=True, metavar="HOST", help="The host whose values to show.")
@click.option(
    "--task", metavar="MODULE/TASK", help="Show the values inside a task (or MODULE); by default those of the pipeline."
)
@value_options
@output_option
def command(spec: str, host: str, task: str | None, choice: Documents, output: str) -> None:
    """Show params and vars as HOST sees them, each with its source.

    The source closest to the host wins: pipeline vars < module vars < task vars < inventory vars < role vars <
    group vars < host vars < --vars-file < -e. Of the same level varsFiles win.
    Parameters: default < --vars-file < -e.
    """
    request = VarsRequest(documents=replace(choice, spec=spec), host=host, scope=(task or "").strip("/"))
    rows = service_of(None).vars(request, Warnings(output))
    if output == "json":
        click.echo(json.dumps([row.to_json() for row in rows], ensure_ascii=False, default=str))
        return
    name_width = max((len(row.name) for row in rows), default=4)
    shown = [(row, _short(row.value)) for row in rows]
    value_width = min(max((len(text) for _, text in shown), default=5), 48)
    for row, text in shown:
        click.echo(f"{row.name:<{name_width}}  {text:<{value_width}}  {row.source}")
        for hidden in row.hidden:
            click.echo(f"{'':<{name_width}}    {'hides ' + hidden}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 48 else text[:45] + "..."
