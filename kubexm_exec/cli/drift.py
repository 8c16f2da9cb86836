"""``kubexm drift``: what is no longer as the last successful run of a spec left it; made for cron."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from msgspec import Struct, field

from kubexm_exec.cli import codes
from kubexm_exec.cli.common import HOST_PATTERNS, fail, output_option
from kubexm_exec.cli.journaled import journal_option, open_store, refuse

if TYPE_CHECKING:
    from kubexm_exec.cli.resuming import Past
    from kubexm_exec.compile.compare import NodeChange
    from kubexm_exec.journal.store import RunRow, Store
    from kubexm_exec.model.result import GraphExecutionResult, HostResult

_LONGEST: Final = 400
"""Characters of a line: a path is never cut, a message that goes on and on is."""
_MOST: Final = 1_000_000


class Drift(Struct):
    """What was found."""

    past: Past
    differs: list[tuple[str, HostResult]] = field(default_factory=list)
    failed: list[tuple[str, HostResult]] = field(default_factory=list)
    unknown: list[tuple[str, HostResult]] = field(default_factory=list)
    unseen: list[tuple[str, HostResult]] = field(default_factory=list)
    """What was not looked at: only running it would tell."""
    same: int = 0
    hosts: set[str] = field(default_factory=set)
    changes: list[NodeChange] = field(default_factory=list)
    """What is different in the spec since."""
    notes: list[str] = field(default_factory=list)

    @property
    def anything(self) -> bool:
        """Whether there is something to tell."""
        return bool(self.differs or self.failed)


@click.command("drift")
@click.argument("spec")
@click.option("--target", metavar="NAME", help="The last successful run on this target; of any by default.")
@click.option("--limit", metavar="HOSTS", help=f"Look only at these hosts of the run: {HOST_PATTERNS}.")
@click.option("--diff", "diffs", is_flag=True, help="Show how contents differ.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if nothing differs.")
@click.option(
    "--forks", type=click.IntRange(1, 10_000), help="How many actions are looked at at once; as in the run by default."
)
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
    """Ask the hosts whether everything is still as the last successful run of SPEC left it; nothing is changed.

    What is compared is what was run, with the values and hosts of that run, even if the spec has changed since.

    Exit codes: 0 all is as it was, 1 something differs or could not be looked at, 2 the call is wrong, 3 there is no
    successful run of the spec.
    """
    from kubexm_exec.engine.ports import JournalError

    place = spec if spec.startswith("kubexm:") else os.path.abspath(spec)  # noqa: PTH100 - as it is journaled
    store = open_store(journal, output, reading=True)
    try:
        row = _last_success(store, spec, place, target, output)
        found, code = _look(store, row, limit, forks, output)
        found.notes += _notes(store, row, found)
    except JournalError as error:
        refuse(error, output)
    if output == "json":
        from kubexm_exec.console.jsonl import json_line

        click.echo(json_line(_json(found)), nl=False)
    elif found.anything or not quiet:
        click.echo("\n".join(_lines(found, diffs=diffs)))
    raise SystemExit(code)


def _last_success(store: Store, spec: str, place: str, target: str | None, output: str) -> RunRow:
    rows = [row for row in store.runs(limit=_MOST, spec=place) if target in (None, row.target)]
    good = next((row for row in rows if row.status == "Success"), None)
    if good is None:
        _no_success(store, rows, spec, place, target, output)
    return good


def _no_success(store: Store, rows: list[RunRow], spec: str, place: str, target: str | None, output: str) -> NoReturn:
    on = f' on "{target}"' if target is not None else ""
    hint = f"kubexm-run {spec}"
    if rows:
        from kubexm_exec.journal.results import state_of

        hint = f"the last one is {state_of(store, rows[0]).value}: kubexm runs show {rows[0].id}"
    elif not place.startswith("kubexm:") and not os.path.exists(place):  # noqa: PTH110
        fail(f"there is no spec {spec}, and no run of it", output=output)
    fail(f"there is no successful run of {spec}{on}", hint, code=codes.REFUSED, output=output, kind="no-run")


def _look(store: Store, row: RunRow, limit: str | None, forks: int | None, output: str) -> tuple[Drift, int]:
    """Ask the hosts; gives what was found, and the exit code."""
    import contextlib
    from pathlib import Path

    from kubexm_exec.cli.pasts import chosen_hosts
    from kubexm_exec.cli.resuming import load_past
    from kubexm_exec.cli.running import Run
    from kubexm_exec.engine.history import tell, whole_graph
    from kubexm_exec.executors.drift import DriftExecutor
    from kubexm_exec.model.result import Status

    past = load_past(store, row.id, output)
    hosts = frozenset(past.graph.hosts) if limit is None else chosen_hosts(past.graph.hosts, limit, output)
    history = tell(store, row.id)
    bundle = past.inputs["bundle"]
    run = Run(
        whole_graph(past.graph, history),
        "check",
        forks or past.inputs["forks"],
        "silent",
        0,
        past.choice.templates,
        [],
        Path(bundle) if bundle else None,
    )
    run.configure_logs("error", "text")
    run.make_executor = lambda: DriftExecutor(history, hosts)
    folder = Path(past.inputs["folder"])
    # Relative names in what runs here start where the run was begun.
    with contextlib.chdir(folder if folder.is_dir() else "."):
        result = run.execute()
    found = _sorted(past, result, hosts)
    if result.status is Status.CANCELLED:
        return found, codes.INTERRUPTED
    return found, codes.FAILED if found.anything else codes.OK


def _sorted(past: Past, result: GraphExecutionResult, hosts: frozenset[str]) -> Drift:
    from kubexm_exec.model.result import BLOCKED, column

    found = Drift(past)
    lists = {
        "failed": found.failed, "unreachable": found.failed, "wouldChange": found.differs, "unknown": found.unknown,
        "notLookedAt": found.unseen,
    }  # fmt: skip
    for name, node in result.node_results.items():
        for each in node.host_results.values():
            if each.host_name not in hosts:
                continue
            found.hosts.add(each.host_name)
            where = found.unknown if each.reason in BLOCKED else lists.get(column(each))
            if where is None:
                found.same += 1
            else:
                where.append((name, each))
    return found


def _notes(store: Store, row: RunRow, found: Drift) -> Iterator[str]:
    """What somebody should know who reads the rest."""
    from kubexm_exec.console.text import names, plural
    from kubexm_exec.journal.results import state_of

    later = [each for each in store.runs(limit=_MOST, spec=row.spec) if each.id > row.id and each.target == row.target]
    if later:
        yield f"run {later[0].id} came later, and is {state_of(store, later[0]).value}"
    changes = _changes(found.past)
    if changes is None:
        yield "the spec cannot be compiled now; compared is what was run"
    elif changes:
        found.changes = changes
        nodes = [change.node for change in changes if not change.gate] or [change.node for change in changes]
        where = f"{plural(len(nodes), 'node')} ({names(nodes, 3)})"
        yield f"the spec has changed since in {where}; compared is what was run"


def _changes(past: Past) -> list[NodeChange] | None:
    """What is not as it was in the spec; None if that cannot be said."""
    import contextlib
    import io

    from kubexm_exec.cli.resuming import changes_since, is_plan
    from kubexm_exec.compile import compile_file

    if is_plan(past):
        return []
    try:
        # Names on the command line were relative to where it was typed. What is wrong there, others tell.
        with contextlib.chdir(past.inputs["folder"]), contextlib.redirect_stderr(io.StringIO()):
            graph = compile_file(past.inputs["spec"], past.choice.options("text")).graph
    except (OSError, SystemExit):
        return None
    return None if graph is None else changes_since(past, graph)


# For people


def _lines(found: Drift, *, diffs: bool) -> Iterator[str]:
    from kubexm_exec.cli.runtables import nearest, typed_choice
    from kubexm_exec.console.text import clean, fit, one_line, text_lines
    from kubexm_exec.model.result import timestamp

    row = found.past.row
    yield f"drift of {one_line(row.name)} since run {row.id} ({timestamp(row.ended)})"
    for note in found.notes:
        yield f"note: {note}"
    by_host: dict[str, list[tuple[str, str, HostResult]]] = {}
    for word, several in (("differs", found.differs), ("FAILED", found.failed)):
        for node, each in several:
            by_host.setdefault(each.host_name, []).append((word, node, each))
    order = [host for host in found.past.graph.hosts if host in by_host]
    for host in [*order, *(by_host.keys() - set(order))]:
        for word, node, each in by_host[host]:
            yield fit(f"{clean(each.where)}: {word}: {clean(node)}: {_what(each)}", _LONGEST)
            for diff in each.diffs if diffs else ():
                yield from (f"    {line}" for line in text_lines(str(diff.get("text", ""))))
    yield f"Drift: {_sum(found)}. Nothing was changed."
    if found.differs:
        typed = f"kubexm-run {nearest(row.spec)} {typed_choice(found.past.inputs['choice'])}".rstrip()
        yield f"Next:  {typed}   make it so again"


def _sum(found: Drift) -> str:
    """Everything in one sentence."""
    from kubexm_exec.console.text import plural

    hosts = plural(len(found.hosts), "host")
    differs = len({each.host_name for _, each in found.differs})
    verb = "differs" if len(found.differs) == 1 else "differ"
    parts = [f"{plural(len(found.differs), 'action')} {verb} on {differs} of {hosts}"]
    if not found.differs:
        parts = [f"nothing differs on {hosts}"]
    if found.failed:
        parts.append(f"{len(found.failed)} could not be looked at")
    if found.unknown:
        parts.append(f"{len(found.unknown)} cannot be told")
    if found.unseen:
        parts.append(f"{len(found.unseen)} {'was' if len(found.unseen) == 1 else 'were'} not looked at")
    return ", ".join([*parts, f"{found.same} {'is as it was' if found.same == 1 else 'are as they were'}"])


def _what(each: HostResult) -> str:
    from kubexm_exec.console.text import one_line

    paths = [one_line(str(diff.get("path", ""))) for diff in each.diffs]
    return one_line(each.message) or ", ".join(paths) or "it would run again"


# For machines


def _json(found: Drift) -> dict[str, Any]:
    from kubexm_exec.model.result import timestamp

    row = found.past.row
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
        "hosts": sorted(found.hosts),
        "specChanges": [change.to_json() for change in found.changes],
        "notes": found.notes,
    }


def _action(node: str, each: HostResult) -> dict[str, Any]:
    data = {"node": node, "host": each.host_name, "message": each.message, "diffs": list(each.diffs)}
    if each.place:
        data["place"] = each.place
    return {**data, "failureKind": each.kind.value} if each.kind is not None else data
