"""The diffs of a result: what an action changed, and of one that broke off what it may have changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubexm_exec.model.result import HostResult, Status
from kubexm_exec.step import Diff, Forecast, Params, Result, Standing, Step, StepContext, StepFailed, Undo
from tests.executors.kit import Bench, graph, node


class PlanParams(Params):
    saves: bool = False
    """Save an undo before it goes on."""
    works: bool = True
    before: bool = False
    """All is as it was before the run, whatever it has done."""
    changed: bool = True


class Plan(Step[PlanParams]):
    """Cannot be undone."""

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.change("would change", [Diff("/etc/x", "a\n", "b\n")])

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        if self.params.saves:
            ctx.save_undo({"x": 1})
        if not self.params.works:
            raise StepFailed("broken")
        return Result(changed=self.params.changed)


class Undoable(Plan):
    """Can be undone."""

    undo = Undo.REPEATABLE

    def standing(self, ctx: StepContext, undo: Mapping[str, Any]) -> Standing:
        return Standing(before=self.params.before)

    def rollback(self, ctx: StepContext, undo: Mapping[str, Any]) -> None: ...


def result(kind: str, **with_: Any) -> HostResult:
    bench = Bench(steps={"plan": Plan, "undoable": Undoable})
    return bench.run(graph(node("a", kind, with_=with_))).host("a")


CHANGE = [{"path": "/etc/x", "text": "@@ -1 +1 @@\n-a\n+b", "note": ""}]


def test_what_was_changed_has_its_diffs_and_what_was_not_has_none() -> None:
    assert result("plan").diffs == CHANGE
    assert not result("plan", changed=False).diffs


def test_what_failed_has_the_diffs_of_what_it_may_have_changed() -> None:
    for kind in ("plan", "undoable"):
        failed = result(kind, works=False, saves=True)
        assert (failed.status, failed.changed, failed.diffs) == (Status.FAILED, False, CHANGE)


def test_what_failed_before_it_changed_anything_has_none() -> None:
    # What can be undone says so before it changes something, or finds out afterwards that all is as it was.
    assert not result("undoable", works=False).diffs
    assert not result("undoable", works=False, saves=True, before=True).diffs
    assert result("plan", works=False).diffs == CHANGE  # nothing tells
