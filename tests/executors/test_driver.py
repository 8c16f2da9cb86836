"""The loop that walks a graph: order, limits, failures, cancels, steps that never come back, fragments."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest

from kubexm_exec.connectors.base import Command
from kubexm_exec.engine import entries
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.journal.session import Session, Start
from kubexm_exec.journal.store import Store
from kubexm_exec.model.errors import CommandCancelled
from kubexm_exec.model.events import (
    ACTION_FINISHED,
    ACTION_OUTPUT,
    ACTION_STARTED,
    GATE_PAUSE,
    GRAPH_EXTENDED,
    RUN_STOPPING,
    Event,
)
from kubexm_exec.model.graph import Dependency, ExecutionNode, FailurePolicy, Hook, Mode, NodeKind, On
from kubexm_exec.model.ids import new_run_id
from kubexm_exec.model.result import FailureKind, SkipReason, Status
from kubexm_exec.step import Forecast, Params, Result, Step, StepContext, StepFailed, StepList
from tests.executors.kit import Bench, behind, fragment_compiler, gate, graph, node

FAILS = {"fail": 99}


def test_failed_step_skips_what_depends_on_it_and_nothing_else() -> None:
    ran = Bench().run(
        graph(
            node("a", hosts=["h1", "h2"], with_=FAILS),
            node("b", hosts=["h1", "h2"], after=["a"]),
            node("c", hosts=["h1", "h2"]),
        )
    )
    done = ran.host("b")
    assert (done.status, done.reason, done.cause) == (Status.SKIPPED, SkipReason.DEPENDENCY, "m/t/a")
    assert done.message == "Skipped due to failed dependency 'm/t/a'"
    assert not done.skipped
    assert ran.host("c", "h2").status is Status.SUCCESS
    assert ran.result.status is Status.FAILED
    assert ran.result.node_results["m/t/b"].status is Status.SKIPPED


def test_result_has_every_host_of_every_step_in_graph_order_and_no_gate() -> None:
    ran = Bench().run(
        graph(
            node("a", hosts=["h2", "h1"]),
            gate("end", ["a"]),
            node("b", hosts=["h3", "h1"], after=[behind("end")]),
            node("none", hosts=[]),
        )
    )
    assert list(ran.result.node_results) == ["m/t/a", "m/t/b", "m/t/none"]
    assert [list(of.host_results) for of in ran.result.node_results.values()] == [["h2", "h1"], ["h3", "h1"], []]
    assert ran.result.node_results["m/t/none"].status is Status.SKIPPED
    of = ran.result.node_results["m/t/a"]
    assert of.start_time is not None
    assert of.start_time == min(each.start_time or 0 for each in of.host_results.values())
    assert of.end_time == max(each.end_time or 0 for each in of.host_results.values())


def _mixed() -> list[ExecutionNode]:
    hosts = [f"h{number}" for number in range(6)]
    return [
        node("a", hosts=hosts, with_={"satisfied": "{{ host.name == 'h1' }}"}),
        node("b", hosts=hosts, after=["a"], with_={"fail": "{{ 99 if host.name == 'h2' else 0 }}"}),
        node("c", hosts=hosts, after=["b"], when="host.name != 'h3'"),
        gate("end", ["a", "b", "c"]),
        node("d", hosts=hosts, after=[behind("end")]),
        node("e", hosts=hosts[:3], with_=FAILS, ignore_errors=True),
        node("f", hosts=hosts[:3], after=["e"], with_={"fail": 1}, attempts=2),
        node("g", hosts=hosts, after=[behind("end", On.FAILURE)], hook=Hook.ON_FAILURE),
        node("h", hosts=hosts, after=[behind("end", On.DONE)], hook=Hook.ALWAYS),
    ]


def test_record_is_the_same_with_one_fork_and_with_many() -> None:
    one = Bench(forks=1).run(graph(*_mixed()))
    many = Bench(forks=20).run(graph(*_mixed()))
    assert one.statuses() == many.statuses()
    assert one.result.status is many.result.status is Status.FAILED
    assert one.statuses()["m/t/d", "h0"] == ("Skipped", SkipReason.DEPENDENCY, "m/t/b")
    assert one.statuses()["m/t/g", "h0"][0] == one.statuses()["m/t/h", "h5"][0] == "Success"


class _Meter(Step[Params]):
    """Counts how many run at once."""

    lock = threading.Lock()
    now = 0
    most = 0
    meet: threading.Barrier | None = None

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        kind = type(self)
        with kind.lock:
            kind.now += 1
            kind.most = max(kind.most, kind.now)
        if kind.meet is not None:
            kind.meet.wait(30)
        with kind.lock:
            kind.now -= 1
        return Result()


def _meter(together: int = 0) -> type[_Meter]:
    barrier = threading.Barrier(together) if together else None
    return type("Meter", (_Meter,), {"lock": threading.Lock(), "now": 0, "most": 0, "meet": barrier})


def test_as_many_run_at_once_as_there_are_forks() -> None:
    meter = _meter(together=4)
    hosts = [f"h{number}" for number in range(8)]
    Bench(forks=4, steps={"meter": meter}).run(graph(node("a", "meter", hosts=hosts)))
    assert meter.most == 4


def test_one_action_at_a_time_on_a_host_unless_it_is_given_more() -> None:
    alone = _meter()
    Bench(steps={"meter": alone}).run(graph(*(node(f"s{number}", "meter") for number in range(5))))
    assert alone.most == 1
    pairs = _meter(together=2)
    Bench(steps={"meter": pairs}).run(graph(*(node(f"s{number}", "meter") for number in range(4)), per_host=2))
    assert pairs.most == 2


def test_retry_waits_without_holding_its_place() -> None:
    """With one fork, another host runs while the first waits for its second attempt."""
    ran = Bench(forks=1).run(graph(node("a", with_={"fail": 1}, attempts=2, delay=0.2), node("b", hosts=["h2"])))
    runs = [line for line in ran.book.lines if line.startswith("run")]
    assert runs == ["run m/t/a h1", "run m/t/b h2", "run m/t/a h1"]
    assert ran.result.status is Status.SUCCESS


def test_fail_fast_lets_running_steps_finish_and_cancels_the_rest() -> None:
    release = threading.Event()

    class Slow(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            release.wait(30)
            return Result()

    def let_go(event: Event, runtime: Runtime) -> None:
        if event.kind == RUN_STOPPING:
            release.set()

    nodes = [
        node("slow", "slow", hosts=["h2"]),
        node("a", with_=FAILS),
        node("b", hosts=["h2"], after=["slow"]),
        node("hook", after=[Dependency("m/t/a", Mode.HOST, On.DONE)], hook=Hook.ALWAYS),
    ]
    bench = Bench(steps={"slow": Slow}, on_event=let_go)
    ran = bench.run(graph(*nodes, policy=FailurePolicy.FAIL_FAST))
    assert ran.host("slow", "h2").status is Status.SUCCESS
    assert ran.host("b", "h2").status is Status.CANCELLED
    assert "m/t/a" in ran.host("b", "h2").message
    assert ran.host("hook").status is Status.SUCCESS
    assert ran.of(RUN_STOPPING)[0].data["reason"] == "failFast"
    assert ran.result.status is Status.FAILED


def test_failure_after_a_stop_is_not_tried_again() -> None:
    release = threading.Event()

    class FailsLate(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            release.wait(30)
            raise StepFailed("late")

    def let_go(event: Event, runtime: Runtime) -> None:
        if event.kind == RUN_STOPPING:
            release.set()

    bench = Bench(steps={"late": FailsLate}, on_event=let_go)
    ran = bench.run(
        graph(node("a", with_=FAILS), node("late", "late", hosts=["h2"], attempts=5), policy=FailurePolicy.FAIL_FAST)
    )
    assert (ran.host("late", "h2").status, ran.host("late", "h2").attempts) == (Status.FAILED, 1)


class ShellParams(Params):
    line: str


class _Shell(Step[ShellParams]):
    """Runs a line of shell by the real runner."""

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        result = ctx.runner.run(Command(shell=self.params.line))
        return Result(stdout=result.out, stderr=result.err, exit_code=result.exit_code)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_timeout_kills_the_whole_process_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = f"sh -c 'echo $$ >> {pids}; sleep 300' & echo $$ >> {pids}; echo waiting; wait"
    ran = Bench(steps={"shell": _Shell}, grace=5).run(graph(node("a", "shell", with_={"line": line}, timeout=0.7)))
    done = ran.host("a")
    assert done.kind is FailureKind.TIMED_OUT
    assert done.message.startswith("timed out after 0.7s")
    assert done.stdout == "waiting\n"
    found = [int(word) for word in pids.read_text().split()]
    assert len(found) == 2
    assert not any(_is_alive(pid) for pid in found)


def test_output_of_commands_comes_as_whole_lines_and_few_events() -> None:
    line = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; printf 'no end'; echo oops >&2"
    ran = Bench(steps={"shell": _Shell}).run(graph(node("a", "shell", with_={"line": line})))
    said = ran.of(ACTION_OUTPUT)
    text = "".join(event.data["text"] for event in said if event.data["stream"] == "stdout")
    assert text == "".join(f"line {number}\n" for number in range(2000)) + "no end"
    assert "".join(event.data["text"] for event in said if event.data["stream"] == "stderr") == "oops\n"
    assert len(said) < 200
    finished = ran.events.index(ran.of(ACTION_FINISHED)[0])
    assert all(ran.events.index(event) < finished for event in said)


def test_last_line_before_a_long_silence_is_shown_while_the_command_runs(tmp_path: Path) -> None:
    """The second line comes too early for an event of its own, and nothing follows that would bring it out."""
    seen = tmp_path / "seen"

    def tell(event: Event, runtime: Runtime) -> None:
        if event.kind == ACTION_OUTPUT and "two" in event.data["text"]:
            seen.touch()

    line = f"echo one; sleep 0.01; echo two; while [ ! -e {seen} ]; do sleep 0.05; done; echo three"
    ran = Bench(steps={"shell": _Shell}, on_event=tell).run(graph(node("a", "shell", with_={"line": line}, timeout=30)))
    assert ran.result.status is Status.SUCCESS


class _Deaf(Step[Params]):
    """Does not look at its time, nor at anything else."""

    release = threading.Event()

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        type(self).release.wait(30)
        return Result(message="at last")


@pytest.fixture
def deaf() -> Any:
    release = threading.Event()
    yield type("Deaf", (_Deaf,), {"release": release})
    release.set()


def test_step_that_ignores_its_timeout_is_left_behind_and_the_run_goes_on(deaf: type[_Deaf]) -> None:
    ran = Bench(steps={"deaf": deaf}, forks=1).run(graph(node("a", "deaf", timeout=0.1), node("b", hosts=["h2"])))
    done = ran.host("a")
    assert (done.status, done.kind) == (Status.FAILED, FailureKind.TIMED_OUT)
    assert done.message.startswith("timed out after 0.1s; it did not stop")
    assert ran.host("b", "h2").status is Status.SUCCESS


def test_late_result_of_a_step_that_was_left_behind_is_ignored() -> None:
    """The first attempt comes back during the second one, which is the one that counts."""
    first_is_back = threading.Event()
    threads: list[threading.Thread] = []

    class Late(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            if ctx.attempt == 1:
                threads.append(threading.current_thread())
                first_is_back.wait(30)
                return Result(message="first")
            first_is_back.set()
            threads[0].join(30)
            return Result(message="second")

    ran = Bench(steps={"late": Late}).run(graph(node("a", "late", timeout=1, attempts=2), node("b", after=["a"])))
    assert (ran.host("a").message, ran.host("a").attempts) == ("second", 2)
    assert [event.data["attempt"] for event in ran.of(ACTION_STARTED) if event.node == "m/t/a"] == [1, 2]
    assert len(ran.of(ACTION_FINISHED)) == 2


def test_step_that_was_left_behind_can_no_longer_report_or_save() -> None:
    raised: list[str] = []
    over, told = threading.Event(), threading.Event()

    class Zombie(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            over.wait(30)
            calls: list[Callable[[], None]] = [lambda: ctx.progress("still here"), lambda: ctx.save_undo({})]
            for call in calls:
                try:
                    call()
                except CommandCancelled as error:
                    raised.append(type(error).__name__)
            told.set()
            return Result()

    ran = Bench(steps={"zombie": Zombie}).run(graph(node("a", "zombie", timeout=0.05)))
    over.set()
    assert told.wait(30)
    assert raised == ["CommandCancelled", "CommandCancelled"]
    assert "still here" not in str(ran.events)


def _cancel_when(kind: str, name: str) -> Any:
    def tell(event: Event, runtime: Runtime) -> None:
        if event.kind == kind and event.node == f"m/t/{name}":
            runtime.cancel.set()

    return tell


class _Waits(Step[Params]):
    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        ctx.sleep(60)
        return Result()


def _with_hooks(*nodes: ExecutionNode) -> list[ExecutionNode]:
    return [
        *nodes,
        node("b", after=[nodes[0].name]),
        gate("body", [*(each.name for each in nodes), "b"]),
        node("always", "last", after=[behind("body", On.DONE)], hook=Hook.ALWAYS),
        node("onfailure", after=[behind("body", On.FAILURE)], hook=Hook.ON_FAILURE),
    ]


class _Last(Step[Params]):
    """An always hook that would notice a cancel."""

    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        ctx.sleep(0.01)
        return Result(message=ctx.runner.run(["echo", "cleaned"]).out)


def test_cancel_stops_what_runs_runs_always_hooks_and_leaves_a_complete_record() -> None:
    bench = Bench(steps={"waits": _Waits, "last": _Last}, on_event=_cancel_when(ACTION_STARTED, "a"))
    ran = bench.run(graph(*_with_hooks(node("a", "waits", attempts=3))))
    assert ran.result.status is Status.CANCELLED
    assert (ran.host("a").status, ran.host("a").message) == (Status.CANCELLED, "cancelled while it ran")
    assert (ran.host("b").status, ran.host("b").message) == (Status.CANCELLED, "Cancelled before it started")
    assert (ran.host("always").status, ran.host("always").message) == (Status.SUCCESS, "cleaned\n")
    assert ran.host("onfailure").status is Status.CANCELLED
    assert ran.of(RUN_STOPPING)[0].data["reason"] == "cancel"


def test_cancel_kills_process_groups(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def cancel(event: Event, runtime: Runtime) -> None:
        if event.kind == ACTION_OUTPUT:
            runtime.cancel.set()

    line = f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; echo ready; wait"
    bench = Bench(steps={"shell": _Shell}, on_event=cancel, grace=5)
    ran = bench.run(graph(node("a", "shell", with_={"line": line})))
    assert ran.host("a").status is Status.CANCELLED
    assert not any(_is_alive(int(pid)) for pid in pids.read_text().split())


def test_cancel_leaves_a_step_behind_that_does_not_listen(deaf: type[_Deaf]) -> None:
    bench = Bench(steps={"deaf": deaf, "last": _Last}, on_event=_cancel_when(ACTION_STARTED, "a"))
    ran = bench.run(graph(*_with_hooks(node("a", "deaf"))))
    assert ran.host("a").status is Status.CANCELLED
    assert "abandoned" in ran.host("a").message
    assert ran.host("always").status is Status.SUCCESS


def test_cancel_ends_a_retry_that_waits() -> None:
    ran = Bench(steps={"last": _Last}, on_event=_cancel_when("action.retry", "a")).run(
        graph(*_with_hooks(node("a", with_=FAILS, attempts=2, delay=600)))
    )
    assert ran.host("a").status is Status.CANCELLED
    assert ran.host("always").status is Status.SUCCESS


def test_always_hook_that_already_runs_is_not_disturbed_by_a_cancel() -> None:
    """A cancel reaches the step of another scope, and the hook ends in peace."""

    class Hooked(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            ctx.sleep(0.3)
            return Result()

    bench = Bench(steps={"hook": Hooked, "waits": _Waits}, on_event=_cancel_when(ACTION_STARTED, "hook"))
    nodes = [node("waits", "waits", hosts=["h2"]), node("a"), gate("body", ["a"])]
    ran = bench.run(graph(*nodes, node("hook", "hook", after=[behind("body", On.DONE)], hook=Hook.ALWAYS)))
    assert ran.host("hook").status is Status.SUCCESS
    assert ran.host("waits", "h2").status is Status.CANCELLED


def test_second_interrupt_ends_at_once_even_in_an_always_hook(deaf: type[_Deaf]) -> None:
    def interrupt(event: Event, runtime: Runtime) -> None:
        if event.kind == ACTION_STARTED and event.node in ("m/t/a", "m/t/always"):
            runtime.interrupt()

    bench = Bench(steps={"waits": _Waits, "last": deaf}, on_event=interrupt)
    ran = bench.run(graph(*_with_hooks(node("a", "waits"))))
    assert ran.result.status is Status.CANCELLED
    assert ran.host("always").status is Status.CANCELLED
    assert all(status[0] == "Cancelled" for status in ran.statuses().values())


def test_interrupt_may_come_from_a_signal_handler() -> None:
    bench = Bench(steps={"waits": _Waits, "last": _Last})
    runtime, _, _ = bench.runtime(graph(*_with_hooks(node("a", "waits"))))
    before = signal.signal(signal.SIGUSR1, lambda *_: runtime.interrupt())
    runtime.bus.subscribe(lambda event: os.kill(os.getpid(), signal.SIGUSR1) if event.node == "m/t/a" else None)
    try:
        result = ConcurrentExecutor().execute(runtime)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert result.status is Status.CANCELLED


def _batches(pause: float) -> list[ExecutionNode]:
    """A step on h1, and after a pause on h2."""
    first = Dependency("m/t/a", Mode.BARRIER, On.SUCCESS, ("h1",))
    waits = Dependency("m/t#batch2", Mode.BARRIER, On.SUCCESS, ("h2",))
    between = ExecutionNode(id="m/t#batch2", kind=NodeKind.GATE, pause=pause, batch_budget="0", dependencies=(first,))
    return [node("a", hosts=["h1", "h2"], after=[waits]), between]


def test_cancel_ends_a_pause_and_always_hooks_run() -> None:
    def cancel(event: Event, runtime: Runtime) -> None:
        if event.kind == GATE_PAUSE:
            runtime.cancel.set()

    hooks = [gate("body", ["a"]), node("hook", after=[behind("body", On.DONE)], hook=Hook.ALWAYS)]
    ran = Bench(on_event=cancel).run(graph(*_batches(pause=600), *hooks))
    assert ran.host("a", "h1").status is ran.host("hook").status is Status.SUCCESS
    assert ran.host("a", "h2").status is Status.CANCELLED


def test_pause_between_batches_is_waited_for_and_told() -> None:
    began = time.monotonic()
    ran = Bench().run(graph(*_batches(pause=0.2)))
    assert time.monotonic() - began >= 0.2
    assert ran.result.status is Status.SUCCESS
    kinds = ran.kinds(ACTION_FINISHED, GATE_PAUSE)
    assert kinds == [ACTION_FINISHED, GATE_PAUSE, ACTION_FINISHED]


def test_mistake_in_an_executors_own_code_is_an_action_that_failed_not_a_run_that_hangs() -> None:
    from kubexm_exec.engine.driver import Driver

    runtime, _, _ = Bench().runtime(graph(node("a")))

    def broken(attempt: object) -> Any:
        raise RuntimeError("a bug")

    result = Driver(runtime, broken, name="broken", forks=2).run()
    assert result.status is Status.FAILED
    assert "a bug" in result.node_results["m/t/a"].host_results["h1"].message


def test_subscriber_that_raises_ends_the_run_and_everything_that_runs(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    threads: list[threading.Thread] = []

    class Long(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            threads.append(threading.current_thread())
            ctx.runner.run(Command(shell=f"echo $$ > {pids}; echo ready; sleep 300"))
            return Result()

    def raises(event: Event, runtime: Runtime) -> None:
        if event.kind == ACTION_FINISHED:
            raise OSError("the pipe is broken")

    class Quick(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            while not pids.exists() or not pids.read_text():
                ctx.sleep(0.01)
            return Result()

    bench = Bench(steps={"long": Long, "quick": Quick}, on_event=raises)
    with pytest.raises(OSError, match="the pipe is broken"):
        bench.run(graph(node("a", "long"), node("b", "quick", hosts=["h2"])))
    threads[0].join(30)
    assert not _is_alive(int(pids.read_text()))


def test_always_hook_may_ask_for_facts_after_a_cancel() -> None:
    bench = Bench(steps={"waits": _Waits}, on_event=_cancel_when(ACTION_STARTED, "a"))
    nodes = [node("a", "waits"), gate("body", ["a"])]
    hook = node("hook", after=[behind("body", On.DONE)], hook=Hook.ALWAYS, with_={"value": "{{ facts.hostname }}"})
    ran = bench.run(graph(*nodes, hook))
    assert ran.host("hook").outputs["value"] == os.uname().nodename


# Fragments


class GrowParams(Params):
    steps: Annotated[list[dict[str, Any]], StepList()]


class _Grow(Step[GrowParams]):
    def run(self, ctx: StepContext, forecast: Forecast) -> Result:
        return Result(fragment=self.params.steps)


def _grown(by: ExecutionNode, host: str, step: Mapping[str, Any]) -> ExecutionNode:
    after = step.get("after", "")
    dependency = f"{by.id}+{after}" if after else by.id
    return ExecutionNode(
        id=f"{by.id}+{step['name']}",
        name=f"{by.name}+{step['name']}",
        module=by.module,
        task=by.task,
        scope=by.scope,
        step_name=step["type"],
        hosts=(host,),
        with_=step.get("with", {}),
        dependencies=(Dependency(dependency),),
    )


def _growing() -> Bench:
    return Bench(steps={"grow": _Grow}, compile_fragment=fragment_compiler(_grown))


def test_steps_that_a_step_returns_run_before_what_waits_for_it() -> None:
    steps = [
        {"name": "x", "type": "act", "with": {"value": "1"}},
        {"name": "y", "type": "act", "after": "x", "with": {"value": "{{ steps.x.outputs.value }}2"}},
    ]
    bench = _growing()
    ran = bench.run(graph(node("a", "grow", hosts=["h1", "h2"], with_={"steps": steps}), node("b", after=["a"])))
    runs = [line for line in ran.book.lines if line.startswith("run") and line.endswith("h1")]
    assert runs == ["run m/t/a+x h1", "run m/t/a+y h1", "run m/t/b h1"]
    assert ran.host("a+y").outputs["value"] == "12"
    assert list(ran.result.node_results["m/t/a+x"].host_results) in (["h1", "h2"], ["h2", "h1"])
    assert [event.data["by"] for event in ran.of(GRAPH_EXTENDED)] == ["m/t/a", "m/t/a"]
    assert [each["id"] for each in ran.of(GRAPH_EXTENDED)[0].data["nodes"]] == ["m/t/a+x", "m/t/a+y"]
    assert ran.result.status is Status.SUCCESS


def test_journal_has_a_digest_of_what_a_returned_step_is_given_that_says_nothing_of_a_secret_in_it(
    tmp_path: Path,
) -> None:
    def digests(word: str) -> dict[str, str]:
        bench = _growing()
        bench.redactor.add(word)
        step = {"name": "x", "type": "act", "with": {"value": f"it is {word}"}}
        runtime, _, _ = bench.runtime(graph(node("a", "grow", with_={"steps": [step]})))
        store = Store(str(tmp_path / "journal.db"))
        start = Start(run=new_run_id(), name="n", target="t", spec="s", executor="concurrent", made_from={})
        session = Session.begin(store, tmp_path, start, wait=None)
        session.attach(runtime)
        assert session.close(ConcurrentExecutor().execute(runtime), {}) is None
        rows = [row for _, _, group in store.entries(start.run, read=entries.read) for row in group]
        store.close()
        return {row.node: row.inputs for row in rows if isinstance(row, entries.Start)}

    found, other = digests("heron-4711"), digests("a-longer-word")
    assert found.keys() == {"m/t/a", "m/t/a+x"}
    assert len(set(found.values())) == 2
    assert found["m/t/a+x"] == other["m/t/a+x"]


def test_returned_steps_may_return_more() -> None:
    inner = [{"name": "z", "type": "act"}]
    steps = [{"name": "x", "type": "grow", "with": {"steps": inner}}]
    ran = _growing().run(graph(node("a", "grow", with_={"steps": steps}), node("b", after=["a"])))
    assert [line for line in ran.book.lines if line.startswith("run")] == ["run m/t/a+x+z h1", "run m/t/b h1"]


def test_failure_of_a_returned_step_skips_what_waited_for_the_one_that_returned_it() -> None:
    steps = [{"name": "x", "type": "act", "with": FAILS}]
    ran = _growing().run(graph(node("a", "grow", with_={"steps": steps}), node("b", after=["a"])))
    assert ran.host("a").status is Status.SUCCESS
    assert (ran.host("b").reason, ran.host("b").cause) == (SkipReason.DEPENDENCY, "m/t/a+x")


def test_clash_of_what_two_hosts_return_is_the_later_actions_failure() -> None:
    class Different(Step[Params]):
        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(fragment=[{"name": "x", "type": "act", "with": {"value": ctx.host.name}}])

    bench = Bench(forks=1, steps={"grow": Different}, compile_fragment=fragment_compiler(_grown))
    ran = bench.run(graph(node("a", "grow", hosts=["h1", "h2"])))
    assert ran.host("a", "h1").status is Status.SUCCESS
    done = ran.host("a", "h2")
    assert (done.status, done.kind) == (Status.FAILED, FailureKind.FAILED)
    assert "cannot be run" in done.message
    assert "a+x" in done.message
    assert list(ran.result.node_results["m/t/a+x"].host_results) == ["h1"]


def test_cycle_or_bad_spec_in_a_fragment_is_that_actions_failure() -> None:
    steps = [{"name": "x", "type": "act", "after": "y"}, {"name": "y", "type": "act", "after": "x"}]
    ran = _growing().run(graph(node("a", "grow", with_={"steps": steps}), node("b")))
    assert ran.host("a").status is Status.FAILED
    assert ran.host("b").status is Status.SUCCESS


def test_fragment_without_a_compiler_is_that_actions_failure() -> None:
    ran = Bench(steps={"grow": _Grow}).run(graph(node("a", "grow", with_={"steps": [{"name": "x"}]})))
    assert ran.host("a").status is Status.FAILED


def test_precheck_that_says_unknown_still_runs() -> None:
    class Unsure(Step[Params]):
        def precheck(self, ctx: StepContext) -> Forecast:
            return Forecast.unknown("who knows")

        def run(self, ctx: StepContext, forecast: Forecast) -> Result:
            return Result(changed=False)

    assert Bench(steps={"unsure": Unsure}).run(graph(node("a", "unsure"))).host("a").status is Status.SUCCESS
