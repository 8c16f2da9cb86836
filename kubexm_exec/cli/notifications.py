"""``kubexm notifications``: list handlers that are due, and drop those that are not needed any more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli.common import approve, output_option
from kubexm_exec.cli.journaled import journal_option, service_of
from kubexm_exec.cli.runtables import moment
from kubexm_exec.console.text import columns, one_line
from kubexm_exec.model.result import timestamp
from kubexm_exec.service.requests import NotificationsRequest
from kubexm_spec.diagnostics import plural

if TYPE_CHECKING:
    from kubexm_exec.service.requests import DueHandler


@click.group("notifications", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
@journal_option
@output_option
def command(ctx: click.Context, journal: str | None, output: str) -> None:
    """List the handlers that are due: notified by a change, and not run successfully since.

    The next run of the same target runs them, and so does a resume of the run that made the change.
    """
    ctx.obj = journal
    if ctx.invoked_subcommand is None:
        _list(journal, output, NotificationsRequest())


@command.command("list")
@click.argument("handler", default="")
@click.option("--host", default="", help="Only on this host.")
@click.option("--target", default="", help="Only of this target.")
@output_option
@click.pass_obj
def list_command(journal: str | None, handler: str, host: str, target: str, output: str) -> None:
    """List the handlers that are due; HANDLER is a name, an id or a glob of ids."""
    _list(journal, output, NotificationsRequest(handler=handler, host=host, target=target))


@command.command("drop")
@click.argument("handler")
@click.option("--host", default="", help="Only on this host.")
@click.option("--target", default="", help="Only of this target.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@click.pass_obj
def drop_command(journal: str | None, handler: str, host: str, target: str, yes: bool, output: str) -> None:
    """Forget that HANDLER (a name, an id or a glob of ids) is due, on all hosts or on one.

    Nothing runs on any host. Refused while a run works on the target.
    """
    service = service_of(journal)
    found = service.notifications(NotificationsRequest(handler=handler, host=host, target=target))
    if not found:
        _end(0, output, f'no handler "{one_line(handler)}" is due')
        return
    if not yes:
        if output != "json":
            click.echo(f"{plural(len(found), 'notification')} would be dropped:", err=True)
            for line in _table(found):
                click.echo(line, err=True)
        approve("drop them?", output)
    dropped = service.drop_notifications(found)
    _end(dropped, output, f"dropped {plural(dropped, 'notification')}")


def _list(journal: str | None, output: str, request: NotificationsRequest) -> None:
    found = service_of(journal).notifications(request)
    if output == "json":
        click.echo(json.dumps([_data(each) for each in found], ensure_ascii=False))
    elif found:
        for line in _table(found):
            click.echo(line)
    else:
        click.echo("no handler is due")


def _table(found: Sequence[DueHandler]) -> list[str]:
    cells = [["handler", "host", "due since", "run", "notified by", "spec"]]
    for each in found:
        first = each.by[0]
        by = ", ".join(dict.fromkeys(one.node for one in each.by))
        cells.append([
            one_line(each.handler), each.host, moment(first.at), first.run,
            one_line(by) + ("" if each.sure else " (interrupted: perhaps not)"), one_line(first.spec),
        ])  # fmt: skip
    return columns(cells, left=frozenset(range(6)))


def _data(each: DueHandler) -> dict[str, Any]:
    return {
        "target": each.target, "handler": each.handler, "host": each.host, "sure": each.sure,
        "notifiedBy": [
            {"node": one.node, "run": one.run, "spec": one.spec, "time": timestamp(one.at), "sure": one.sure}
            for one in each.by
        ],
    }  # fmt: skip


def _end(dropped: int, output: str, text: str) -> None:
    click.echo(json.dumps({"dropped": dropped}) if output == "json" else text)
