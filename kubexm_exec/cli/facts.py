"""``kubexm facts``: what hosts say about themselves.

Nothing for the service yet: it is asked here, and Ctrl-C ends it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import (
    Warnings,
    fail,
    forks_option,
    inventory_option,
    output_option,
    site_documents,
    spec_option,
)
from kubexm_exec.model.plain import plain
from kubexm_exec.service.documents import hosts_of, site_of
from kubexm_spec.diagnostics import did_you_mean

if TYPE_CHECKING:
    from kubexm_exec.model.graph import GraphHost

_TIME = 60.0
_HEAD = ("host", "os", "kernel", "arch", "cpus", "memory", "address", "init", "packages", "virtualization", "skew")
_NUMBERS = frozenset({4, 5, 10})


@click.command("facts")
@click.argument("patterns", nargs=-1, metavar="PATTERN...")
@inventory_option
@spec_option
@click.option("--fact", "names", multiple=True, metavar="NAME", help="Only this fact; repeatable.")
@forks_option("hosts")
@output_option
def command(
    patterns: tuple[str, ...], inventory: str | None, spec: str | None, names: tuple[str, ...], forks: int, output: str
) -> None:
    """Gather facts of the hosts that PATTERN selects; the default is all hosts.

    PATTERN is as for --limit: names, ranges, globs, groups, roles, label=value or all; a,b is either, a&b both, !a not.
    With --output json all facts are printed, by host.

    Exit codes: 0 success, 1 a host did not answer, 2 wrong command line, no host was contacted.
    """
    from kubexm_exec.runner.facts import FACT_NAMES

    for name in names:
        if name not in FACT_NAMES:
            hint = did_you_mean(name, FACT_NAMES) or "facts: " + ", ".join(FACT_NAMES)
            fail(f'there is no fact "{name}"', hint, output=output, kind="unknown-fact")
    site, state = site_of(site_documents(spec, inventory), Warnings(output).found)
    chosen = hosts_of(site, patterns or ("all",))
    known, failed = _gather({name: state.hosts[name] for name in chosen}, forks)
    if names:
        known = {host: {name: facts[name] for name in names} for host, facts in known.items()}
    if output == "json":
        data = {**known, **{host: {"error": message} for host, message in failed.items()}}
        click.echo(json.dumps({host: data[host] for host in chosen}, ensure_ascii=False))
    else:
        _show(known, names)
        for host, message in failed.items():
            click.echo(f"error: {host}: {message}", err=True)
    raise SystemExit(codes.FAILED if failed else codes.OK)


def _gather(hosts: Mapping[str, GraphHost], forks: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The facts of the hosts that answer, and why the others did not; without secrets."""
    from kubexm_exec.cli.sidebyside import side_by_side
    from kubexm_exec.connectors.pool import ConnectorPool
    from kubexm_exec.control import Cancel, Deadline
    from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut, ConnectorError
    from kubexm_exec.plugins import RegistryError, connector_registry
    from kubexm_exec.runner.facts import gather
    from kubexm_exec.secrets import Redactor, SecretError, Secrets

    redactor = Redactor()
    secrets = Secrets(redactor, _warn)
    pool = ConnectorPool(hosts, connector_registry(), secrets.resolve)
    cancel = Cancel()

    def ask(host: str) -> tuple[Any, str]:
        deadline = Deadline.after(_TIME)
        try:
            return plain(gather(pool.get(host, deadline, cancel), deadline=deadline, cancel=cancel)), ""
        except CommandTimedOut:
            return None, f"no answer within {_TIME:g}s"
        except CommandCancelled:
            return None, "interrupted"
        except (ConnectorError, RegistryError, SecretError) as error:
            return None, redactor.mask(str(error))

    try:
        answers = dict(zip(hosts, side_by_side(ask, list(hosts), forks, cancel), strict=True))
    except KeyboardInterrupt:
        raise SystemExit(codes.INTERRUPTED) from None
    finally:
        pool.close()
    return (
        {host: facts for host, (facts, _) in answers.items() if facts is not None},
        {host: message for host, (facts, message) in answers.items() if facts is None},
    )


def _warn(message: str) -> None:
    click.echo(f"warning: {message}", err=True)


def _show(known: Mapping[str, Any], names: tuple[str, ...]) -> None:
    from kubexm_exec.console.text import columns

    if not known:
        return
    head = ("host", *names) if names else _HEAD
    rows = [head, *(_chosen(host, facts) if names else _row(host, facts) for host, facts in known.items())]
    right = frozenset() if names else _NUMBERS
    for line in columns(rows, left=frozenset(range(len(head))) - right):
        click.echo(line)


def _chosen(host: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    return (host, *(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in facts.values()))


def _row(host: str, facts: Any) -> tuple[str, ...]:
    memory = f"{facts['memoryMb'] / 1024:.1f}G"
    address = facts["defaultRoute"]["address"] or next(iter(facts["addresses"]["ipv4"]), "")
    cells = (
        f"{facts['os']['distribution']} {facts['os']['version']}".strip(), facts["kernel"], facts["architecture"],
        str(facts["cpus"]), memory, address, facts["init"], facts["packageManager"], facts["virtualization"],
        f"{facts['time']['skewSeconds']}s",
    )  # fmt: skip
    return (host, *(cell or "-" for cell in cells))
