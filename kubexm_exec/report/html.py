"""Puts the sections of a report together into one page."""

from __future__ import annotations

from collections.abc import Sequence

from kubexm_exec.draw.html import add_graph
from kubexm_exec.draw.model import model
from kubexm_exec.draw.page import Page, asset
from kubexm_exec.draw.status import LOOKS, look, worst
from kubexm_exec.draw.style import page_style
from kubexm_exec.draw.text import escape
from kubexm_exec.model.events import Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import COLUMNS, GraphExecutionResult, RunMode, Status, timestamp
from kubexm_exec.report.critical import CriticalPath, critical_path
from kubexm_exec.report.failures import failures_html, forecasts_html, planned_html, undo_html
from kubexm_exec.report.gantt import chart, chart_data, chart_html
from kubexm_exec.report.logs import logs_data, run_log
from kubexm_exec.report.parts import folded, mark, pre, section, sign, table, took
from kubexm_exec.report.tally import LOOKS_OF, Tally, node_outcome, shown_columns, tallies
from kubexm_spec.diagnostics import plural

HOSTS = 200
"""So many hosts are in the table; the rest, if nothing is wrong with them, are one row."""
STEPS = 40
"""So many actions of the critical path are listed."""
ONLY_LOOKED = {
    RunMode.LOOK: "Check: nothing was changed.",
    RunMode.OFFLINE: "Dry run: no host was contacted.",
}


def report_page(graph: ExecutionGraph, result: GraphExecutionResult, events: Sequence[Event]) -> str:
    """The page."""
    name = result.graph_name or graph.name
    page = Page(f"{name}: {result.status.value}", "report")
    page.style(page_style() + asset(__package__, "report.css") + _status_style())
    total, modules, hosts = tallies(graph, result)
    ran = result.mode is not RunMode.OFFLINE
    path = critical_path(graph, result) if ran else CriticalPath()
    bars = chart(graph, result, path) if ran else None
    drawing = model(graph)
    statuses = {node: node_outcome(found) for node, found in result.node_results.items()}
    parts = [
        section("failures", "Failures", failures_html(graph, result)),
        section("changes", "What would change", forecasts_html(result) if result.mode is RunMode.LOOK else ""),
        section("plan", "What would run", planned_html(graph, events) if result.mode is RunMode.OFFLINE else ""),
        section("summary", "Summary", _tables(modules, hosts, result.mode)),
        section("undo", "Undo", undo_html(result)),
        section("graph", "Graph", add_graph(page, drawing, statuses, wheel="ctrl") if drawing.boxes else ""),
        section("timeline", "Timeline", chart_html(bars) if bars else "", _timeline_note(path, result)),
        section("critical", "Critical path", _critical(path)),
        section("logs", "Logs", _LOGS),
        section("runlog", "Log of the run", _run_log(events)),
    ]
    page.data("kx-logs-data", logs_data(result, events))
    page.data("kx-gantt-data", chart_data(bars) if bars else None)
    page.data("kx-looks-data", {key: [one.symbol, one.label] for key, one in LOOKS.items()})
    page.script(asset(__package__, "report.js"))
    page.body = _header(name, result, total) + _navigation(parts) + f"<main>\n{''.join(parts)}</main>\n"
    return page.render()


def _status_style() -> str:
    rules = []
    for key in LOOKS:
        rules.append(f".sign.s-{key}{{color:var(--s-{key})}}")
        rules.append(f".b-{key}{{fill:var(--s-{key});background:var(--s-{key})}}")
        rules.append(f".status.s-{key}{{background:var(--s-{key})}}")
    return "\n".join(rules)


def _header(name: str, result: GraphExecutionResult, total: Tally) -> str:
    one = look(result.status.value)
    seconds = None
    if result.start_time is not None and result.end_time is not None:
        seconds = result.end_time - result.start_time
    started = (timestamp(result.start_time) or "").replace("T", " ")[:19]
    facts = [
        ("Run", f"<code>{escape(result.run_id)}</code>" if result.run_id else ""),
        ("Executor", escape(result.executor)),
        ("Started", f'<time datetime="{timestamp(result.start_time)}">{started} UTC</time>' if started else ""),
        ("Took", took(seconds)),
    ]
    listed = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in facts if value)
    counted = []
    for column, label in COLUMNS.items():
        if count := total.numbers[column]:
            status = "skipped" if column in ("ignored", "rescued") else LOOKS_OF[column]
            counted.append(f"<li>{sign(status, f'{count:,} {label}')}</li>")
    # The counts are told right below, and better.
    said = ONLY_LOOKED.get(result.mode, "") or ("" if " actions: " in result.message else result.message)
    status = "Success" if result.status is Status.SUCCESS else result.status.value
    sentence = f"<p>{escape(said)}</p>\n" if said else ""
    return (
        f'<header><h1><span class="status s-{one.key}">{one.symbol} {escape(status)}</span> {escape(name)}</h1>\n'
        f'{sentence}<dl>{listed}</dl>\n<ul class="counts">{"".join(counted)}</ul></header>\n'
    )


