"""``kubexm runs logs``: what the steps of a run printed, whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import HOST_PATTERNS, fail, output_option, wants_color
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.service.errors import NotFound

if TYPE_CHECKING:
    from kubexm_exec.model.events import Event


@click.command("logs")
@click.argument("run", default="last")
@click.option("--host", "hosts", metavar="HOSTS", help=f"Only these hosts: {HOST_PATTERNS}.")
@click.option("--node", "nodes", metavar="NODE", multiple=True, help="Only this node (or module, task, glob).")
@click.option("-f", "--follow", is_flag=True, help="Continue until the run ends.")
@output_option
@click.pass_obj
def command(
    journal: str | None, run: str, hosts: str | None, nodes: tuple[str, ...], follow: bool, output: str
) -> None:
    """Print the output of the steps of RUN, with time, node and host.

    The full output is next to the journal, on the machine that ran it. The default is the newest run.
    """
    service = service_of(journal)
    show = _shower(service.get(run).past.whole, output)
    try:
        for event in service.logs(run, hosts=hosts, nodes=nodes, follow=follow):
            click.echo(show(event), nl=False)
    except KeyboardInterrupt:
        raise SystemExit(codes.INTERRUPTED) from None
    except NotFound as error:
        if error.kind == "elsewhere":
            fail(error.message, error.hint, code=codes.FAILED, output=output, kind="journal")
        if error.kind != "no-output":
            raise
        if output != "json":
            click.echo(error.message, err=True)


def _shower(graph: Any, output: str) -> Callable[[Event], str]:
    from kubexm_exec.console.jsonl import json_line
    from kubexm_exec.console.lines import Lines
    from kubexm_exec.console.text import Paint

    lines = Lines(graph, Paint(wants_color(sys.stdout)), results=False, output=True)

    def show(event: Event) -> str:
        if output != "json":
            return lines(event)
        line = event.to_json()
        del line["run"]
        return json_line(line)

    return show
