"""``kubexm drift``: what is no longer as the last successful run of a spec left it; made for cron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import HOST_PATTERNS, forks_option, here, output_option
from kubexm_exec.cli.journaled import journal_option, service_of
from kubexm_exec.cli.running import Terminal
from kubexm_exec.cli.typed import next_command, typed_run
from kubexm_exec.console.jsonl import json_line
from kubexm_exec.console.text import fit, names, one_line, text_lines
from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import HostResult, timestamp
from kubexm_exec.service.requests import Drift, DriftRequest
from kubexm_spec.diagnostics import plural

_LONGEST: Final = 400
"""Characters of a line: a path is never cut, a message that goes on and on is."""


@click.command("drift")
@click.argument("spec")
@click.option(
    "--target", metavar="NAME", help="Compare with the last successful run on this target; on any by default."
)
@click.option("--limit", metavar="HOSTS", help=f"Only these hosts of the run: {HOST_PATTERNS}.")
@click.option("--diff", "diffs", is_flag=True, help="Show how contents differ.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if nothing differs.")
@forks_option(default=None, instead="; by default as in the run")
@journal_option
@output_option
def command(
    spec: str,
    target: str | None,
    limit: str | None,
    diffs: bool,
    quiet: bool,
    forks: int | None,
    journal: str | None,
    output: str,
) -> None:
    """Compare the hosts with the state that the last successful run of SPEC left; nothing is changed.

    The comparison uses the graph, values and hosts of that run, even if the spec has changed since.

    Exit codes: 0 nothing differs, 1 something differs or could not be checked, 2 wrong command line, 3 there is no
    successful run of the spec.
    """
    request = DriftRequest(folder=here(), spec=spec, target=target, limit=limit, forks=forks)
    found = service_of(journal).drift(request, Terminal("silent", logs=("error", "text")))
    if output == "json":
        click.echo(json_line(_json(found)), nl=False)
    elif found.anything or not quiet:
        click.echo("\n".join(_lines(found, journal, diffs=diffs)))
    if found.cancelled:
        raise SystemExit(codes.INTERRUPTED)
    raise SystemExit(codes.FAILED if found.anything else codes.OK)


def _notes(found: Drift) -> Iterator[str]:
    """What a reader should know before the rest."""
    if found.later is not None:
        yield f"there is a later run {found.later.row.id}: {found.later.state.value}"
    if found.changes is None:
        yield "the spec cannot be compiled now; the comparison uses the spec of that run"
    elif found.changes:
        nodes = [change.node for change in found.changes if not change.gate]
        nodes = nodes or [change.node for change in found.changes]
        where = f"{plural(len(nodes), 'node')} ({names(nodes, 3)})"
        yield f"the spec has changed since in {where}; the comparison uses the spec of that run"


# For people


def _lines(found: Drift, journal: str | None, *, diffs: bool) -> Iterator[str]:
    row = found.row
    yield f"drift of {one_line(row.name)} since run {row.id} ({timestamp(row.ended)})"
    for note in _notes(found):
        yield f"note: {note}"
    by_host: dict[str, list[tuple[str, str, HostResult]]] = {}
    for word, several in (("differs", found.differs), ("FAILED", found.failed)):
        for node, each in several:
            by_host.setdefault(each.host_name, []).append((word, node, each))
    order = [host for host in found.hosts if host in by_host]
    for host in [*order, *(by_host.keys() - set(order))]:
        for word, node, each in by_host[host]:
            yield fit(f"{clean(each.where)}: {word}: {clean(node)}: {_what(each)}", _LONGEST)
            for diff in each.diffs if diffs else ():
                yield from (f"    {line}" for line in text_lines(str(diff.get("text", ""))))
    yield f"Drift: {_sum(found)}. Nothing was changed."
    if found.differs:
        typed = typed_run(found.request.documents, found.request.executor, journal)
        yield f"Next:  {next_command(typed)}   restore the desired state"


def _sum(found: Drift) -> str:
    hosts = plural(len(found.seen), "host")
    differs = len({each.host_name for _, each in found.differs})
    verb = "differs" if len(found.differs) == 1 else "differ"
    parts = [f"{plural(len(found.differs), 'action')} {verb} on {differs} of {hosts}"]
    if not found.differs:
        parts = [f"nothing differs on {hosts}"]
    if found.failed:
        parts.append(f"{len(found.failed)} could not be checked")
    if found.unknown:
        parts.append(f"{len(found.unknown)} unknown")
    if found.unseen:
        parts.append(f"{len(found.unseen)} {'was' if len(found.unseen) == 1 else 'were'} not checked")
    return ", ".join([*parts, f"{found.same} unchanged"])


def _what(each: HostResult) -> str:
    paths = [one_line(str(diff.get("path", ""))) for diff in each.diffs]
    return one_line(each.message) or ", ".join(paths) or "it would run again"


# For machines


def _json(found: Drift) -> dict[str, Any]:
    row = found.row
    return {
        "run": row.id,
        "name": row.name,
        "spec": row.spec,
        "target": row.target,
        "endTime": timestamp(row.ended),
        "drift": bool(found.differs),
        "differs": [_action(*each) for each in found.differs],
        "failed": [_action(*each) for each in found.failed],
        "unknown": [_action(*each) for each in found.unknown],
        "notLookedAt": [_action(*each) for each in found.unseen],
        "same": found.same,
        "hosts": sorted(found.seen),
        "specChanges": [change.to_json() for change in found.changes or ()],
        "notes": list(_notes(found)),
    }


def _action(node: str, each: HostResult) -> dict[str, Any]:
    data = {"node": node, "host": each.host_name, "message": each.message, "diffs": list(each.diffs)}
    if each.place:
        data["place"] = each.place
    return {**data, "failureKind": each.kind.value} if each.kind is not None else data
