"""What check and dry-run found: what would change on which hosts, with diffs; what would run, with its parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubexm_exec.console.changes import diff_lines, title
from kubexm_exec.console.failures import find_node
from kubexm_exec.console.text import Paint, fit, names, one_line, pad, text_lines
from kubexm_exec.model.events import ACTION_FINISHED, ACTION_FORECAST, Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.harmless import clean
from kubexm_exec.model.result import (
    COLUMNS,
    HIDDEN,
    ForecastState,
    GraphExecutionResult,
    HostResult,
    NodeResult,
    Status,
    column,
    counts,
)
from kubexm_spec.diagnostics import plural

DIFF: Final = 60
"""So many lines of a diff are shown."""
_VALUE: Final = 12
_LONGEST: Final = 400
"""Cells of a value on one line: it may take more than a row of the terminal, but a key need not fill the screen."""
_NODE: Final = 40
_SIGNS: Final = {"wouldChange": ("~", "changed"), "unknown": ("?", "skipped"), "notLookedAt": ("·", "skipped")}
"""By column, what a check found to show."""
_ALWAYS: Final = frozenset({"wouldChange", "unknown", "unchanged"})
_SAID: Final = (*_SIGNS, "unchanged", *(name for name in COLUMNS if name not in {*_SIGNS, "unchanged"}))
"""The columns in the order in which a check tells them."""


class ForecastLog:
    """A subscriber that remembers the rendered parameters that a dry run tells, and the order of its actions."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Mapping[str, Any]] = {}
        self.order: dict[tuple[str, str], None] = {}

    def __call__(self, event: Event) -> None:
        """Remember a forecast, or an action that has none."""
        if event.kind in (ACTION_FORECAST, ACTION_FINISHED):
            self.order[event.node, event.host] = None
        if event.kind == ACTION_FORECAST:
            self.found[event.node, event.host] = event.data


def render_check(result: GraphExecutionResult, paint: Paint) -> Iterator[str]:
    """What would change, what cannot be known, what was not looked at, and how many are as they should be."""
    numbers = counts(result)
    hosts: set[str] = set()
    groups: dict[tuple[Any, ...], list[HostResult]] = {}
    for node in result.node_results.values():
        for each in node.host_results.values():
            hosts.add(each.host_name)
            state = column(each, result.mode)
            if state in _SIGNS:
                # The same change on many hosts is one entry.
                key = (node.node_name, state, each.message, json.dumps(each.diffs, sort_keys=True, default=str))
                groups.setdefault(key, []).append(each)
    wide = min(_NODE, max((len(key[0]) for key in groups), default=0))
    where = min(40, max((len(_hosts(same)) for same in groups.values()), default=0))
    for (node_name, state, _, _), same in groups.items():
        yield from _entry(str(node_name), state, same, paint, (wide, where))
    if number := numbers["unchanged"]:
        yield f"{paint('=', 'ok')} {plural(number, 'action')} {'is as it' if number == 1 else 'are as they'} should be"
    if result.not_reversible:
        yield f"{paint('!', 'warning')} cannot be undone: {names(result.not_reversible, 10)}"
    said = [f"{numbers[name]} {COLUMNS[name]}" for name in _SAID if numbers[name] or name in _ALWAYS]
    yield f"Check: {', '.join(said)} on {plural(len(hosts), 'host')}. Nothing was changed."


def _hosts(each: Sequence[HostResult]) -> str:
    found = [result.where for result in each]
    return names(found) if len(found) == 1 else f"{len(found)} hosts: {names(found)}"


def _entry(node: str, state: str, each: Sequence[HostResult], paint: Paint, widths: tuple[int, int]) -> Iterator[str]:
    first = each[0]
    head = f"{paint(*_SIGNS[state])} {pad(clean(node), widths[0])}  {pad(_hosts(each), widths[1])}  "
    if state == "unknown":
        yield f"{head}unknown: {one_line(first.message) or 'no reason given'}"
        return
    if state == "notLookedAt":
        yield f"{head}not checked: {one_line(first.message) or 'would run'}"
        return
    if not first.diffs:
        yield f"{head}{one_line(first.message) or 'would run'}"
        return
    for index, diff in enumerate(first.diffs):
        yield (head + title(diff) if index == 0 else f"    {title(diff)}").rstrip()
        yield from (f"    {line}" for line in diff_lines(diff, paint, DIFF, "--result FILE writes all of it"))


