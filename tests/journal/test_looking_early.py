"""What an action may do while its start is being written: look at its host, knowing all that came before it."""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kubexm_exec.engine.attempt import Attempt
from kubexm_exec.engine.ports import Done, Perform, Workers
from kubexm_exec.engine.workers import Threads
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.journal.session import Session, Start
from kubexm_exec.journal.store import Store
from kubexm_exec.model.events import ACTION_STARTED, Event
from kubexm_exec.model.graph import ExecutionGraph
from kubexm_exec.model.result import GraphExecutionResult, Status
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext
from tests.executors.kit import ActOutputs, ActParams, Bench, graph, node

LATE = 60.0
RUN = "01AAAAAAAAAAAAAAAAAAAAAAAA"


def play(
    folder: Path,
    bench: Bench,
    of: ExecutionGraph,
    executor: type[ConcurrentExecutor] = ConcurrentExecutor,
    ready: Callable[[], None] | None = None,
) -> GraphExecutionResult:
    """Run a graph with a real journal; ``ready`` is called before it starts."""
    store = Store(str(folder / "journal.db"))
    runtime, _, _ = bench.runtime(of)
    start = Start(run=RUN, name="r", target="t", spec="s", executor="concurrent", made_from={})
    session = Session.begin(store, folder, start, wait=None)
    session.attach(runtime)
    if ready is not None:
        ready()
    result: GraphExecutionResult = executor().execute(runtime)
    error = session.close(result, {}, "Success")
    store.close()
    assert error is None
    return result


def test_an_action_looks_while_its_start_is_written_and_changes_and_tells_nothing_before(tmp_path: Path) -> None:
    looked, held = threading.Event(), threading.Event()
    early: list[str] = []
    done: list[str] = []

    class Looks(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast:
            looked.set()
            return Forecast.change("it is not there")

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            (early if held.is_set() else done).append("run")
            return Result()

    def heard(event: Event, _: object) -> None:
        if event.kind == ACTION_STARTED:
            (early if held.is_set() else done).append("started")

    def hold() -> None:
        """Let nobody write until the action has looked, as another process could."""
        other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        held.set()

        def let_go() -> None:
            assert looked.wait(LATE)
            held.clear()
            other.rollback()
            other.close()

        threading.Thread(target=let_go, daemon=True).start()

    bench = Bench(steps={"looks": Looks}, on_event=heard)
    assert play(tmp_path, bench, graph(node("a", "looks")), ready=hold).status is Status.SUCCESS
    assert looked.is_set()
    assert early == []
    assert done == ["started", "run"]


def test_a_step_that_asks_its_host_nothing_before_its_work_keeps_no_thread_waiting_for_the_journal(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    known: list[bool] = []

    class Blind(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast:
            known.append(len(told) > len(known))
            return Forecast.change()

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result()

    def heard(event: Event, _: object) -> None:
        if event.kind == ACTION_STARTED:
            told.append(event.kind)

    nodes = [node("a0", "blind"), *(node(f"a{number}", "blind", after=[f"a{number - 1}"]) for number in range(1, 20))]
    bench = Bench(steps={"blind": Blind}, on_event=heard)
    assert play(tmp_path, bench, graph(*nodes)).status is Status.SUCCESS
    # The first may be earlier: nobody knows yet what the step type does.
    assert known[1:] == [True] * 19


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another"])
def test_an_action_that_looks_at_once_knows_the_outputs_of_the_one_before(tmp_path: Path, alone: bool) -> None:
    """Nothing else happens in the run from when an action may begin until it has looked, or failed."""
    arrived: dict[str, threading.Event] = defaultdict(threading.Event)

    class Says(Step[ActParams]):
        outputs_model = ActOutputs

        def precheck(self, ctx: StepContext) -> Forecast:
            # It asks its host something, or it would not begin early.
            ctx.runner.inspect("/")
            arrived[ctx.node].set()
            return Forecast.change("it was not said")

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            if self.params.value == "long":
                assert arrived["m/t/d"].wait(LATE)
            return Result(outputs={"value": self.params.value})

    class Prompt(Threads):
        def submit(self, attempts: Sequence[Attempt], busy: int) -> None:
            super().submit(attempts, busy)
            for attempt in attempts:
                assert arrived[attempt.node.id].wait(LATE)

    class Promptly(ConcurrentExecutor):
        def make_workers(self, perform: Perform, report: Callable[[Done], None], most: int) -> Workers:
            def reached(done: Done) -> None:
                arrived[done[0].node.id].set()
                report(done)

            return Prompt(perform, reached, most)

    nodes = [node("a", "says", with_={"value": "x"})]
    for before, name in ("ab", "bc", "cd"):
        value = f"{{{{ steps.{before}.outputs.value }}}}x"
        nodes.append(node(name, "says", after=[before], with_={"value": value}))
    if not alone:
        nodes.append(node("long", "says", hosts=["h2"], with_={"value": "long"}))
    result = play(tmp_path, Bench(steps={"says": Says}), graph(*nodes), Promptly)
    assert result.status is Status.SUCCESS
    assert result.node_results["m/t/d"].host_results["h1"].outputs["value"] == "xxxx"
