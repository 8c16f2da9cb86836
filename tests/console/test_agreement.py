"""Whatever a check or a dry run finds: text, live view, JSON, report and result count it alike."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from kubexm_exec.cli.typed import next_commands
from kubexm_exec.console.summary import render_summary
from kubexm_exec.console.tally import Tally
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.dryrun import DryRunExecutor
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.events import RUN_FINISHED
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import (
    COLUMNS,
    FailureKind,
    ForecastState,
    HostResult,
    SkipReason,
    Status,
    column,
    column_of,
)
from kubexm_exec.report import render_report
from kubexm_exec.step import Diff, Forecast, Params, Result, Step, StepContext, StepFailed
from kubexm_spec.diagnostics import plural
from tests.executors.kit import Bench, Ran, graph, node

Shape = Literal[
    "change", "diff", "satisfied", "unknown", "always", "harmless", "tells", "reads", "reads-fails", "fails",
    "unreachable", "breaks",
]  # fmt: skip
SHAPES: dict[Shape, Forecast | Exception] = {
    "change": Forecast.change("would act"),
    "diff": Forecast.change("would act", [Diff("/a", "old\n", "new\n")]),
    "satisfied": Forecast.satisfied("so already"),
    "unknown": Forecast.unknown("who knows"),
    "always": Forecast.always("would run"),
    "harmless": Forecast.harmless("would ask"),
    "tells": Forecast.tells("says"),
    "reads": Forecast.reads("asks"),
    "reads-fails": Forecast.reads("asks"),
    "fails": StepFailed("no"),
    "unreachable": ConnectorError("no route"),
    "breaks": ValueError("broken"),
}


class ShapeParams(Params):
    shape: Shape


class _Shaped(Step[ShapeParams]):
    def precheck(self, ctx: StepContext) -> Forecast:
        said = SHAPES[self.params.shape]
        if isinstance(said, Exception):
            raise said
        return said

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        assert self.params.shape.startswith("reads"), "check runs only what only reads"
        if self.params.shape == "reads-fails":
            raise StepFailed("no answer")
        return Result(changed=False)


_ACTION = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(list(SHAPES)),
        "hosts": st.sampled_from([("h1",), ("h1", "h2")]),
        "ignore_errors": st.booleans(),
        "when": st.sampled_from([None, None, "false", "host.name == 'h1'", "steps.s0.changed"]),
        "needs": st.booleans(),
    }
)


def _graph(actions: list[dict[str, Any]]) -> ExecutionGraph:
    nodes = []
    for number, one in enumerate(actions):
        # What comes first has nobody to wait for.
        when = None if not number and one["when"] == "steps.s0.changed" else one["when"]
        after = ["s0"] if number and one["needs"] else ()
        more = {"when": when, "hosts": one["hosts"], "ignore_errors": one["ignore_errors"]}
        nodes.append(node(f"s{number}", "shaped", with_={"shape": one["shape"]}, after=after, **more))
    return graph(*nodes)


def _said(text: str) -> dict[str, int]:
    """The numbers of a sentence, by column."""
    names = {label: name for name, label in COLUMNS.items()}
    found = re.findall(rf"(\d+) ({'|'.join(sorted(names, key=len, reverse=True))})", text)
    return {names[label]: int(number) for number, label in found if int(number)}


def _text(ran: Ran, of: ExecutionGraph) -> str:
    return render_summary(of, ran.result, color=False, width=100, commands=next_commands(["kubexm-run", "x.yaml"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(_ACTION, min_size=1, max_size=6))
def test_every_view_of_a_check_counts_alike(actions: list[dict[str, Any]]) -> None:
    of = _graph(actions)
    ran = Bench(steps={"shaped": _Shaped}).run(of, CheckExecutor)
    data = ran.of(RUN_FINISHED)[0].data
    counted = {name: number for name, number in data["counts"].items() if number and name != "ok"}
    assert sum(counted.values()) == sum(len(one["hosts"]) for one in actions)
    assert _said(data["message"].partition(": ")[2]) == counted, "the sentence of the run"
    assert ran.result.to_json()["message"] == data["message"]
    text = _text(ran, of)
    assert _said(next(line for line in text.splitlines() if line.startswith("Check: "))) == counted
    if counted.get("unchanged"):
        number = counted["unchanged"]
        assert f"= {plural(number, 'action')} {'is as it' if number == 1 else 'are as they'} should be\n" in text
    else:
        assert "should be" not in text
    tally = Tally(of)
    for event in ran.events:
        tally(event)
    assert tally.all.numbers == counted, "the live view"
    page = render_report(of, ran.result, ran.events)
    header = re.sub(r"<[^>]+>", "", page[page.index('<ul class="counts">') : page.index("</header>")])
    assert _said(header) == counted, "the report"
    for action in _results(ran):
        assert column_of(action.to_json()) == column(action)


@settings(max_examples=30, deadline=None)
@given(st.lists(_ACTION, min_size=1, max_size=6))
def test_every_view_of_a_dry_run_counts_alike(actions: list[dict[str, Any]]) -> None:
    of = _graph(actions)
    ran = Bench(steps={"shaped": _Shaped}).run(of, DryRunExecutor)
    data = ran.of(RUN_FINISHED)[0].data
    counted = {name: number for name, number in data["counts"].items() if number and name != "ok"}
    assert counted.keys() <= {"wouldRun", "unknown", "skipped"}
    assert _said(data["message"].partition(": ")[2]) == counted
    planned = plural(counted.get("wouldRun", 0) + counted.get("unknown", 0), "action")
    assert f"Dry run: {planned} on " in _text(ran, of)
    tally = Tally(of)
    for event in ran.events:
        tally(event)
    assert tally.all.numbers == counted


def _results(ran: Ran) -> list[HostResult]:
    return [each for of in ran.result.node_results.values() for each in of.host_results.values()]


def test_a_result_and_its_json_form_are_in_the_same_column() -> None:
    forecasts, reasons, kinds = [None, *ForecastState], [None, *SkipReason], [None, *FailureKind]
    for status, forecast, reason, kind, yes in product(Status, forecasts, reasons, kinds, range(8)):
        each = HostResult(
            host_name="h", status=status, forecast=forecast, reason=reason, kind=kind, changed=bool(yes & 1),
            ignored=bool(yes & 2), unknown=bool(yes & 4),
        )  # fmt: skip
        assert column(each) in COLUMNS
        assert column_of(each.to_json()) == column(each)