def render_dry_run(
    graph: ExecutionGraph, result: GraphExecutionResult, forecasts: ForecastLog | None, paint: Paint
) -> Iterator[str]:
    """Every action in order with its parameters; hosts with the same parameters together, batch by batch."""
    parts = _parts(graph, result, forecasts)
    total = len(parts)
    size = len(str(total))
    for number, (name, there) in enumerate(parts, 1):
        of = result.node_results[name]
        counter = paint(f"[{number:>{size}}/{total}]", "dim")
        for hosts, params, each in _alike(graph, of, there, forecasts):
            head = f"{counter} {paint(clean(name), 'head')}  {clean(of.step_name)}"
            yield from _planned(head, " " * (2 * size + 6), hosts, params, each, paint)
            counter = " " * (2 * size + 3)
    numbers = counts(result)
    actions = numbers["wouldRun"] + numbers["unknown"]
    failed = numbers["failed"] + numbers["unreachable"] + numbers["ignored"] + numbers["rescued"]
    end = f" {plural(failed, 'action')} cannot be planned." if failed else ""
    where = plural(len({host for of in result.node_results.values() for host in of.host_results}), "host")
    yield f"Dry run: {plural(actions, 'action')} on {where}.{end} No host was contacted."


def _alike(
    graph: ExecutionGraph, of: NodeResult, there: Iterable[str], forecasts: ForecastLog | None
) -> Iterable[tuple[list[str], Any, HostResult]]:
    """Those of some hosts of a node for which the same is planned, with the parameters."""
    node = find_node(graph, of.node_name)
    written: Any = dict(node.with_) if node is not None and not node.sensitive else HIDDEN
    groups: dict[str, tuple[list[str], Any, HostResult]] = {}
    for host in there:
        each = of.host_results[host]
        said = forecasts.found.get((of.node_name, host)) if forecasts is not None else None
        params = written if said is None else said.get("params")
        key = json.dumps([each.status, each.message, params], sort_keys=True, default=str)
        groups.setdefault(key, ([], params, each))[0].append(each.where)
    return groups.values()


def _parts(
    graph: ExecutionGraph, result: GraphExecutionResult, forecasts: ForecastLog | None
) -> list[tuple[str, list[str]]]:
    """Nodes with their hosts, those of each batch apart, in the order their first action came up."""
    every = {(name, host): None for name, of in result.node_results.items() for host in of.host_results}
    order = {} if forecasts is None else {action: None for action in forecasts.order if action in every}
    batches = _batches(graph)
    hosts: dict[tuple[str, int], list[str]] = {}
    for name, host in order | every:
        node = graph.nodes.get(name)
        task = {} if node is None else batches.get(f"{node.module}/{node.task}", {})
        hosts.setdefault((name, task.get(host, 1)), []).append(host)
    for name, of in result.node_results.items():
        if not of.host_results:
            hosts[name, 1] = []
    return [(name, there) for (name, _), there in hosts.items()]


def _batches(graph: ExecutionGraph) -> dict[str, dict[str, int]]:
    """By task the batch of each host, as far as that is not the first."""
    found: dict[str, dict[str, int]] = {}
    for node in graph.nodes.values():
        for each in node.dependencies:
            task, _, number = each.node.rpartition("#batch")
            if task and each.hosts is not None:
                found.setdefault(task, {}).update(dict.fromkeys(each.hosts, int(number)))
    return found


def _planned(
    head: str, indent: str, hosts: Sequence[str], params: Any, each: HostResult, paint: Paint
) -> Iterator[str]:
    # Every action is shown, so every host is named.
    where = f"on {names(hosts, len(hosts))}"
    if each.status is Status.SKIPPED:
        yield f"{head}  {where}  {paint('skipped', 'skipped')}: {one_line(each.message) or 'condition not met'}"
        return
    yield f"{head}  {where}"
    if each.status is Status.FAILED:
        yield f"{indent}{paint('FAILED', 'failed')}: {one_line(each.message)}"
        return
    yield from format_params(params, paint, indent)
    if (each.forecast is ForecastState.UNKNOWN or each.due_since) and each.message:
        yield f"{indent}{paint('?', 'skipped')} {one_line(each.message)}"


def format_params(params: Any, paint: Paint, indent: str = "") -> Iterator[str]:
    """Parameters, one a line; long texts as blocks, folded."""
    if not isinstance(params, Mapping):
        if params:
            yield indent + one_line(str(params))
        return
    for key, value in params.items():
        label = f"{indent}{paint(f'{key}:', 'dim')}"
        lines = text_lines(value) if isinstance(value, str) else []
        if len(lines) < 2:
            yield f"{label} {fit(_value(value), _LONGEST)}"
            continue
        yield f"{label} |"
        yield from (f"{indent}  {line}".rstrip() for line in lines[:_VALUE])
        if len(lines) > _VALUE:
            yield f"{indent}  … {plural(len(lines) - _VALUE, 'more line')}"


def _value(value: Any) -> str:
    """A value on one line, as YAML would have it."""
    if isinstance(value, str):
        text = one_line(value)
        # Quotes where the text would be read as something else than text, or not seen.
        return json.dumps(text, ensure_ascii=False) if _needs_quotes(text) else text
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


def _needs_quotes(text: str) -> bool:
    if not text or text != text.strip() or text[0] in "[]{}#&*!|>'\"%@`,?:-" or text.lower() in _WORDS:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "~"})