def _navigation(parts: Sequence[str]) -> str:
    links = []
    for part in filter(None, parts):
        ident = part.split('"', 2)[1]
        title = part.partition("<h2>")[2].partition("</h2>")[0].partition(" <small>")[0]
        links.append(f'<a href="#{ident}">{title}</a>')
    return f'<nav class="parts" aria-label="Parts of this page">{" ".join(links)}</nav>\n'


def _tables(modules: Sequence[Tally], hosts: Sequence[Tally], mode: RunMode) -> str:
    columns = shown_columns([*modules, *hosts], mode)
    first = _table("Module", modules, columns)
    shown = list(hosts)
    note = ""
    if len(hosts) > HOSTS:
        # Hosts with trouble first, then the slow ones; the order of the inventory among equals.
        shown = sorted(hosts, key=_trouble)
        note = f"<p>and {plural(len(hosts) - HOSTS, 'more host')}; these are the ones that had trouble or were slow</p>"
    return first + _table("Host", shown[:HOSTS], columns) + note


def _trouble(one: Tally) -> tuple[float, ...]:
    numbers = one.numbers
    return -(numbers["failed"] + numbers["unreachable"]), -numbers["skipped"], -(one.seconds or 0.0)


def _table(what: str, rows: Sequence[Tally], columns: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""

    def cells(one: Tally) -> list[str]:
        found = worst(look(outcome) for outcome in one.outcomes)
        name = f"{mark(found.key)} {escape(one.name)}" if found else escape(one.name)
        counts = []
        for column, _ in columns:
            count = one.numbers[column]
            bad = count and column in ("failed", "unreachable")
            counts.append(
                f"<b class='bad'>{count:,}</b>" if bad else f"{count:,}" if count else '<span class="zero">0</span>'
            )
        return [name, *counts, took(one.seconds)]

    return table((what, *(label for _, label in columns), "time"), map(cells, rows), "numbers")


def _timeline_note(path: CriticalPath, result: GraphExecutionResult) -> str:
    if not path.actions or result.start_time is None or result.end_time is None:
        return ""
    return f"critical path {took(path.busy)} of {took(result.end_time - result.start_time)}"


def _critical(path: CriticalPath) -> str:
    if not path.actions:
        return ""
    whole = path.busy + path.waited or 1.0
    longest = sorted(path.actions, key=lambda one: -(one.seconds + one.waited))[:STEPS]
    shown = [one for one in path.actions if one in longest] if len(path.actions) > STEPS else list(path.actions)
    begin = path.actions[0].start
    rows = [
        (
            f"<code>{escape(one.node)}</code>",
            escape(one.host),
            took(one.start - begin),
            took(one.waited) if one.waited >= 0.001 else '<span class="zero">0</span>',
            took(one.seconds),
            f'<svg class="share" viewBox="0 0 100 8" aria-hidden="true">'
            f'<rect width="{100 * one.seconds / whole:.1f}" height="8"/></svg> {_percent(one.seconds / whole)}',
        )
        for one in shown
    ]
    said = (
        f"<p>The chain of actions that determined the end: {took(path.busy)} of work, and {took(path.waited)} in which "
        "the next one could have run but waited for a worker, a limit, a pause or another attempt.</p>"
    )
    more = ""
    if len(path.actions) > len(shown):
        more = f"<p>The {len(shown)} longest of {len(path.actions):,} actions are shown.</p>"
    return said + table(("Step", "Host", "at", "waited", "took", "share"), rows, "critical") + more


def _percent(share: float) -> str:
    return "under 1%" if share < 0.01 else f"{share:.0%}"


_LOGS = """<div class="log-bar"><input type="search" placeholder="Search in steps, hosts, messages and output"
 aria-label="Search in the logs">
<select aria-label="Which actions"><option value="">all outcomes</option></select><output></output></div>
<div class="log-list"></div><button type="button" class="more" hidden>Show more</button>
<noscript><p>The logs are shown by a script: allow it to read them. Failures are at the top.</p></noscript>"""


def _run_log(events: Sequence[Event]) -> str:
    lines = run_log(events)
    return folded(plural(len(lines), "line"), pre("\n".join(lines))) if lines else ""
