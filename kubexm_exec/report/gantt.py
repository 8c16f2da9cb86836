"""The chart of what ran when on which host, bounded in size however many actions there were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from kubexm_exec.draw.status import LOOKS, look, worst
from kubexm_exec.draw.text import clean, escape, text_width
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import GraphExecutionResult
from kubexm_exec.report.critical import CriticalPath
from kubexm_exec.report.parts import took
from kubexm_exec.report.tally import actions, outcome
from kubexm_spec.diagnostics import plural

MOST = {"action": 20_000, "task": 60_000}
"""Up to so many actions each has its bar; more are put together by task, and if those are too many by module."""
STATIC = 1_500
"""Up to so many bars are in the page itself; more are drawn by its script, for the rows that are looked at."""
ROWS = 2_000
LANES = 5
BAR = 15
WIDTH = 880  # pixels that a chart has about: whether a name fits into its bar is judged by it
_KEYS = list(LOOKS)


class Bar(Struct):
    """One action, or several of one task (or module) on one host."""

    start: float
    end: float
    label: str
    status: str
    """Key of a look."""
    critical: bool = False
    count: int = 1
    lane: int = 0


class Chart(Struct, frozen=True):
    """Bars by host, from the start of the run."""

    rows: Mapping[str, list[Bar]]
    seconds: float
    of: str
    """What a bar is: action, task or module."""
    left_out: int = 0


def chart(graph: ExecutionGraph, result: GraphExecutionResult, path: CriticalPath) -> Chart:
    """The bars of a run; hosts in the order of the inventory."""
    critical = {(action.node, action.host) for action in path.actions}
    timed = [
        (name, action.host_name, action.start_time, action.end_time, look(outcome(action)).key)
        for name, action in actions(result)
        if action.start_time is not None and action.end_time is not None
    ]
    begin = min(
        [start for _, _, start, _, _ in timed] + ([result.start_time] if result.start_time else []), default=0.0
    )
    seconds = max((end - begin for _, _, _, end, _ in timed), default=0.0)
    rows: dict[str, list[Bar]] = {host: [] for host in graph.hosts}
    of = "action"
    for depth, name_of_depth in ((0, "action"), (2, "task"), (1, "module")):
        of = name_of_depth
        merged: dict[tuple[str, str], Bar] = {}
        for name, host, start, end, status in timed:
            label = name if not depth else "/".join(name.split("/")[:depth])
            bar = merged.get((host, label))
            mark = (name, host) in critical
            if bar is None:
                merged[host, label] = Bar(start - begin, end - begin, label, status, mark)
            else:
                bar.start, bar.end = min(bar.start, start - begin), max(bar.end, end - begin)
                bar.status = (worst((LOOKS[bar.status], LOOKS[status])) or LOOKS[status]).key
                bar.critical, bar.count = bar.critical or mark, bar.count + 1
        if len(merged) <= MOST.get(of, len(merged)):
            break
    for (host, _), bar in merged.items():
        rows.setdefault(host, []).append(bar)
    rows = {host: bars for host, bars in rows.items() if bars}
    for bars in rows.values():
        _stack(bars)
    shown = dict(list(rows.items())[:ROWS])
    return Chart(shown, seconds, of, len(rows) - len(shown))


def _stack(bars: list[Bar]) -> None:
    """Give bars of one host that overlap different lanes."""
    bars.sort(key=lambda bar: (bar.start, bar.end))
    free = [0.0] * LANES
    for bar in bars:
        bar.lane = next((lane for lane, end in enumerate(free) if end <= bar.start + 1e-9), LANES - 1)
        free[bar.lane] = max(free[bar.lane], bar.end)


def ticks(seconds: float) -> list[float]:
    """Round times for an axis, about eight of them."""
    if seconds <= 0:
        return [0.0]
    rough = seconds / 8
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [power * one for one in (1, 2, 5, 10)]
    if rough > 5:
        steps = [
            one for one in (10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400) if one >= rough
        ] or steps
    step = next((one for one in steps if one >= rough), steps[-1])
    return [step * index for index in range(int(seconds / step) + 1)]


def chart_html(one: Chart) -> str:
    """The chart; rows that are not in it yet are empty and have their number, for the script."""
    if not one.rows:
        return ""
    bars = sum(len(row) for row in one.rows.values())
    static = bars <= STATIC
    axis = "".join(
        f'<text x="{_share(tick, one.seconds)}" y="13">{took(tick) if tick else "0"}</text>'
        for tick in ticks(one.seconds)
    )
    lines = "".join(f'<line x1="{s}" x2="{s}" y1="0" y2="100%"/>' for s in _shares(ticks(one.seconds), one.seconds))
    parts = [
        '<div class="gantt-bar"><span class="set" role="group" aria-label="Zoom the time">',
        '<button type="button" data-time="out">−</button><button type="button" data-time="all">All</button>',
        '<button type="button" data-time="in">+</button></span>',
        f"<span>{_legend(one)}</span></div>\n",
        '<div class="gantt" tabindex="0" role="group" aria-label="What ran when on which host">\n',
        '<div class="g-rows">\n',
        f'<div class="g-row g-axis"><div class="g-name"></div><svg height="20">{axis}</svg></div>\n',
        f'<svg class="g-lines" aria-hidden="true">{lines}</svg>\n',
    ]
    for index, (host, row) in enumerate(one.rows.items()):
        height = (max(bar.lane for bar in row) + 1) * BAR + 7
        inside = "".join(_bar(bar, one.seconds) for bar in row) if static else ""
        parts.append(
            f'<div class="g-row" data-row="{index}"><div class="g-name" title="{escape(host)}">{escape(host)}</div>'
            f'<svg height="{height}">{inside}</svg></div>\n'
        )
    parts.append("</div></div>\n")
    if one.left_out:
        parts.append(f"<p>and {plural(one.left_out, 'more host')}</p>")
    if not static:
        parts.append("<noscript><p>The chart is drawn by a script: allow it to see the bars.</p></noscript>")
    return "".join(parts)


def _legend(one: Chart) -> str:
    keys = {bar.status for row in one.rows.values() for bar in row}
    words = [
        f'<span class="key"><i class="b-{key}"></i>{LOOKS[key].symbol} {LOOKS[key].label}</span>'
        for key in _KEYS
        if key in keys
    ]
    words.append('<span class="key"><i class="b-crit"></i>critical path</span>')
    if one.of != "action":
        words.append(f"<span>one bar for each {one.of} on a host</span>")
    return " ".join(words)


def _share(value: float, whole: float) -> str:
    return f"{100 * value / whole:.3f}".rstrip("0").rstrip(".") + "%" if whole > 0 else "0%"


def _shares(values: Iterable[float], whole: float) -> list[str]:
    return [_share(value, whole) for value in values]


def _bar(bar: Bar, seconds: float) -> str:
    # The script makes the same of the same numbers: see drawRow in report.js.
    x, width = _share(bar.start, seconds), _share(max(bar.end - bar.start, 0.0), seconds)
    y = 4 + bar.lane * BAR
    words = f"{bar.label}\n{took(bar.end - bar.start)} from {took(bar.start)}\n{LOOKS[bar.status].label}"
    words += f", {plural(bar.count, 'action')}" if bar.count > 1 else ""
    words += "\non the critical path" if bar.critical else ""
    text = bar.label.rpartition("/")[2]
    room = (bar.end - bar.start) / seconds * WIDTH if seconds else 0.0
    name = ""
    if text_width(text, 10) + 10 <= room:
        name = f'<svg x="{x}" width="{width}" y="{y}" height="{BAR}"><text x="5" y="10.5">{escape(text)}</text></svg>'
    if bar.status == "failed":  # not by colour alone
        name += f'<text class="bad" x="{_share(bar.end, seconds)}" dx="2" y="{y + 10.5}">✘</text>'
    css = f"b-{bar.status} crit" if bar.critical else f"b-{bar.status}"
    return (
        f'<rect class="{css}" x="{x}" y="{y}" width="{width}" height="{BAR - 2}" rx="2.5">'
        f"<title>{escape(words)}</title></rect>{name}"
    )


def chart_data(one: Chart) -> dict[str, Any] | None:
    """The bars as numbers, for the script; None if they are all in the page."""
    if sum(len(row) for row in one.rows.values()) <= STATIC:
        return None
    labels: dict[str, int] = {}
    rows = []
    for row in one.rows.values():
        flat: list[int] = []
        for bar in row:
            start, length = round(bar.start * 1000), round((bar.end - bar.start) * 1000)
            code = _KEYS.index(bar.status) * 2 + bar.critical
            flat += [start, length, labels.setdefault(clean(bar.label), len(labels)), code, bar.count, bar.lane]
        rows.append(flat)
    return {
        "ms": round(one.seconds * 1000),
        "labels": list(labels),
        "looks": [[key, LOOKS[key].label] for key in _KEYS],
        "rows": rows,
        "bar": BAR,
    }
