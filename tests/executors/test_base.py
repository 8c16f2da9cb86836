"""What an executor declares, and what is refused as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from kubexm_exec.engine.attempt import ActionOutcome, Attempt
from kubexm_exec.engine.ports import Done, Perform
from kubexm_exec.executors.base import Executor, load_executor
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.model.graph import FailurePolicy
from kubexm_exec.model.result import HostResult, RunMode, Status
from kubexm_exec.plugins import RegistryError, executor_registry
from tests.executors.kit import Bench, graph, node


class _Pool:
    """Workers by the standard library's pool; it begins no second one in the place of one that does not come back."""

    made: ClassVar[list[_Pool]] = []

    def __init__(self, perform: Perform, report: Callable[[Done], None], most: int) -> None:
        self._perform, self._report = perform, report
        self._pool = ThreadPoolExecutor(most)
        self.submitted = 0
        self.closed = False
        self.made.append(self)

    def submit(self, attempts: Sequence[Attempt], busy: int) -> None:
        self.submitted += len(attempts)
        for attempt in attempts:
            self._pool.submit(lambda one: self._report((one, self._perform(one))), attempt)

    def abandon(self) -> None:
        raise AssertionError("every step of these tests comes back")

    def close(self, *, wait: bool) -> None:
        self._pool.shutdown(wait=wait)
        self.closed = True


class _Pooled(ConcurrentExecutor):
    def make_workers(self, perform: Perform, report: Callable[[Done], None], most: int) -> _Pool:
        return _Pool(perform, report, most)


def test_other_workers_perform_every_attempt_retries_too() -> None:
    steps = [
        node("a", hosts=["h1", "h2"], with_={"fail": 1}, attempts=2, delay=0),
        node("b", hosts=["h1", "h2"], after=["a"]),
    ]
    ran = Bench().run(graph(*steps), _Pooled)
    pool = _Pool.made.pop()
    assert ran.result.status is Status.SUCCESS
    assert (pool.submitted, pool.closed) == (6, True)


def test_other_workers_perform_every_undo() -> None:
    steps = [
        node("a", hosts=["h1", "h2"], with_={"undo": "1"}),
        node("b", hosts=["h1"], after=["a"], with_={"fail": 1}),
    ]
    ran = Bench().run(graph(*steps, policy=FailurePolicy.ROLLBACK), _Pooled)
    undo, run = _Pool.made.pop(), _Pool.made.pop()
    assert [ran.host("a", host).undo for host in ("h1", "h2")] == ["undone", "undone"]
    assert (run.submitted, undo.submitted, undo.closed) == (3, 2, True)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("Plain = len\n", "is not an Executor class but "),
        ("class Plain(Executor):\n    pass\n", "has no name"),
        (
            "class Plain(Executor):\n    name = 'plain'\n    mode = 'LOOK'\n",
            "has the mode 'LOOK': it must be a RunMode",
        ),
    ],
)
def test_what_is_installed_as_an_executor_and_is_none_is_refused(
    code: str, wrong: str, plug_in: Callable[[str, str], None]
) -> None:
    plug_in("kubexm.executors", f"from kubexm_exec.executors.base import Executor\n{code}")
    with pytest.raises(RegistryError, match=f'executor "plain" of package acme-plain {wrong}') as caught:
        load_executor(executor_registry(), "plain")
    assert caught.value.code == "broken-executor"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("concurrent", RunMode.ACT),
        ("debug", RunMode.ACT),
        ("check", RunMode.LOOK),
        ("dry-run", RunMode.OFFLINE),
    ],
)
def test_every_executor_says_what_it_may_do_to_hosts(name: str, mode: RunMode) -> None:
    found = load_executor(executor_registry(), name)
    assert (found.name, found.mode, found.mode.previews) == (name, mode, mode is not RunMode.ACT)


@pytest.mark.parametrize("executor", [ConcurrentExecutor, CheckExecutor])
def test_the_result_and_the_first_event_name_it(executor: type[Executor]) -> None:
    ran = Bench().run(graph(node("m/t/s")), executor)
    assert (ran.result.executor, ran.result.mode) == (executor.name, executor.mode)
    started = next(event for event in ran.events if event.kind == "run.started")
    assert (started.data["executor"], started.data["runMode"]) == (executor.name, executor.mode.value)


class _Careless(Executor):
    name = "careless"

    def perform(self, attempt: Attempt) -> ActionOutcome:
        if attempt.node.id.endswith("a"):
            raise ValueError("boom")
        return HostResult(host_name=attempt.host, status=Status.SUCCESS)  # type: ignore[return-value]


def test_what_an_executor_raises_or_returns_wrongly_is_said_of_it_not_of_the_step() -> None:
    ran = Bench().run(graph(node("a"), node("b")), _Careless)
    assert ran.host("a").message == "ValueError: boom"
    assert ran.host("b").message == "TypeError: perform must return an ActionOutcome, not HostResult"
    for name in "ab":
        assert ran.host(name).hint.startswith(f"executor {__name__}._Careless raised it")


class _Unready(Executor):
    name = "unready"

    def begin(self) -> None:
        raise ValueError("boom")


def test_an_executor_that_cannot_begin_is_named() -> None:
    with pytest.raises(RegistryError, match=r"_Unready\.begin raised ValueError: boom"):
        Bench().run(graph(node("a")), _Unready)
