"""Prechecks in a row share a question to their host, and nobody is told of files as they were before some work."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubexm_exec.connectors.base import Command, OnOutput
from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.engine import prefetch
from kubexm_exec.engine.runtime import Runtime
from kubexm_exec.executors.base import Executor
from kubexm_exec.executors.check import CheckExecutor
from kubexm_exec.executors.concurrent import ConcurrentExecutor
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.events import ACTION_FINISHED, Event
from kubexm_exec.model.graph import Scope
from kubexm_exec.model.result import Status
from kubexm_steps.command import CommandStep
from kubexm_steps.file import FileStep
from tests.executors.kit import Bench, Ran, behind, gate, graph, node

NAMES = [f"f{number}" for number in range(12)]


class Counting(LocalConnector):
    """This machine, and how often it was asked something."""

    asked = 0
    _lock = threading.Lock()

    def run(
        self, command: Command, *, deadline: Deadline, cancel: Cancel, on_output: OnOutput | None = None
    ) -> CommandResult:
        with Counting._lock:
            Counting.asked += 1
        return super().run(command, deadline=deadline, cancel=cancel, on_output=on_output)


@pytest.fixture
def bench() -> Bench:
    Counting.asked = 0
    return Bench(steps={"file": FileStep, "command": CommandStep}, connectors={"local": Counting})


def file(path: Path | str, text: str = "as it should be\n") -> Mapping[str, Any]:
    return {"path": str(path), "content": text}


def there(folder: Path, names: list[str] = NAMES) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("as it should be\n")


def in_a_row(folder: Path | str, **more: Any) -> list[Any]:
    """Steps that look at one file each, one after the other."""
    return [
        node(name, "file", with_=file(f"{folder}/{name}"), after=NAMES[max(0, number - 1) : number], **more)
        for number, name in enumerate(NAMES)
    ]


def statuses(ran: Ran, host: str = "h1") -> list[tuple[Status, bool]]:
    return [(ran.host(name, host).status, ran.host(name, host).changed) for name in NAMES]


@pytest.mark.parametrize("executor", [ConcurrentExecutor, CheckExecutor])
def test_files_that_are_as_they_should_be_are_asked_for_once_a_host(
    bench: Bench, tmp_path: Path, executor: type[Executor]
) -> None:
    there(tmp_path / "h1")
    there(tmp_path / "h2")
    nodes = in_a_row(f"{tmp_path}/{{{{ host.name }}}}", hosts=("h1", "h2"))
    ran = bench.run(graph(*nodes), executor)
    assert statuses(ran, "h1") == statuses(ran, "h2") == [(Status.SKIPPED, False)] * len(NAMES)
    assert Counting.asked == 2


def test_a_check_sees_each_file_that_would_change(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    (tmp_path / "f3").write_text("something else\n")
    (tmp_path / "f7").unlink()
    ran = bench.run(graph(*in_a_row(tmp_path)), CheckExecutor)
    changes = [name for name in NAMES if ran.host(name).diffs]
    assert changes == ["f3", "f7"]


@pytest.mark.parametrize("where", ["h1", "h2"])
@pytest.mark.parametrize("kind", ["command", "file"])
def test_what_a_step_does_on_any_host_is_seen_by_the_steps_after_it(
    bench: Bench, tmp_path: Path, where: str, kind: str
) -> None:
    there(tmp_path)
    first, *others = in_a_row(tmp_path)
    command = {"shell": f"echo spoilt > {tmp_path}/f5; rm {tmp_path}/f6"}
    with_ = command if kind == "command" else file(tmp_path / "f5", "spoilt\n")
    work = node("work", kind, hosts=(where,), after=[behind("looked")], with_=with_)
    others[0] = node("f1", "file", with_=file(tmp_path / "f1"), after=["f0", behind("worked")])
    ran = bench.run(graph(first, gate("looked", ["f0"]), work, gate("worked", ["work"]), *others))
    assert [name for name in NAMES if ran.host(name).changed] == ["f5", "f6"][: 2 if kind == "command" else 1]
    assert {(tmp_path / name).read_text() for name in NAMES} == {"as it should be\n"}


def test_nothing_is_known_of_files_while_a_step_is_at_work(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    marks = {name: tmp_path / name for name in ("begun", "go", "spoilt", "end")}

    def until(name: str) -> str:
        return f"until [ -e {marks[name]} ]; do sleep 0.01; done"

    shell = (
        f"touch {marks['begun']}; {until('go')}; echo spoilt > {tmp_path}/f5; touch {marks['spoilt']}; {until('end')}"
    )
    work = node("work", "command", hosts=("h2",), with_={"shell": shell})
    waiting = node("wait", "command", with_={"shell": until("begun")})
    _, *others = in_a_row(tmp_path)
    first = node("f0", "file", with_=file(tmp_path / "f0"), after=["wait"])

    def tell(event: Event, runtime: Runtime) -> None:
        """It is spoilt when some have looked, and still at work when f5 looks."""
        if event.kind == ACTION_FINISHED and event.node == "m/t/f1":
            marks["go"].touch()
            while not marks["spoilt"].exists():
                time.sleep(0.01)
        if event.kind == ACTION_FINISHED and event.node == "m/t/f5":
            marks["end"].touch()

    bench.on_event = tell
    ran = bench.run(graph(work, waiting, first, *others))
    assert [name for name in NAMES if ran.host(name).changed] == ["f5"]


def test_what_somebody_else_changes_is_seen_after_a_moment(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there(tmp_path)

    def spoil(event: Event, runtime: Runtime) -> None:
        if event.kind == ACTION_FINISHED and event.node == "m/t/f0":
            (tmp_path / "f5").write_text("spoilt\n")

    bench.on_event = spoil
    monkeypatch.setattr(prefetch, "_GOOD_FOR", 0.0)
    ran = bench.run(graph(*in_a_row(tmp_path)))
    assert [name for name in NAMES if ran.host(name).changed] == ["f5"]
    assert Counting.asked >= len(NAMES)


def test_a_step_does_not_fail_because_of_the_path_of_another(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    nodes = in_a_row(tmp_path)
    nodes[4] = node("f4", "file", with_=file(tmp_path / "loop" / "f4"), after=["f3"], ignore_errors=True)
    ran = bench.run(graph(*nodes))
    assert [name for name in NAMES if ran.host(name).status is Status.FAILED] == ["f4"]
    assert f"{tmp_path}/loop/f4" in ran.host("f4").message
    assert [ran.host(name).status for name in NAMES if name != "f4"] == [Status.SKIPPED] * (len(NAMES) - 1)


def test_a_path_that_is_not_known_yet_is_left_to_its_step(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    nodes = in_a_row(tmp_path)
    nodes[1] = node("f1", "file", with_=file("{{ facts.os.family and vars.folder }}/f1"), after=["f0"])
    nodes[2] = node("f2", "file", with_=file("{{ vars.nowhere }}/f2"), after=["f1"], ignore_errors=True)
    scope = Scope("s", vars={"folder": str(tmp_path)})
    ran = bench.run(graph(*nodes, scope=scope))
    assert [name for name in NAMES if ran.host(name).status is Status.FAILED] == ["f2"]
    # One question for the facts, and one before and after them.
    assert Counting.asked <= 4


def test_a_first_run_asks_once_for_the_files_of_a_folder(bench: Bench, tmp_path: Path) -> None:
    ran = bench.run(graph(*in_a_row(tmp_path)))
    assert statuses(ran) == [(Status.SUCCESS, True)] * len(NAMES)
    assert Counting.asked == 1


@pytest.mark.parametrize("parents", [True, False])
def test_a_first_run_asks_for_little_that_nobody_uses(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parents: bool
) -> None:
    spans: list[int] = []
    ask_for = prefetch.Sight.ask_for

    def listen(self: Any, paths: Any, later: Any) -> list[str]:
        found = ask_for(self, paths, later)
        spans.append(len(found))
        return found

    monkeypatch.setattr(prefetch.Sight, "ask_for", listen)
    nodes = []
    for n, name in enumerate(NAMES):
        with_ = {**file(tmp_path / name / name), "createParents": parents}
        nodes.append(node(name, "file", with_=with_, after=NAMES[max(0, n - 1) : n]))
        if not parents:
            (tmp_path / name).mkdir()
    ran = bench.run(graph(*nodes))
    assert statuses(ran) == [(Status.SUCCESS, True)] * len(NAMES)
    assert spans == [11, 4, 1, *[0] * 9]


@pytest.mark.parametrize("way", ["real", "link"])
def test_a_file_that_a_step_has_replaced_is_looked_at_again_by_whatever_way(
    bench: Bench, tmp_path: Path, way: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "real/f"
    path.write_text("last\n")
    first = node("first", "file", with_=file(path, "first\n"))
    last = node("last", "file", with_=file(tmp_path / way / "f", "last\n"), after=["first"])
    ran = bench.run(graph(first, last))
    assert (ran.host("first").changed, ran.host("last").changed) == (True, True)
    assert path.read_text() == "last\n"


def test_actions_side_by_side_on_one_host_are_answered_rightly(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    (tmp_path / "f9").write_text("spoilt\n")
    nodes = [node(name, "file", with_=file(tmp_path / name)) for name in NAMES]
    ran = bench.run(graph(*nodes, per_host=6))
    assert [name for name in NAMES if ran.host(name).changed] == ["f9"]
    assert {(tmp_path / name).read_text() for name in NAMES} == {"as it should be\n"}


def test_a_retry_looks_for_itself(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    (tmp_path / "f1").unlink()
    (tmp_path / "f1").mkdir()
    nodes = in_a_row(tmp_path)
    nodes[1] = node("f1", "file", with_=file(tmp_path / "f1"), after=["f0"], attempts=2)

    def mend(event: Event, runtime: Runtime) -> None:
        if event.kind == "action.retry":
            (tmp_path / "f1").rmdir()
            (tmp_path / "f1").write_text("as it should be\n")

    bench.on_event = mend
    ran = bench.run(graph(*nodes))
    assert statuses(ran) == [(Status.SKIPPED, False)] * len(NAMES)


def test_a_step_type_that_is_not_there_harms_only_its_own_step(bench: Bench, tmp_path: Path) -> None:
    there(tmp_path)
    nodes = [*in_a_row(tmp_path), node("other", "unknown", ignore_errors=True)]
    ran = bench.run(graph(*nodes))
    assert statuses(ran) == [(Status.SKIPPED, False)] * len(NAMES)
    assert ran.host("other").status is Status.FAILED
    assert Counting.asked == 1
