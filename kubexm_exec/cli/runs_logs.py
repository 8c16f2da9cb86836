"""``kubexm runs logs``: what the steps of a run printed, whole."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import HOST_PATTERNS, fail, output_option, wants_color
from kubexm_exec.cli.pasts import check_nodes, chosen_hosts, looks, open_past

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubexm_exec.cli.resuming import Past
    from kubexm_exec.journal.store import RunRow, Store


@click.command("logs")
@click.argument("run", default="last")
@click.option("--host", "hosts", metavar="HOSTS", help=f"Only of these hosts: {HOST_PATTERNS}.")
@click.option("--node", "nodes", metavar="NODE", multiple=True, help="Only of this node (or module, task, glob).")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the run ends.")
@output_option
@click.pass_obj
def command(
    journal: str | None, run: str, hosts: str | None, nodes: tuple[str, ...], follow: bool, output: str
) -> None:
    """Print what the steps of RUN printed, line by line with time, node and host.

    The output is kept in full beside the journal, on the machine that ran it. Without RUN it is the newest one.
    """
    from kubexm_exec.engine.resume import matches
    from kubexm_exec.journal.database import state_folder
    from kubexm_exec.journal.logfile import NAME, read_log
    from kubexm_exec.journal.store import folder_of

    store, past = open_past(journal, run, output)
    whole = _whole(store, past, output)
    check_nodes([node.id for node in whole.steps()], nodes, past.row.id, output)
    chosen = None if hosts is None else chosen_hosts(past.graph.hosts, hosts, output)
    folder = folder_of(state_folder(), past.row.id)
    show = _shower(whole, output)
    offset, said = 0, False
    try:
        for alive in looks(store, past.row.id, follow=follow, output=output):
            for after, piece in read_log(folder, offset):
                offset, said = after, True
                if (chosen is None or piece["host"] in chosen) and (not nodes or matches(piece["node"], nodes)):
                    click.echo(show(piece), nl=False)
            if not said and not (folder / NAME).exists() and not (alive and follow):
                _nothing(past.row, folder, output)
    except KeyboardInterrupt:
        raise SystemExit(codes.INTERRUPTED) from None


def _whole(store: Store, past: Past, output: str) -> Any:
    """The graph with what was added to it while it ran: that may have printed something, too."""
    from kubexm_exec.cli.pasts import read_past

    return read_past(store, past, output).whole


def _shower(graph: Any, output: str) -> Callable[[dict[str, Any]], str]:
    from kubexm_exec.console.jsonl import json_line
    from kubexm_exec.console.lines import Lines
    from kubexm_exec.console.text import Paint
    from kubexm_exec.model.events import ACTION_OUTPUT, Event

    lines = Lines(graph, Paint(wants_color(sys.stdout)), results=False, output=True)

    def show(piece: dict[str, Any]) -> str:
        data = {key: value for key, value in piece.items() if key not in ("time", "node", "host")}
        event = Event(ACTION_OUTPUT, "", piece["time"], piece["node"], piece["host"], data)
        if output == "json":
            line = event.to_json()
            del line["run"]
            return json_line(line)
        return lines(event)

    return show


def _nothing(row: RunRow, folder: Path, output: str) -> None:
    """Say why there is no log."""
    import socket

    if row.holder.host != socket.gethostname():
        fail(
            f"the log of run {row.id} is not here: it was run on {row.holder.host} by {row.holder.user}",
            f"type it there, or see the end of every output: kubexm runs report {row.id} -o FILE",
            code=codes.FAILED,
            output=output,
            kind="journal",
        )
    if output != "json":
        click.echo(f"no step of run {row.id} has printed anything (its log would be in {folder})", err=True)
