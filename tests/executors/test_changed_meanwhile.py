"""A file that others change between the look of a step and its work: nothing of theirs is lost, nor by an undo."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kubexm_exec.connectors.local.connector import LocalConnector
from kubexm_exec.model.graph import ExecutionGraph, FailurePolicy
from kubexm_exec.model.result import SkipReason, Status
from kubexm_exec.step import Forecast, Params, Result, StepContext
from kubexm_exec.step.host import Held
from kubexm_steps.block_in_file import BlockInFileStep
from kubexm_steps.file import FileStep
from kubexm_steps.lib.edits import Edit, apply, diffs, save
from kubexm_steps.lib.files import RestoringStep
from kubexm_steps.line_in_file import LineInFileStep
from tests.executors.kit import Bench, graph, node


class SystemFileParams(Params):
    path: str


class SystemFileStep(RestoringStep[SystemFileParams, Edit]):
    """A line at the end, as steps write the files of the system."""

    def precheck(self, ctx: StepContext) -> Forecast[Edit]:
        state = ctx.runner.inspect(self.params.path)
        held = Held(state, ctx.runner.content(state))
        return Forecast.change(
            "", seen=Edit(held, f"{held.text}mine\n"), diffs=diffs(ctx, [Edit(held, f"{held.text}mine\n")])
        )

    def run(self, ctx: StepContext, forecast: Forecast[Edit]) -> Result:
        save(ctx, [forecast.seen])
        apply(ctx, [forecast.seen])
        return Result()


STEPS = {
    "file": FileStep,
    "line-in-file": LineInFileStep,
    "block-in-file": BlockInFileStep,
    "system-file": SystemFileStep,
}
ITEMS = "abcdefgh"


def lines_of(path: Path, *, hosts: tuple[str, ...] = ("h1",), **more: Any) -> ExecutionGraph:
    """Steps that add one line each to one file, all at once."""
    with_ = {"path": str(path), "createFile": True}
    nodes = [
        node(item, "line-in-file", hosts=hosts, with_={**with_, "line": f"{item} {{{{ host.name }}}}"})
        for item in ITEMS
    ]
    return graph(*nodes, per_host=len(ITEMS), **more)


def meddler(target: Path, said: list[str]) -> type[LocalConnector]:
    """This machine, where another program writes to the file just before it is replaced."""

    class Meddling(LocalConnector):
        def put(self, source: bytes | BinaryIO, path: str, **how: Any) -> None:
            if path == str(target) and said:
                with target.open("a") as file:
                    file.write(said.pop(0))
            super().put(source, path, **how)

    return Meddling


@pytest.mark.parametrize("hosts", [("h1",), ("h1", "h2", "h3")])
@pytest.mark.parametrize("before", [None, "start\n"])
def test_actions_that_edit_one_file_at_once_all_get_their_lines_in(
    tmp_path: Path, hosts: tuple[str, ...], before: str | None
) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)
    ran = Bench(steps=STEPS, forks=24).run(lines_of(path, hosts=hosts))
    assert ran.result.status is Status.SUCCESS
    expected = [f"{item} {host}" for item in ITEMS for host in hosts]
    assert sorted(path.read_text().splitlines()) == sorted([*expected, *(["start"] if before else [])])


@pytest.mark.parametrize(
    ("kind", "more", "own"),
    [
        ("line-in-file", {"line": "mine"}, "mine\n"),
        ("block-in-file", {"name": "own", "content": "mine"}, "# BEGIN kubexm own\n"),
        ("system-file", {}, "mine\n"),
    ],
)
def test_what_another_program_has_written_since_the_look_stays(
    tmp_path: Path, kind: str, more: dict[str, Any], own: str
) -> None:
    path = tmp_path / "file"
    path.write_text("# start\n")
    bench = Bench(steps=STEPS, connectors={"local": meddler(path, ["# one\n", "# two\n"])})
    edit = node("edit", kind, with_={"path": str(path), **more})
    fails = node("fails", after=["edit"], with_={"fail": 1})
    ran = bench.run(graph(edit))
    assert ran.result.status is Status.SUCCESS, ran.host("edit").message
    text = path.read_text()
    assert text.startswith("# start\n# one\n# two\n")
    assert own.splitlines()[0] in text
    assert "# two" in ran.host("edit").diffs[0]["text"], "it shows what it has really changed"
    # An undo brings back what was really replaced.
    path.write_text("# start\n")
    bench.connectors = {"local": meddler(path, ["# one\n"])}
    ran = bench.run(graph(edit, fails, policy=FailurePolicy.ROLLBACK))
    assert ran.host("edit").undo == "undone"
    assert path.read_text() == "# start\n# one\n"


def test_an_undo_of_a_file_that_is_written_whole_brings_back_what_was_really_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("start\n")
    bench = Bench(steps=STEPS, connectors={"local": meddler(path, ["one\n"])})
    write = node("write", "file", with_={"path": str(path), "content": "mine\n"})
    ran = bench.run(graph(write, node("fails", after=["write"], with_={"fail": 1}), policy=FailurePolicy.ROLLBACK))
    assert ran.host("write").undo == "undone"
    assert path.read_text() == "start\none\n"


def test_folders_of_the_first_try_are_removed_by_an_undo_too(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    bench = Bench(steps=STEPS, connectors={"local": meddler(path, ["one\n"])})
    with_ = {"path": str(path), "line": "mine", "createFile": True, "createParents": True}
    fails = node("fails", after=["edit"], with_={"fail": 1})
    ran = bench.run(graph(node("edit", "line-in-file", with_=with_), fails, policy=FailurePolicy.ROLLBACK))
    assert ran.host("edit").undo == "undone"
    assert path.read_text() == "one\n", "it is the other's"


def test_what_the_other_program_has_done_already_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("start\n")
    bench = Bench(steps=STEPS, connectors={"local": meddler(path, ["mine\n"])})
    ran = bench.run(graph(node("edit", "line-in-file", with_={"path": str(path), "line": "mine"})))
    assert (ran.host("edit").status, ran.host("edit").reason) == (Status.SKIPPED, SkipReason.PRECHECK)
    assert path.read_text() == "start\nmine\n"


def test_a_file_that_never_rests_is_a_failure_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("start\n")
    said = [f"{number}\n" for number in range(20)]
    bench = Bench(steps=STEPS, connectors={"local": meddler(path, said)})
    ran = bench.run(graph(node("edit", "line-in-file", with_={"path": str(path), "line": "mine"})))
    assert ran.host("edit").status is Status.FAILED
    assert ran.host("edit").message == f"write {path}: others have changed it since the step looked at it"
    assert len(said) == 15
    assert path.read_text() == "start\n0\n1\n2\n3\n4\n"
