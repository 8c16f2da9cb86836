"""Every case in cases/: a step on given files, its forecast, what it does, that it does it once, and its undo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kubexm_exec.plugins import step_registry
from kubexm_exec.testing import StepTest, snapshot
from tests.steps import trees
from tests.steps.play import looks, play

CASES = Path(__file__).parent / "cases"
KEYS = {
    "step", "runs", "given", "local", "with", "sensitive", "vars", "forecast", "result", "fails", "after", "again",
    "undo",
    "shown",
}  # fmt: skip


def cases() -> list[Any]:
    return [pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in sorted(CASES.glob("*/*.yaml"))]


def filled(value: Any, host: Path, local: Path) -> Any:
    """The data with the two folders put in."""
    if isinstance(value, str):
        return value.replace("$HOST", str(host)).replace("$LOCAL", str(local))
    if isinstance(value, Mapping):
        return {filled(key, host, local): filled(item, host, local) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, host, local) for item in value]
    return value


@pytest.mark.parametrize("path", cases())
def test_step_does_what_its_case_says(path: Path, tmp_path: Path) -> None:
    host, local = tmp_path / "host", tmp_path / "local"
    host.mkdir()
    local.mkdir()
    case = filled(YAML(typ="safe").load(path), host, local)
    assert case.keys() <= KEYS, f"unknown keys: {case.keys() - KEYS}"
    assert case["step"] == path.parent.name
    trees.make(host, case.get("given", {}))
    trees.make(local, case.get("local", {}))
    hidden = case.get("sensitive", False)
    with StepTest(local, case["step"], case["with"], sensitive=hidden, host_vars=case.get("vars")) as step:
        play(case, step, _Files(host))


class _Files:
    """What a case looks at: the files of a folder."""

    undo_is_due = True

    def __init__(self, host: Path) -> None:
        self._host = host

    def state(self) -> Any:
        return snapshot(self._host)

    def exact(self) -> Any:
        """Times too: precheck leaves not even a temporary file."""
        return snapshot(self._host, exact=True)

    def check(self, case: Mapping[str, Any], before: Any) -> None:
        assert trees.differences(self._host, case.get("after", {})) == []

    def meddle(self, case: Mapping[str, Any], before: Any) -> bool:
        """Change the first file, link or folder that the run changed, in whatever the run changed of it."""
        return trees.meddle(self._host, before)


def test_every_step_type_has_cases() -> None:
    """Here or, if they change a whole system, in machines/; those that need a server or a person have tests instead."""
    elsewhere = {"http", "wait", "gate", "fragment"}
    ours = {info.name for info in step_registry().infos() if info.value.startswith("kubexm_steps.")}
    here = {path.name for path in CASES.iterdir()}
    machines = {path.name for path in CASES.with_name("machines").iterdir() if path.is_dir()}
    assert here | machines == ours - elsewhere


def test_every_step_type_that_can_be_undone_is_meddled_with() -> None:
    """Files are meddled with in every case; where it takes more, at least one case of a type on machines says how."""
    ours = {info.name for info in step_registry().infos() if info.value.startswith("kubexm_steps.")}
    blind = {name for name in ours if step_registry().load(name).undo.reversible and not looks(name)}
    assert blind == {"command"}, "these do not look whether somebody else was there"
    machines = CASES.with_name("machines").glob("*/*.yaml")
    by_hand = {path.parent.name for path in machines if "\nmeddle:" in path.read_text()}
    here = {path.name for path in CASES.iterdir()}
    assert {name for name in ours if looks(name)} <= here | by_hand


def test_undo_of_what_an_earlier_version_did_is_done_and_says_that_nobody_looked(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("before")
    world = StepTest(tmp_path, "file", {"path": str(path), "content": "ours"})
    try:
        world.run()
        path.write_text("theirs")
        assert world.undo is not None
        world.undo = {**world.undo, "files": [{**file} for file in world.undo["files"]]}
        for file in world.undo["files"]:
            del file["left"]
        state, said = world.undo_run()
    finally:
        world.close()
    assert state == "undone"
    assert "recorded by an earlier version" in said
    assert path.read_text() == "before"


def test_undo_data_of_a_half_done_attempt_and_the_next_one_bring_back_what_was_there_first(tmp_path: Path) -> None:
    """The first attempt changed the mode and one of two files; the second one did the rest."""
    (tmp_path / "src").mkdir()
    for name in ("a", "b"):
        (tmp_path / "src" / name).write_text("ours")
    to = tmp_path / "to"
    to.mkdir()
    (to / "a").write_text("before a")
    before = snapshot(to)
    world = StepTest(tmp_path, "copy", {"src": str(tmp_path / "src"), "path": str(to), "mode": "0600"})
    try:
        world.run()
        first = world.undo
        # As if it had been cut off before the second file, and somebody had changed nothing.
        (to / "b").unlink()
        world.run()
        assert first is not None
        assert world.undo is not None
        assert [file["path"] for file in world.undo["files"]] == [str(to / "b")]
        world.undo = step_registry().load("copy").merge_undo(first, world.undo)
        assert world.undo_run() == ("undone", "")
    finally:
        world.close()
    assert snapshot(to) == before
