"""``kubexm inventory``: the hosts of an inventory, in whatever form it is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli.common import output_option
from kubexm_exec.cli.sites import inventory_option, site_shown
from kubexm_exec.service.sites import hosts_of

if TYPE_CHECKING:
    from kubexm_exec.compile.state import State
    from kubexm_exec.model.graph import GraphHost

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
    site = site_shown(spec, inventory, output)
    state = site.state
    if state is None:
        raise RuntimeError("a site without findings has its state")
    if host is not None:
        for name in hosts_of(site, [host], reached=False):
            _one(state, name, output)
        return
    hosts = [state.hosts[name] for name in site.names]
    if output == "json":
        click.echo(json.dumps([_data(one) for one in hosts], ensure_ascii=False, default=str))
        return
    from kubexm_exec.console.text import columns

    rows = [_HEAD, *(_row(one) for one in hosts)]
    for line in columns(rows, left=frozenset(range(len(_HEAD))) - {2}):
        click.echo(line)
    click.echo(f"\n{len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}")


def _row(host: GraphHost) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in host.labels.items())
    port = str(host.port) if host.port is not None else "-"
    cells = (host.name, host.address, port, host.user, host.connector, ",".join(host.roles), ",".join(host.groups))
    return tuple(cell or "-" for cell in (*cells, labels))


def _data(host: GraphHost) -> dict[str, Any]:
    return {
        "host": host.name,
        "address": host.address,
        "internalAddress": host.internal_address,
        "port": host.port,
        "user": host.user,
        "connector": host.connector,
        "roles": list(host.roles),
        "groups": list(host.groups),
        "labels": dict(host.labels),
        "options": dict(host.options),
    }


def _one(state: State, name: str, output: str) -> None:
    from kubexm_exec.compile.hosts import merged_layers

    host = state.hosts[name]
    sources: dict[str, list[str]] = {}
    for label, key, place in merged_layers(state, name):
        sources.setdefault(key, []).append(f"{label} at {place.file_line}")
    values = [
        {"name": key, "value": host.vars[key], "source": found[-1], "hides": found[-2::-1]}
        for key, found in sorted(sources.items())
    ]
    if output == "json":
        click.echo(json.dumps({**_data(host), "vars": values}, ensure_ascii=False, default=str))
        return
    from kubexm_exec.console.text import columns

    options = [(key, json.dumps(value, ensure_ascii=False, default=str)) for key, value in host.options.items()]
    settings = [*zip(_HEAD, _row(host), strict=True), *options]
    for line in columns(settings, left=frozenset({0, 1})):
        click.echo(line)
    if not values:
        return
    click.echo("\nvars")
    shown = [(f"  {row['name']}", json.dumps(row["value"], ensure_ascii=False, default=str)) for row in values]
    rows = [(*cells, str(row["source"])) for cells, row in zip(shown, values, strict=True)]
    for line, row in zip(columns(rows, left=frozenset({0, 1, 2})), values, strict=True):
        click.echo(line)
        for hidden in row["hides"]:
            click.echo(f"      hides {hidden}")
