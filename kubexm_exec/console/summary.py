"""The end of a run on one page: failures, tables, one line that says it all, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kubexm_exec.console.failures import Failure, find_failures, render_failures
from kubexm_exec.console.tables import STATUS_WORDS, Counts, count, host_table, module_table
from kubexm_exec.console.text import Paint, columns, fit, names, one_line, wrapped
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import ForecastState, GraphExecutionResult, RunMode, Status
from kubexm_spec.diagnostics import plural
from kubexm_spec.duration import format_duration

if TYPE_CHECKING:
    from kubexm_exec.console.checkview import ForecastLog

_NARROWEST: Final = 40
_IGNORED: Final = 5
_MAYBE_DONE: Final = "nobody knew how far it had come"
_LIMITED: Final = 5
"""Up to so many failed hosts are offered as ``--limit``."""


class Commands(Struct, frozen=True):
    """What can be typed to do the same once more, as far as there is a command for it."""

    run: str
    look: str
    """Ask the hosts what would change."""
    step: str
    """Go through it step by step."""
    limit: str = ""
    """On some hosts only: their names follow."""


class Journaled(Struct, frozen=True):
    """What the journal has of a run."""

    command: str
    """``kubexm runs``, as it is typed for this journal."""
    run: str
    done_before: int = 0
    """Actions that earlier sessions have done."""
    due: Mapping[str, Sequence[str]] = {}
    """Handlers that are due, with their hosts."""


def render_summary(
    graph: ExecutionGraph,
    result: GraphExecutionResult,
    *,
    color: bool,
    width: int,
    commands: Commands | None,
    forecasts: ForecastLog | None = None,
    journaled: Journaled | None = None,
) -> str:
    """The end of a run as text. ``commands``: what can be typed next; without them, none are offered.

    ``journaled``: the run can be shown and resumed later.
    ``forecasts`` has the rendered parameters of a dry run; without it they are shown as they were written.
    """
    paint = Paint(color)
    width = max(width, _NARROWEST)
    failures = find_failures(graph, result)
    lines = list(render_failures(graph, failures, paint, width))
    if result.mode is RunMode.OFFLINE:
        from kubexm_exec.console.checkview import render_dry_run

        lines = [*render_dry_run(graph, result, forecasts, paint), *(["", *lines] if lines else [])]
    elif result.mode is RunMode.LOOK:
        from kubexm_exec.console.checkview import render_check

        lines += render_check(result, paint)
    elif result.mode is RunMode.UNDO:
        lines = ["", *_undone(result, paint, width)][:-1]
    else:
        lines = ["", *lines, *_run(graph, result, paint, width, journaled)]
    if commands is not None:
        lines += _next(result, failures, commands, paint, journaled)
    return "\n".join(lines) + "\n"


def _run(
    graph: ExecutionGraph, result: GraphExecutionResult, paint: Paint, width: int, journaled: Journaled | None
) -> Iterator[str]:
    yield from _ignored(find_failures(graph, result, ignored=True), paint, width)
    yield from _repeated(result, paint, width)
    yield from _due(journaled.due if journaled is not None else {}, paint, width)
    yield from _undone(result, paint, width)
    total, modules, hosts = count(graph, result)
    if modules:
        yield from module_table(modules, total, paint, width)
        yield ""
        yield from host_table(hosts, total, paint, width)
        yield ""
    yield _status(result, total, paint, journaled.done_before if journaled is not None else 0)


def _ignored(failures: list[Failure], paint: Paint, width: int) -> Iterator[str]:
    for failure in failures[:_IGNORED]:
        text = f"{failure.node} on {names(failure.where)}: {one_line(failure.result.message)}"
        word = "rescued" if failure.result.rescued else "ignored"
        yield f"{paint(word, 'warning')}  {fit(text, width - 9)}"
    if len(failures) > _IGNORED:
        yield f"         + {plural(len(failures) - _IGNORED, 'more ignored failure')}"
    if failures:
        yield ""


def _repeated(result: GraphExecutionResult, paint: Paint, width: int) -> Iterator[str]:
    """What was simply run again, although an earlier attempt may have completed it."""
    found = list(repeated_actions(result))
    for node, hosts in found[:_IGNORED]:
        yield f"{paint('repeated', 'warning')}  {fit(f'{node} on {names(hosts)}: {_MAYBE_DONE}', width - 10)}"
    if len(found) > _IGNORED:
        yield f"          + {len(found) - _IGNORED} more were repeated"
    if found:
        yield ""


def repeated_actions(result: GraphExecutionResult) -> Iterator[tuple[str, list[str]]]:
    """The nodes that were simply run again, each with where that was."""
    for name, node in result.node_results.items():
        hosts = [each.where for each in node.host_results.values() if each.repeated]
        if hosts:
            yield name, hosts


def _due(due: Mapping[str, Sequence[str]], paint: Paint, width: int) -> Iterator[str]:
    """Handlers that were notified and did not run: nothing of it is forgotten."""
    for handler, hosts in due.items():
        text = f"{one_line(handler)} on {names(hosts)}: it was notified, and runs with a resume or the next run"
        first, *more = wrapped(text, width - 5, 5)
        yield f"{paint('due', 'warning')}  {first}"
        yield from more
    if due:
        yield ""


def _undone(result: GraphExecutionResult, paint: Paint, width: int) -> Iterator[str]:
    words = {"undoFailed": "could not be undone", "leftAlone": "left alone"}
    done, broken = 0, []
    for node in result.node_results.values():
        for each in node.host_results.values():
            state, _, why = each.undo.partition(": ")
            done += state == "undone"
            if state in words:
                broken.append((words[state], f"{node.node_name} on {each.where}: {one_line(why)}"))
    kept = [each for node in result.node_results.values() for each in node.host_results.values() if each.undo]
    if not kept:
        return
    yield f"{paint('Rolled back', 'head')}: {plural(done, 'action')} undone"
    for what, text in broken:
        # What can be done about it stands at the end.
        first, *more = wrapped(f"{what}: {text}", width - 2, 4)
        yield f"  {paint(what, 'failed')}{first.removeprefix(what)}"
        yield from (f"  {line}" for line in more)
    if result.not_reversible:
        yield f"  {paint('cannot be undone', 'warning')}: {names(result.not_reversible, 10)}"
    yield ""


def _status(result: GraphExecutionResult, total: Counts, paint: Paint, before: int) -> str:
    word, style = STATUS_WORDS.get(result.status, (result.status.value, ""))
    if not total.actions:
        return f"{paint(word, style)}  {one_line(result.graph_name)}: nothing to do"
    took = ""
    if result.start_time is not None and result.end_time is not None:
        took = f" in {format_duration(result.end_time - result.start_time)}"
    what = f"{plural(total.actions, 'action')} on {plural(len(total.hosts), 'host')}{took}"
    said = total.words()
    if before:
        said = f"{said}; {before} of them {'was' if before == 1 else 'were'} done before"
    if result.status is Status.SUCCESS and total.bad:
        said = f"{said}, within maxFailures"
    elif result.status is Status.SUCCESS and not total.numbers["changed"] and not result.mode.previews:
        said = f"{said}. Nothing needed to change."
    return f"{paint(word, style)}  {one_line(result.graph_name)}: {what}: {said}"


def _next(
    result: GraphExecutionResult, failures: list[Failure], commands: Commands, paint: Paint, journaled: Journaled | None
) -> Iterator[str]:
    offers = [list(offer) for offer in _offers(result, failures, commands, journaled)]
    lines = columns(offers, left=frozenset({0, 1}), gap=3) if offers else []
    label = paint("Next:", "head")
    for line in lines:
        yield f"{label}  {line}"
        label = "     "


def settling(resume: str, node: str) -> Iterator[tuple[str, str]]:
    """What resumes a run in which nobody knows how far a node came."""
    named = shlex.quote(node)
    yield f"{resume} --done {named}", "continue: it has completed, as you have seen on the host"
    yield f"{resume} --from {named}", "continue: run it again"


def _offers(
    result: GraphExecutionResult, failures: list[Failure], commands: Commands, journaled: Journaled | None
) -> Iterator[tuple[str, str]]:
    undone = {
        each.undo.partition(":")[0] for node in result.node_results.values() for each in node.host_results.values()
    }
    undone.discard("")
    if journaled is not None and "leftAlone" in undone:
        overwrite = f"{journaled.command} rollback {journaled.run} --overwrite"
        yield overwrite, "undo that too; the changes of others are lost"
    if result.mode is RunMode.UNDO:
        # Nothing else follows by itself: the person who rolled back knows why.
        return
    if result.mode is RunMode.OFFLINE:
        if not failures:
            yield commands.look, "ask the hosts what would change"
            yield commands.run, "run it"
        return
    if result.mode is RunMode.LOOK:
        states = {each.forecast for node in result.node_results.values() for each in node.host_results.values()}
        if failures:
            yield commands.look, "ask again after the fix"
        elif states & {ForecastState.CHANGE, ForecastState.UNKNOWN, ForecastState.NOT_LOOKED_AT}:
            yield commands.run, "apply these changes"
        return
    if result.status is Status.SUCCESS and not failures:
        yield commands.look, "see what has changed since"
        return
    kept = "after the fix" if undone else "after the fix; completed work is not repeated"
    if journaled is not None and not undone:
        resume = f"{journaled.command} resume {journaled.run}"
        unknown = next((failure.node for failure in failures if failure.result.unknown), "")
        if unknown:
            yield from settling(resume, unknown)
        else:
            yield resume, "continue after the fix" if failures else "continue"
        yield f"{journaled.command} show {journaled.run}", "see what happened"
    else:
        yield commands.run, kept if failures else "continue"
    hosts = list(dict.fromkeys(host for failure in failures for host in failure.hosts))
    if failures:
        yield commands.step, "step through it"
    if 0 < len(hosts) <= _LIMITED and commands.limit:
        yield f"{commands.limit} {','.join(hosts)} -v", "only where it failed, with output"
