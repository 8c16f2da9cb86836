"""Runs as tables and texts for people."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kubexm_exec.cli.typed import nearest, typed_choice
from kubexm_exec.console.failures import find_failures, render_failures
from kubexm_exec.console.summary import settling
from kubexm_exec.console.tables import STATUS_WORDS, count, host_table, module_table
from kubexm_exec.console.text import Paint, columns, fit, names, one_line, wrapped
from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import HostResult, Status, timestamp
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration

if TYPE_CHECKING:
    from kubexm_exec.scheduler import Action
    from kubexm_exec.service.requests import PastRun, RunDetails, RunInfo

_MOST: Final = 10
"""So many lines of a list are shown."""
_SLOWEST: Final = 5
_WORTH: Final = 0.5
"""Seconds that something must have taken to be named among the slowest."""


def list_runs(found: Sequence[RunInfo], name: str = "") -> str:
    """The newest runs, a line each; ``name``: only those of that pipeline were asked for."""
    if not found:
        return f'there is no run of "{name}"' if name else "there is no run yet; start one with: kubexm-run SPEC"
    cells = [["run", "name", "status", "began", "took", "what"]]
    for each in found:
        row = each.row
        took = "" if each.seconds is None else format_duration(each.seconds)
        cells.append([
            row.id, one_line(row.name), each.state.value, moment(row.created), took, one_line(row.message),
        ])  # fmt: skip
    return "\n".join(columns(cells, left=frozenset({0, 1, 2, 3, 5})))


def row_json(found: RunInfo) -> dict[str, Any]:
    """A run as data, as the list of runs has it."""
    row = found.row
    return {
        "id": row.id, "name": row.name, "status": found.state.value, "message": row.message, "spec": row.spec,
        "target": row.target, "executor": row.executor, "startTime": timestamp(row.created),
        "endTime": timestamp(row.ended), "seconds": None if found.seconds is None else round(found.seconds, 3),
        "holder": str(row.holder), "counts": dict(row.counts),
    }  # fmt: skip


def moment(seconds: float) -> str:
    """A time of the past, in the reader's time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def show_run(found: RunDetails, command: str, *, color: bool, width: int) -> str:
    """The history of a run. ``command`` is how ``kubexm runs`` is typed for its journal."""
    paint = Paint(color)
    width = max(width, 40)
    seen = found.past
    shown = seen.shown
    lines = [*_head(found, paint), "", *_sessions(seen, paint), ""]
    lines += render_failures(seen.whole, find_failures(seen.whole, shown), paint, width)
    for part in (_running, _interrupted, _undoing, _retried, _repeated, _undone, _tables, _slowest, _left):
        lines += _apart(part(seen, paint, width))
    lines += _apart(_due(found, paint, width))
    lines += [_status(seen, paint), *_next(seen, command, paint)]
    return "\n".join(lines) + "\n"


