"""What an executor declares, and what is refused as one."""

from __future__ import annotations

import pytest

from kubexm_exec.executors.base import Executor, load_executor
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.model.result import RunMode
from kubexm_exec.plugins import RegistryError, executor_registry, step_registry
from tests.executors.kit import Bench, graph, node


def test_what_is_installed_as_an_executor_and_is_none_is_refused() -> None:
    with pytest.raises(RegistryError) as caught:
        load_executor(step_registry(), "file")
    assert caught.value.code == "broken-executor"
    assert 'executor "file" of package kubexm is no Executor class' in caught.value.message


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
