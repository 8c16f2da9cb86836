"""``kubexm inventory``: the hosts of an inventory, in whatever form it is written."""

from __future__ import annotations

import json
from typing import Any

import click

from kubexm_exec.cli.common import Warnings, inventory_option, output_option, site_documents
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.console.text import columns
from kubexm_exec.model.graph import GraphHost
from kubexm_exec.service.requests import HostInfo, InventoryRequest
from kubexm_exec.values.evaluate import host_values
from kubexm_spec.diagnostics import plural

_HEAD = ("host", "address", "port", "user", "connector", "roles", "groups", "labels")


@click.command("inventory")
@click.argument("spec", required=False)
@inventory_option
@click.option("--host", metavar="NAME", help="Show one host with its variables and their sources.")
@output_option
def command(spec: str | None, inventory: str | None, host: str | None, output: str) -> None:
    """Show the hosts of SPEC's inventory, or of the one given with -i.

    No host is contacted. An inventory program is run.
    """
    request = InventoryRequest(documents=site_documents(spec, inventory), pattern=host or "")
    found = service_of(None).inventory(request, Warnings(output))
    if host is not None:
        for each in found:
            _one(each, output)
        return
    hosts = [each.host for each in found]
    if output == "json":
        click.echo(json.dumps([_data(one) for one in hosts], ensure_ascii=False, default=str))
        return
    rows = [_HEAD, *(_row(one) for one in hosts)]
    for line in columns(rows, left=frozenset(range(len(_HEAD))) - {2}):
        click.echo(line)
    click.echo(f"\n{plural(len(hosts), 'host')}")


def _row(host: GraphHost) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in host.labels.items())
    port = str(host.port) if host.port is not None else "-"
    cells = (host.name, host.address, port, host.user, host.connector, ",".join(host.roles), ",".join(host.groups))
    return tuple(cell or "-" for cell in (*cells, labels))


def _data(host: GraphHost) -> dict[str, Any]:
    data = {**host_values(host), "internalAddress": host.internal_address, "options": dict(host.options)}
    return {"host": data.pop("name"), **data}


def _one(found: HostInfo, output: str) -> None:
    host = found.host
    if output == "json":
        click.echo(
            json.dumps({**_data(host), "vars": [row.to_json() for row in found.vars]}, ensure_ascii=False, default=str)
        )
        return
    options = [(key, json.dumps(value, ensure_ascii=False, default=str)) for key, value in host.options.items()]
    settings = [*zip(_HEAD, _row(host), strict=True), *options]
    for line in columns(settings, left=frozenset({0, 1})):
        click.echo(line)
    if not found.vars:
        return
    click.echo("\nvars")
    rows = [(f"  {row.name}", json.dumps(row.value, ensure_ascii=False, default=str), row.source) for row in found.vars]
    for line, row in zip(columns(rows, left=frozenset({0, 1, 2})), found.vars, strict=True):
        click.echo(line)
        for hidden in row.hidden:
            click.echo(f"      hides {hidden}")