def _apart(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [*found, ""] if found else []


def _head(found: RunDetails, paint: Paint) -> Iterator[str]:
    seen, documents = found.past, found.request.documents
    row = seen.row
    yield f"{paint('Run', 'head')} {row.id} of {paint(one_line(row.name), 'head')}: {_word(seen)}"
    whole = seen.whole
    size = f"{plural(whole.actions(), 'action')} of {plural(sum(1 for _ in whole.steps()), 'node')}"
    facts = [
        ["spec", row.spec],
        ["plan", documents.plan and nearest(documents.place_of(documents.plan))],
        ["chosen", shlex.join(typed_choice(documents))],
        ["target", row.target],
        ["size", f"{size} on {plural(len({host for node in whole.steps() for host in node.hosts}), 'host')}"],
        ["kubexm", found.version],
    ]
    for line in columns([[paint(name, "dim"), value] for name, value in facts if value], left=frozenset({0, 1})):
        yield f"  {line}"


def _sessions(seen: PastRun, paint: Paint) -> Iterator[str]:
    cells = [["  session", "began", "took", "ended", "by"]]
    sessions = seen.history.sessions
    for session in sessions:
        going = seen.alive and session is sessions[-1]
        end = session.ended or (seen.now if going else session.last)
        ended = session.status or ("goes on" if going else "broke off")
        if session.stop:
            ended += f" ({session.stop})"
        took = format_duration(max(0.0, end - session.begun))
        if not going and session.ended is None:
            took = f">{took}"  # its last sign of life
        cells.append([f"  {session.mode}", moment(session.begun), took, ended, one_line(session.holder)])
    first, *rest = columns(cells, left=frozenset({0, 1, 3, 4}))
    yield paint(first, "dim")
    yield from rest


def _listed(title: str, items: list[str], width: int) -> Iterator[str]:
    if not items:
        return
    yield title
    for item in items[:_MOST]:
        yield from (f"  {fit(line, width - 2)}" for line in item.split("\n"))
    if len(items) > _MOST:
        yield f"  + {len(items) - _MOST} more: --output json has all of them"


def _grouped(found: list[tuple[str, HostResult]]) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for node, each in found:
        nodes.setdefault(node, []).append(each.where)
    return nodes


def _places(found: list[tuple[str, HostResult]]) -> list[str]:
    return [f"{clean(node)} on {names(hosts)}" for node, hosts in _grouped(found).items()]


def _running(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    items = [
        f"{clean(node)} on {clean(each.where)}, for {format_duration(seen.now - (each.start_time or seen.now))}"
        + (f": {one_line(each.message)}" if each.message else "")
        for node, each in seen.running()
    ]
    yield from _listed(paint("Running now", "running"), items, width)


def _interrupted(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    # Those that failed are told among the failures.
    found = [(node, each) for node, each in seen.unknown() if each.status is Status.PENDING]
    title = f"{paint('Interrupted', 'warning')} (a resume checks the host first):"
    yield from _listed(title, _places(found), width)


def _undoing(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    if seen.alive:
        title = paint("Being undone now", "running")
    else:
        title = (
            f"{paint('Unknown outcome', 'warning')} of the undo (check the host, then use --undone or --again NODE):"
        )
    yield from _listed(title, _places(seen.undoing()), width)


def _where(seen: PastRun, action: Action) -> str:
    node = seen.whole.nodes.get(action.node)
    return action.host if node is None else node.where(action.host)


def _retried(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    items = [
        f"{clean(key.node)} on {clean(_where(seen, key))}: {plural(told.attempts, 'attempt')}; "
        f"{one_line(told.retries[-1].message)}"
        for key, told in seen.retried()
    ]
    yield from _listed(paint("Retried", "head"), items, width)


def _repeated(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    title = f"{paint('Repeated', 'head')}: nobody knew how far these had come"
    yield from _listed(title, _places(seen.repeated()), width)


def _undone(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    by_state: dict[str, list[tuple[str, HostResult]]] = {}
    for node, each in seen.undone():
        state, _, why = each.undo.partition(":")
        by_state.setdefault(f"{state}:{one_line(why)}", []).append((node, each))
    words = {
        "undone": "undone",
        "undoFailed": "could not be undone",
        "leftAlone": "left alone",
        "notReversible": "cannot be undone",
    }
    items = []
    for key, found in by_state.items():
        state, _, why = key.partition(":")
        for place in _places(found):
            items.append(f"{words.get(state, state)}: {place}" + (f": {why.strip()}" if why.strip() else ""))
    # What can be done about it stands at the end.
    yield from _listed(paint("Rolled back", "head"), ["\n".join(wrapped(item, width - 2, 4)) for item in items], width)


def _tables(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    total, modules, hosts = count(seen.whole, seen.shown)
    if modules:
        yield from module_table(modules, total, paint, width)
        yield ""
        yield from host_table(hosts, total, paint, width)


def _slowest(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    found = [one for one in seen.slowest(_SLOWEST) if one[2] >= _WORTH]
    size = max((len(format_duration(seconds)) for _, _, seconds in found), default=0)
    items = [
        f"{format_duration(seconds):>{size}}  {clean(node)} on {clean(each.where)}" for node, each, seconds in found
    ]
    yield from _listed(paint("Slowest", "head"), items, width)


def _left(seen: PastRun, paint: Paint, width: int) -> Iterator[str]:
    found = seen.left()
    hosts = plural(len({each.host_name for _, each in found}), "host")
    title = f"{paint('Remaining', 'head')}: {plural(len(found), 'action')} on {hosts}"
    yield from _listed(title, _places(found), width)


def _due(found: RunDetails, paint: Paint, width: int) -> Iterator[str]:
    by_handler: dict[str, list[str]] = {}
    for each in found.due:
        by_handler.setdefault(each.handler, []).append(each.host)
    items = [f"{clean(handler)} on {names(hosts)}" for handler, hosts in by_handler.items()]
    title = f"{paint('Due', 'head')} since this run, with a resume or the next run:"
    yield from _listed(title, items, width)


def _word(seen: PastRun) -> str:
    if seen.waiting():
        return "waits for an answer"
    words = {Status.RUNNING: "running now", Status.INTERRUPTED: "interrupted", Status.ROLLED_BACK: "rolled back"}
    return words.get(seen.state, seen.state.value)


def _status(seen: PastRun, paint: Paint) -> str:
    """The last line: how it stands."""
    word, style = STATUS_WORDS.get(seen.state, (seen.state.value, ""))
    shown = seen.shown
    total, _, _ = count(seen.whole, shown)
    if not total.actions:
        return f"{paint(word, style)}  {one_line(seen.row.name)}: nothing to do"
    took = format_duration(max(0.0, (shown.end_time or 0.0) - (shown.start_time or 0.0)))
    what = f"{plural(total.actions, 'action')} on {plural(len(total.hosts), 'host')} in {took}"
    within = ", within maxFailures" if seen.state is Status.SUCCESS and total.bad else ""
    return f"{paint(word, style)}  {one_line(seen.row.name)}: {what}: {total.words()}{within}"


def next_commands(seen: PastRun, command: str) -> Iterator[tuple[str, str]]:
    """What makes sense to type now, and what it does."""
    run = seen.row.id
    if seen.alive:
        for node, question in {action.node: question for action, question in seen.waiting().items()}.items():
            yield f"{command} answer {run} {shlex.quote(node)} yes", f"answer (or no): {one_line(question)}"
        yield f"{command} logs {run} --follow", "follow its output"
        yield f"{command} cancel {run}", "stop it"
        return
    # Those that were interrupted are looked at first by a resume: it may find out.
    unknown = next((node for node, each in seen.unknown() if each.status is Status.FAILED), "")
    if unknown:
        yield from settling(f"{command} resume {run}", unknown)
    elif seen.left():
        yield f"{command} resume {run}", "continue; completed work is not repeated"
    elif seen.state is Status.SUCCESS:
        yield f"kubexm drift {shlex.quote(nearest(seen.row.spec))}", "detect drift"
    if any(told.undone.startswith("leftAlone") for told in seen.history.actions.values()):
        yield f"{command} rollback {run} --overwrite", "undo that too; the changes of others are lost"
    elif any(told.undo for told in seen.history.actions.values()):
        yield f"{command} rollback {run}", "undo its changes"
    yield f"{command} logs {run}", "see its output"
    yield f"{command} report {run} -o report.html", "write an HTML report"


def _next(seen: PastRun, command: str, paint: Paint) -> Iterator[str]:
    label = paint("Next:", "head")
    for line in columns([list(each) for each in next_commands(seen, command)], left=frozenset({0, 1}), gap=3):
        yield f"{label}  {line}"
        label = "     "
