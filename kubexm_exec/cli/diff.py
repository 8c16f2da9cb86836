"""``kubexm diff``: what changes in the compiled graph between two specs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import Warnings, output_option, value_options, wants_color
from kubexm_exec.cli.journaled import service_of
from kubexm_exec.service.requests import Documents

if TYPE_CHECKING:
    from kubexm_exec.compile.compare import NodeChange


@click.command("diff")
@click.argument("before")
@click.argument("after")
@value_options
@output_option
def command(before: str, after: str, choice: Documents, output: str) -> None:
    """Show which nodes are added, removed or changed from BEFORE to AFTER, and on which hosts.

    The exit code is 1 if anything changes.
    """
    found = service_of(None).diff(replace(choice, spec=before), replace(choice, spec=after), Warnings(output))
    changes, hosts, policy = found.changes, found.hosts, found.policy
    counts = {
        kind: sum(1 for change in changes if change.change == kind and not change.gate)
        for kind in ("added", "removed", "changed")
    }
    if output == "json":
        data = {
            "changes": [change.to_json() for change in changes],
            **counts,
            "hosts": hosts,
            "policy": policy,
            "policyChanged": bool(policy),
        }
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        _show(changes, wants_color(sys.stdout))
        for line in (*hosts, *policy):
            click.echo(f"~ {line}")
        if changes or hosts or policy:
            click.echo(f"{counts['added']} added, {counts['removed']} removed, {counts['changed']} changed.")
        else:
            click.echo("The graphs are the same.")
    if changes or hosts or policy:
        raise SystemExit(codes.FAILED)


def _show(changes: list[NodeChange], color: bool) -> None:
    for change in changes:
        sign, style = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}[change.change]
        line = f"{sign} {change.node}" + ("" if change.gate else f"  {_hosts(change.hosts)}")
        click.echo(click.style(line, fg=style) if color else line)
        if change.hosts_added:
            click.echo(f"    + on {_hosts(change.hosts_added)}")
        if change.hosts_removed:
            click.echo(f"    - on {_hosts(change.hosts_removed)}")
        for detail in change.details:
            click.echo(f"    {detail}")


def _hosts(hosts: tuple[str, ...]) -> str:
    if not hosts:
        return "no hosts"
    return ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
