"""check: asks every precheck what would change, says what depends on what, and changes nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.model.errors import ConnectorError
from kubexm_exec.model.events import ACTION_FORECAST
from kubexm_exec.model.graph import FailurePolicy, On
from kubexm_exec.model.result import FailureKind, ForecastState, SkipReason, Status, counts
from kubexm_exec.step import Diff, Forecast, Outputs, Params, Result, Step, StepContext, StepFailed
from tests.executors.kit import Bench, Ran, behind, gate, graph, node


def _check(*nodes: Any, bench: Bench | None = None, **more: Any) -> Ran:
    return (bench or Bench()).run(graph(*nodes, **more), CheckExecutor)


def test_only_prechecks_are_called_and_their_forecast_is_the_result() -> None:
    ran = _check(node("a"), node("b", with_={"satisfied": True}))
    assert ran.book.lines == ["precheck m/t/a h1", "precheck m/t/b h1"]
    a, b = ran.host("a"), ran.host("b")
    assert (a.status, a.changed, a.forecast, a.message) == (Status.SUCCESS, False, ForecastState.CHANGE, "would act")
    assert a.diffs == [{"path": "/a", "text": "@@ -1 +1 @@\n-old\n+new", "note": ""}]
    assert (b.status, b.reason, b.skipped, b.forecast) == (
        Status.SKIPPED,
        SkipReason.PRECHECK,
        True,
        ForecastState.SATISFIED,
    )
    assert ran.result.status is Status.SUCCESS
    assert [event.data["state"] for event in ran.of(ACTION_FORECAST)] == ["change", "satisfied"]


def test_value_of_a_step_that_would_change_is_unknown_and_so_is_what_uses_it() -> None:
    ran = _check(
        node("a"),
        node("b", after=["a"], with_={"value": "{{ steps.a.outputs.value }}"}),
        node("c", after=["b"], when="steps.b.changed"),
    )
    for name, cause in (("b", "m/t/a"), ("c", "m/t/b")):
        assert ran.host(name).forecast is ForecastState.UNKNOWN
        assert ran.host(name).message == f"depends on {cause}"
        assert ran.host(name).status is Status.SUCCESS
    assert ran.result.status is Status.SUCCESS


def test_what_runs_only_after_a_change_is_asked_too_if_the_change_was_seen() -> None:
    ran = _check(
        node("a"),
        node("restart", after=["a"], when="steps.a.changed"),
        node("spare", after=["a"], when="not steps.a.changed"),
        node("value", after=["a"], when="steps.a.outputs.value == ''"),
    )
    assert ran.host("restart").forecast is ForecastState.CHANGE
    assert (ran.host("spare").status, ran.host("spare").reason) == (Status.SKIPPED, SkipReason.CONDITION)
    assert (ran.host("value").forecast, ran.host("value").message) == (ForecastState.UNKNOWN, "depends on m/t/a")


class _Runs(Step[Params]):
    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.change("would run: it says afterwards whether that changed anything")


def test_what_runs_only_after_a_change_is_unknown_if_only_the_run_can_tell() -> None:
    bench = Bench(steps={"runs": _Runs})
    ran = _check(node("a", "runs"), node("restart", after=["a"], when="steps.a.changed"), bench=bench)
    assert (ran.host("restart").forecast, ran.host("restart").message) == (ForecastState.UNKNOWN, "depends on m/t/a")


def test_satisfied_step_gives_its_outputs_on() -> None:
    ran = _check(
        node("a", with_={"satisfied": True, "value": "v"}),
        node("b", after=["a"], with_={"value": "{{ steps.a.outputs.value }}", "satisfied": True}),
    )
    assert ran.host("b").outputs["value"] == "v"


class _Refuses(Step[Params]):
    error: Exception = StepFailed("the service is not installed")

    def precheck(self, ctx: StepContext) -> Forecast:
        raise self.error


def test_precheck_that_fails_after_a_change_is_unknown_and_otherwise_failed() -> None:
    bench = Bench(steps={"refuses": _Refuses})
    ran = _check(
        node("a", hosts=["h1", "h2"], with_={"satisfied": "{{ host.name == 'h2' }}"}),
        gate("end", ["a"]),
        node("b", "refuses", hosts=["h1", "h2"], after=[behind("end")]),
        bench=bench,
    )
    assert (ran.host("b", "h1").forecast, ran.host("b", "h1").message) == (ForecastState.UNKNOWN, "depends on m/t/a")
    assert (ran.host("b", "h2").status, ran.host("b", "h2").message) == (Status.FAILED, "the service is not installed")
    assert ran.result.status is Status.FAILED


def test_change_that_is_no_ancestor_excuses_nothing() -> None:
    ran = _check(node("a"), node("b", "refuses"), bench=Bench(steps={"refuses": _Refuses}))
    assert ran.host("b").status is Status.FAILED


class _Lacks(Step[Params]):
    def precheck(self, ctx: StepContext) -> Forecast:
        failure = StepFailed("there is no such file", file="/missing")
        return Forecast.unknown("the file does not exist yet", seen=None, failure=failure)


class _Replaces(Step[Params]):
    path = "/other"

    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.change("would act", [Diff(self.path, "old", "new")], seen=None, replaces=self.path)


def test_what_is_missing_is_unknown_only_after_a_step_that_may_bring_it() -> None:
    brings = type("Brings", (_Replaces,), {"path": "/missing"})
    bench = Bench(steps={"lacks": _Lacks, "replaces": _Replaces, "brings": brings})
    ran = _check(
        node("a", "lacks"),
        node("b", "replaces"),
        node("c", "lacks", after=["b"]),
        node("d", "brings"),
        node("e", "lacks", after=["d"]),
        node("f"),
        node("g", "lacks", after=["f"]),
        bench=bench,
    )
    for name in "ac":
        assert (ran.host(name).status, ran.host(name).message) == (Status.FAILED, "there is no such file")
    for name in "eg":
        assert ran.host(name).forecast is ForecastState.UNKNOWN
        assert ran.host(name).message == "the file does not exist yet"


def test_host_that_does_not_answer_is_unreachable_also_after_a_change() -> None:
    gone = type("Gone", (_Refuses,), {"error": ConnectorError("no route")})
    ran = _check(node("a"), node("b", "gone", after=["a"], attempts=5, delay=600), bench=Bench(steps={"gone": gone}))
    assert (ran.host("b").status, ran.host("b").kind) == (Status.FAILED, FailureKind.UNREACHABLE)


def test_failure_policy_stops_no_check_and_nothing_is_undone() -> None:
    ran = _check(
        node("a", "refuses"),
        node("b", hosts=["h2"]),
        bench=Bench(steps={"refuses": _Refuses}, forks=1),
        policy=FailurePolicy.ROLLBACK,
    )
    assert ran.host("b", "h2").forecast is ForecastState.CHANGE
    assert ran.result.not_reversible == ["m/t/b"], "named, because it would change something"
    assert not [
        host.undo for node in ran.result.node_results.values() for host in node.host_results.values() if host.undo
    ]


def test_pauses_between_batches_are_not_waited_for() -> None:
    ran = _check(node("a"), gate("batch2", ["a"], pause=600.0, batch_budget="0"), node("b", after=[behind("batch2")]))
    assert ran.host("b").status is Status.SUCCESS


def test_hook_is_only_forecast() -> None:
    ran = _check(node("a"), gate("end", ["a"]), node("hook", after=[behind("end", On.DONE)]))
    assert ran.host("hook").forecast is ForecastState.CHANGE
    assert not any(line.startswith("run") for line in ran.book.lines)


class FileParams(Params):
    path: str


class _File(Step[FileParams]):
    """Looks at a real file by the real runner."""

    def precheck(self, ctx: StepContext) -> Forecast:
        found = ctx.runner.run(Command(argv=("cat", self.params.path)), check=False, live=False)
        return Forecast.change("would write", [Diff(self.params.path, found.out, "new\n")])

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        Path(self.params.path).write_text("new\n")
        return Result()


def _picture(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Everything in a folder: mode, modification time, digest."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, digest)
    return found


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_changes_on_the_host_not_even_a_temporary_file(tmp_path: Path, exists: bool) -> None:
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    if exists:
        (home / "sub" / "file").write_text("old\n")
    before = _picture(home)
    ran = _check(
        node("a", "file", with_={"path": str(home / "sub" / "file")}),
        node("b", "file", with_={"path": "{{ facts.hostname and host.name }}"}),
        bench=Bench(steps={"file": _File}),
    )
    assert _picture(home) == before
    assert ran.host("a").forecast is ForecastState.CHANGE
    assert "+new" in ran.host("a").diffs[0]["text"]


class LookParams(Params):
    says: str = ""
    fails: bool = False


class LookOutputs(Outputs):
    value: str


class _Looks(Step[LookParams]):
    """Says what is given; what ``run`` was called for is in ``ran``."""

    outputs_model = LookOutputs
    ran: ClassVar[list[str]] = []

    def precheck(self, ctx: StepContext) -> Forecast:
        said: Forecast = getattr(Forecast, self.params.says)("would look")
        return said

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        self.ran.append(ctx.node)
        if self.params.fails:
            raise StepFailed("no answer", outputs={"value": "none"})
        return Result(changed=False, outputs={"value": "seen"})


@pytest.mark.parametrize("says", ["always", "harmless"])
def test_what_check_does_not_run_is_not_looked_at_and_what_it_would_give_is_unknown(says: str) -> None:
    ran = _check(
        node("a", "looks", with_={"says": says}),
        node("b", after=["a"], with_={"value": "{{ steps.a.outputs.value | default('x') }}"}),
        bench=Bench(steps={"looks": _Looks}),
    )
    assert (ran.host("a").forecast, ran.host("a").message) == (ForecastState.NOT_LOOKED_AT, "would look")
    assert (ran.host("b").forecast, ran.host("b").message) == (ForecastState.UNKNOWN, "depends on m/t/a")
    total = counts(ran.result)
    assert (total["notLookedAt"], total["unknown"], total["unchanged"], total["wouldChange"]) == (1, 1, 0, 0)
    assert "m/t/a" in ran.result.not_reversible


def test_what_only_reads_is_really_run_by_check_and_its_outputs_are_known() -> None:
    _Looks.ran.clear()
    ran = _check(
        node("a", "looks", with_={"says": "reads"}, outputs={"loud": "{{ result.value | upper }}"}),
        node("b", after=["a"], with_={"value": "{{ steps.a.outputs.loud }}", "satisfied": True}),
        node("c", after=["a"], when="steps.a.outputs.value == 'seen' and not steps.a.changed"),
        bench=Bench(steps={"looks": _Looks}),
    )
    assert _Looks.ran == ["m/t/a"]
    a = ran.host("a")
    assert (a.status, a.forecast, a.changed, a.outputs) == (
        Status.SUCCESS, ForecastState.SATISFIED, False, {"value": "seen", "loud": "SEEN"},
    )  # fmt: skip
    assert ran.host("b").outputs["value"] == "SEEN"
    assert ran.host("c").forecast is ForecastState.CHANGE


def test_a_reading_step_that_fails_is_a_failure_of_the_check_unless_a_change_before_it_may_be_why() -> None:
    bench = Bench(steps={"looks": _Looks})
    failing = {"says": "reads", "fails": True}
    ran = _check(node("a", "looks", with_=failing), bench=bench)
    assert (ran.host("a").status, ran.result.status) == (Status.FAILED, Status.FAILED)
    ran = _check(node("a", "looks", with_=failing, ignore_errors=True), bench=bench)
    assert (ran.host("a").ignored, ran.result.status) == (True, Status.SUCCESS)
    ran = _check(node("first"), node("a", "looks", after=["first"], with_=failing), bench=bench)
    assert (ran.host("a").forecast, ran.host("a").message) == (ForecastState.UNKNOWN, "depends on m/t/first")
    harmless = node("first", "looks", with_={"says": "harmless"})
    ran = _check(harmless, node("a", "looks", after=["first"], with_=failing), bench=bench)
    assert ran.host("a").status is Status.FAILED, "what changes nothing is no reason"


class _Lies(Step[Params]):
    def precheck(self, ctx: StepContext) -> Forecast:
        return Forecast.reads("only asks")

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        return Result(changed=True)


def test_a_step_type_that_changes_what_it_said_to_read_is_told() -> None:
    ran = _check(node("a", "lies"), bench=Bench(steps={"lies": _Lies}))
    assert ran.host("a").status is Status.FAILED
    assert "_Lies.run changed something" in ran.host("a").message
