"""``kubexm diff``: what changes in the compiled graph between two specs."""

from __future__ import annotations

import json

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import compile_options, compile_or_exit, output_option, value_options, wants_color


@click.command("diff")
@click.argument("before")
@click.argument("after")
@value_options
@output_option
def command(
    before: str,
    after: str,
    values: tuple[str, ...],
    vars_files: tuple[str, ...],
    inventory: str | None,
    limit: str | None,
    tags: str | None,
    skip_tags: str | None,
    templates: tuple[str, ...],
    output: str,
) -> None:
    """Show which nodes are added, removed or changed from BEFORE to AFTER, and on which hosts.

    The exit code is 1 if anything changes.
    """
    import sys

    from kubexm_exec.compare import compare

    options = compile_options(values, vars_files, inventory, limit, tags, skip_tags, templates, output)
    _, old = compile_or_exit(before, options, output)
    _, new = compile_or_exit(after, options, output)
    changes = compare(old, new)
    counts = {kind: sum(1 for c in changes if c.change == kind) for kind in ("added", "removed", "changed")}
    policy = (old.failure_policy, old.locks) != (new.failure_policy, new.locks)
    if output == "json":
        click.echo(
            json.dumps(
                {"changes": [c.to_json() for c in changes], **counts, "policyChanged": policy}, ensure_ascii=False
            )
        )
    else:
        color = wants_color(sys.stdout)
        for change in changes:
            sign, style = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}[change.change]
            line = f"{sign} {change.node}  {_hosts(change.hosts)}"
            click.echo(click.style(line, fg=style) if color else line)
            for host in change.hosts_added:
                click.echo(f"    + host {host}")
            for host in change.hosts_removed:
                click.echo(f"    - host {host}")
            for detail in change.details:
                click.echo(f"    {detail}")
        if policy:
            click.echo(
                f"~ policy: {old.failure_policy.value} {dict(old.locks)} -> {new.failure_policy.value} {dict(new.locks)}"
            )
        if changes or policy:
            click.echo(f"{counts['added']} added, {counts['removed']} removed, {counts['changed']} changed.")
        else:
            click.echo("The graphs are the same.")
    if changes or policy:
        raise SystemExit(codes.FAILED)


def _hosts(hosts: tuple[str, ...]) -> str:
    if not hosts:
        return "no hosts"
    return ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
